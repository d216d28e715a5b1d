//! What the pipeline tests share: a run in memory on tokio's clock, its events, and the laws that hold for all of them.
#![allow(dead_code, reason = "every test binary uses its own part of this")]

pub mod recorder;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::{
    Dataset, Digest, Event, EventKind, Fields, Group, GroupId, MemoryJournal, Order, Prompt, ResumeState, Sample,
    SampleSummary, SampleTimes, Seq, SpanVersion, Spans, Status, Version,
};
use anabranch_metrics::Meter;
use anabranch_stream::{Rollout, Run, tokio_clock};

/// A run in memory, and the journal that tells what happened.
pub struct Recorded {
    pub run: Run,
    pub journal: Arc<MemoryJournal>,
}

impl Recorded {
    pub fn new() -> Self {
        Self::after(ResumeState::default())
    }

    /// A run whose earlier sessions left `past`.
    pub fn after(past: ResumeState) -> Self {
        Self::on(Arc::new(MemoryJournal::starting_at(past.next_seq)), past)
    }

    /// A run on a journal that may hold payloads already.
    pub fn on(journal: Arc<MemoryJournal>, past: ResumeState) -> Self {
        let run = Run::builder("test")
            .journal(journal.clone())
            .resume(past, Meter::of(&journal.events()))
            .clock(tokio_clock())
            .open()
            .unwrap();
        Self { run, journal }
    }

    pub fn events(&self) -> Vec<Event> {
        self.journal.events()
    }

    /// The group ids of all events that `pick` picks one of.
    pub fn ids(&self, pick: impl Fn(&EventKind) -> Option<&GroupId>) -> Vec<String> {
        self.events().iter().filter_map(|event| pick(&event.kind).map(GroupId::to_string)).collect()
    }

    /// The names of all events, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.events().iter().map(|event| event.kind.name()).collect()
    }

    /// The largest gap of each batch.
    pub fn gaps(&self) -> Vec<u64> {
        let gaps = |kind: &EventKind| match kind {
            EventKind::BatchTaken { groups, .. } => {
                Some(groups.iter().filter_map(|group| group.gap).max().unwrap_or(0))
            }
            _ => None,
        };
        self.events().iter().filter_map(|event| gaps(&event.kind)).collect()
    }

    /// The ids of each batch.
    pub fn batches(&self) -> Vec<Vec<GroupId>> {
        let ids = |kind: &EventKind| match kind {
            EventKind::BatchTaken { groups, .. } => Some(groups.iter().map(|group| group.id.clone()).collect()),
            _ => None,
        };
        self.events().iter().filter_map(|event| ids(&event.kind)).collect()
    }

    /// Exclusions by reason.
    pub fn excluded(&self) -> BTreeMap<String, usize> {
        let mut excluded = BTreeMap::new();
        for event in self.events() {
            if let EventKind::Excluded { reason, .. } = event.kind {
                *excluded.entry(format!("{reason:?}")).or_default() += 1;
            }
        }
        excluded
    }
}

/// A dataset of `rows` one-token prompts, the token being the row.
pub fn dataset(rows: u32) -> Dataset {
    Dataset::new("d", (0..rows).map(|row| (vec![row], Fields::new())).collect()).unwrap()
}

/// A complete group whose spans have these versions, adopted by the run.
pub fn adopted(run: &Run, row: u64, versions: &[SpanVersion]) -> Rollout {
    let id: GroupId = format!("made/0/{row}").parse().unwrap();
    let mut spans = Spans::new();
    for &version in versions {
        spans.push(2, version, false);
    }
    let generated = spans.tokens() as usize;
    let sample = Sample {
        tokens: vec![1; generated + 1],
        prompt_len: 1,
        loss_mask: vec![true; generated],
        logprobs: vec![-0.5; generated],
        truncated_logprobs: None,
        spans: spans.into_vec(),
        reward: Some(1.0),
        status: Status::Completed,
        cause: None,
        times: SampleTimes::default(),
    };
    let prompt = Prompt { id: id.prompt.clone(), tokens: vec![1], fields: Fields::new() };
    run.adopt(Group { id, prompt, expected: 1, samples: vec![sample], extra: Fields::new() })
}

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What every log of an unbroken session must satisfy, whatever the pipeline: conservation, one settlement a lease, batch
/// size, gaps within the limit against the last publication, the buffer's order, and gaps as the spans say; and what else
/// `verify` finds.
pub struct Laws {
    pub batch: usize,
    pub limit: Option<u64>,
    pub buffered: bool,
}

impl Laws {
    pub fn check(&self, events: &[Event]) {
        let report = anabranch_replay::verify(events);
        assert!(report.is_clean(), "{report}");
        let recomputed = anabranch_replay::recompute(events).unwrap_or_else(|difference| panic!("{difference}"));
        let batches = events.iter().filter(|event| matches!(event.kind, EventKind::BatchTaken { .. })).count();
        assert_eq!(recomputed.batches, batches as u64);
        assert!(self.buffered || report.limits.order.is_none());
        let mut leased: BTreeSet<GroupId> = BTreeSet::new();
        let mut settled: BTreeSet<GroupId> = BTreeSet::new();
        let mut oldest: BTreeMap<GroupId, u64> = BTreeMap::new();
        let mut admitted: BTreeMap<GroupId, Seq> = BTreeMap::new();
        let mut last_left = Seq(0);
        let mut version = Version(0);
        let mut left = None;
        for (event, index) in events.iter().zip(0..) {
            assert_eq!(event.seq.0 - events[0].seq.0, index, "seqs are dense");
            if matches!(event.kind, EventKind::RunResumed { .. }) {
                left = None;
            }
            assert!(left.is_none(), "nothing follows RunClosed but another session");
            match &event.kind {
                EventKind::Leased { id, .. } => assert!(leased.insert(id.clone()), "{id} leased twice"),
                EventKind::Completed { id, summary, .. } => {
                    let versions = summary.samples.iter().filter_map(oldest_version).min();
                    oldest.extend(versions.map(|version| (id.clone(), version)));
                }
                EventKind::Admitted { id } => {
                    assert!(oldest.contains_key(id), "{id} admitted before it was completed");
                    admitted.insert(id.clone(), event.seq);
                }
                EventKind::Excluded { id, .. } => assert!(settled.insert(id.clone()), "{id} settled twice"),
                EventKind::Published { version: published, .. } => {
                    assert!(version <= *published, "versions go up");
                    version = *published;
                }
                EventKind::BatchTaken { groups, version: against, .. } => {
                    assert_eq!(groups.len(), self.batch, "exactly as many groups as asked for");
                    assert_eq!(*against, Some(version), "judged against what is installed");
                    for group in groups {
                        assert!(settled.insert(group.id.clone()), "{} settled twice", group.id);
                        let gap = version.0 - oldest[&group.id];
                        assert_eq!(group.gap, Some(gap), "{}'s gap", group.id);
                        assert!(self.limit.is_none_or(|limit| gap <= limit), "{} has gap {gap}", group.id);
                        if report.limits.order == Some(Order::Fifo) {
                            let seq = admitted[&group.id];
                            assert!(seq > last_left, "{} left out of turn", group.id);
                            last_left = seq;
                        }
                    }
                }
                EventKind::RunClosed { left: ids } => left = Some(ids.iter().cloned().collect::<BTreeSet<_>>()),
                _ => {}
            }
        }
        let left = left.expect("the run was finished");
        assert!(left.is_disjoint(&settled), "what is left is not settled");
        let accounted: BTreeSet<GroupId> = settled.union(&left).cloned().collect();
        assert_eq!(leased, accounted, "leased = consumed + excluded + left");
    }
}

fn oldest_version(sample: &SampleSummary) -> Option<u64> {
    match sample.oldest? {
        anabranch_core::OldestVersion::Known(version) => Some(version.0),
        anabranch_core::OldestVersion::Unknown => panic!("the scripted engine knows its versions"),
    }
}

/// The batches of a log, and the digest of the weights after the last step.
pub fn trained(events: &[Event]) -> (Vec<Vec<GroupId>>, Option<Digest>) {
    let mut batches = Vec::new();
    let mut weights = None;
    for event in events {
        match &event.kind {
            EventKind::BatchTaken { groups, .. } => {
                batches.push(groups.iter().map(|group| group.id.clone()).collect());
            }
            EventKind::Stepped { weights: after, .. } => weights = Some(*after),
            _ => {}
        }
    }
    (batches, weights)
}
