//! Makes a log of any length that keeps the contract, event by event, to measure the code that reads logs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use anabranch_core::{
    Batch, Cause, Digest, Enabler, Event, EventKind, FORMAT, Fields, Group, GroupId, GroupSummary, Moment,
    OldestVersion, Prompt, PromptId, Sample, SampleSummary, SampleTimes, Seq, SpanVersion, Status, TakenGroup, Then,
    TrainingStep, Version, VersionSpan, WeightSync,
};

/// Groups per batch.
const BATCH: usize = 32;
/// Samples per group.
const SAMPLES: u64 = 4;
/// Generated tokens per sample.
const TOKENS: u32 = 2;
/// One group out of this many is filtered.
const FILTERED: u64 = 16;

/// The payload of a group. It is short because nothing reads it.
pub fn payload(id: &GroupId) -> Group {
    let version = SpanVersion::Exact(Version(0));
    let sample = Sample {
        tokens: vec![1, 2, 3],
        prompt_len: 1,
        loss_mask: vec![true; TOKENS as usize],
        logprobs: vec![-0.5; TOKENS as usize],
        truncated_logprobs: None,
        spans: vec![VersionSpan { start: 0, end: TOKENS, version, kv_carried: false }],
        reward: Some(1.0),
        status: Status::Completed,
        cause: None,
        times: SampleTimes::default(),
    };
    Group {
        id: id.clone(),
        prompt: Prompt { id: id.prompt.clone(), tokens: vec![1], fields: Fields::new() },
        expected: SAMPLES as u32,
        samples: vec![sample; SAMPLES as usize],
        extra: Fields::new(),
    }
}

/// Makes the events of a run of `groups` groups: a FIFO buffer, a filter, batches of 32, a publication per step.
pub struct Synthetic {
    groups: u64,
    leased: u64,
    dataset: Arc<str>,
    next: Seq,
    at: u64,
    version: Version,
    step: TrainingStep,
    free: Seq,
    buffer: VecDeque<(GroupId, Version)>,
    made: VecDeque<Event>,
}

impl Synthetic {
    /// A run of `groups` groups.
    pub fn new(groups: u64) -> Self {
        let mut run = Self {
            groups,
            leased: 0,
            dataset: "synthetic".into(),
            next: Seq(0),
            at: 0,
            version: Version(0),
            step: TrainingStep(0),
            free: Seq(0),
            buffer: VecDeque::new(),
            made: VecDeque::new(),
        };
        let library = "0.0.0".to_owned();
        run.record(EventKind::RunOpened { library, format: FORMAT, settings: Fields::new() }, &[]);
        let fields = |name: &str, value: u64| Fields::from([(name.to_owned(), value.into())]);
        // A database has its own opening, which takes a moment.
        run.at = 1_000_000_000;
        for (operator, settings) in [
            ("buffer", fields("groups", 2 * BATCH as u64)),
            ("fresh", fields("max_staleness", 1)),
            ("batch", fields("groups", BATCH as u64)),
        ] {
            run.record(EventKind::Configured { operator: operator.to_owned(), settings }, &[]);
        }
        run.publish(Version(0));
        run
    }

    fn record(&mut self, kind: EventKind, enablers: &[(Cause, Seq)]) -> Seq {
        let seq = self.next;
        self.next = Seq(seq.0 + 1);
        self.at += 1_000;
        let enabler = |&(cause, seq): &(Cause, Seq)| Enabler { cause, moment: Moment::Event(seq) };
        let enablers = enablers.iter().map(enabler).collect();
        let (at, wall_ms) = (self.at, self.at / 1_000_000);
        self.made.push_back(Event { seq, session: 0, at, wall_ms, enablers, delay: 1_000, kind });
        seq
    }

    fn weights(&self) -> Digest {
        Digest::of(&self.step.0.to_le_bytes())
    }

    fn publish(&mut self, version: Version) {
        let (step, updates, weights) = (self.step, self.step.0, self.weights());
        let mode = WeightSync::Retract;
        let begun = self.record(EventKind::Publishing { version, step, updates, weights, mode }, &[]);
        let (pause_began, paused) = (self.at, self.at);
        let published = EventKind::Published { version, step, updates, weights, pause_began, paused };
        let installed = self.record(published, &[(Cause::Publishing, begun)]);
        self.version = version;
        self.free = self.record(EventKind::GenerationResumed { version }, &[(Cause::Installed, installed)]);
    }

    fn group(&mut self) {
        let row = self.leased;
        let prompt = PromptId { dataset: self.dataset.clone(), epoch: (row >> 20) as u32, row: row & 0xf_ffff };
        let id = GroupId { prompt, attempt: 0 };
        self.leased += 1;
        let leased = EventKind::Leased { id: id.clone(), position: Some(row) };
        let leased = self.record(leased, &[(Cause::Slot, self.free)]);
        let at = self.at;
        let times = |sample: u64| SampleTimes {
            submitted: Some(at),
            first_token: Some(at + 100),
            ended: Some(at + 200 + sample),
            scored: Some(at + 300 + sample),
        };
        let sample = |sample: u64| SampleSummary {
            status: Status::Completed,
            generated: TOKENS,
            reward: Some((row + sample) as f64 % 5.0),
            oldest: Some(OldestVersion::Known(self.version)),
            newest: Some(self.version),
            times: times(sample),
        };
        let summary = GroupSummary { expected: SAMPLES as u32, samples: (0..SAMPLES).map(sample).collect() };
        let completed = EventKind::Completed { id: id.clone(), summary, payload: Digest::default() };
        let completed = self.record(completed, &[(Cause::Leased, leased)]);
        if row.is_multiple_of(FILTERED) {
            let (reason, then) = (anabranch_core::Reason::Filtered { name: "most".to_owned() }, Then::Drop);
            let excluded = EventKind::Excluded { id, reason, then, dequeued: None };
            self.record(excluded, &[(Cause::Completed, completed)]);
            return;
        }
        self.record(EventKind::Admitted { id: id.clone() }, &[(Cause::Completed, completed)]);
        self.buffer.push_back((id, self.version));
    }

    fn train(&mut self) {
        let (at, version, step) = (self.at, self.version, self.step.next());
        let taken = |(id, oldest): (GroupId, Version)| TakenGroup {
            id,
            dequeued: Some(at),
            gap: Some(version.since(oldest)),
            step_lag: Some(version.since(oldest)),
        };
        let groups: Vec<TakenGroup> = self.buffer.drain(..BATCH).map(taken).collect();
        let digest = Batch::digest_of(groups.iter().map(|group| (&group.id, Digest::default())));
        let batch = EventKind::BatchTaken { step, version: Some(version), groups, digest };
        let taken = self.record(batch, &[(Cause::LearnerFree, self.free)]);
        self.step = step;
        let metrics = BTreeMap::from([("entropy".to_owned(), 1.0)]);
        let (updates, loss, weights) = (step.0, 1.0 / step.0 as f64, self.weights());
        self.record(EventKind::Stepped { step, updates, loss, metrics, weights }, &[(Cause::Taken, taken)]);
        self.publish(self.version.next());
    }
}

impl Iterator for Synthetic {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        while self.made.is_empty() && self.leased < self.groups {
            self.group();
            // Half a batch stays in the buffer, so that gaps are not all 0.
            if self.buffer.len() >= BATCH + BATCH / 2 {
                self.train();
            }
        }
        self.made.pop_front()
    }
}
