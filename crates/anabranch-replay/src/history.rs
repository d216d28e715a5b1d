//! The history of one group, from its lease to its settlement, with the versions published meanwhile.

use std::collections::BTreeMap;
use std::fmt;

use anabranch_core::{
    Digest, Event, EventKind, GroupId, OldestVersion, Reason, SampleSummary, Seq, Then, TrainingStep, Version,
};
use serde::Serialize;

use crate::installed::Installed;
use crate::units::seconds;

/// A record of the log, and when it happened.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct When {
    /// The sequence number of the record.
    pub seq: Seq,
    /// The session of the record.
    pub session: u32,
    /// The time in nanoseconds since the session's start.
    pub at_ns: u64,
    /// The wall time in milliseconds since the Unix epoch.
    pub wall_ms: u64,
    /// The version that was installed at that time.
    pub installed: Option<Version>,
}

/// What became of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "disposition", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Disposition {
    /// The group is leased and not completed.
    InFlight,
    /// The group is completed and not in the buffer.
    Waiting,
    /// The group is in the buffer, or in a batch that is being assembled.
    Buffered,
    /// A training step consumed the group.
    Consumed {
        /// The training step.
        step: TrainingStep,
        /// The group's place in the batch, from 0.
        place: u64,
        /// How many groups the batch has.
        of: u64,
    },
    /// The group was excluded.
    Excluded {
        /// Why it was excluded.
        reason: Reason,
        /// What became of the group's prompt.
        then: Then,
    },
}

impl fmt::Display for Disposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight => write!(f, "in flight"),
            Self::Waiting => write!(f, "completed, waiting for room"),
            Self::Buffered => write!(f, "buffered"),
            Self::Consumed { step, place, of } => write!(f, "consumed by step {step}, group {} of {of}", place + 1),
            Self::Excluded { reason, then } => {
                match reason {
                    Reason::Filtered { name } => write!(f, "excluded by the filter {name}")?,
                    Reason::Stale { gap } => write!(f, "excluded as stale, gap {gap}")?,
                    other => write!(f, "excluded as {}", other.name().replace('_', " "))?,
                }
                match then {
                    Then::Drop => write!(f, "; its prompt is dropped"),
                    Then::Retry(next) => write!(f, "; retried as {next}"),
                    Then::Exhausted => write!(f, "; its attempts are exhausted"),
                }
            }
        }
    }
}

/// The history of one group. Its `Display` prints a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct History {
    /// The group.
    pub group: GroupId,
    /// The position of a fresh prompt in the dataset's order over all epochs.
    pub position: Option<u64>,
    /// The lease of the group.
    pub leased: When,
    /// Later issues of the same lease.
    pub reissued: Vec<When>,
    /// The completion of the group.
    pub completed: Option<When>,
    /// The admission of the group to the buffer.
    pub admitted: Option<When>,
    /// When the group left the buffer, in nanoseconds since the start of the session that settled it.
    pub dequeued_ns: Option<u64>,
    /// The record that settled the group.
    pub settled: Option<When>,
    /// What became of the group.
    #[serde(flatten)]
    pub disposition: Disposition,
    /// How many samples were asked for.
    pub expected: u32,
    /// The samples of the group, in order.
    pub samples: Vec<SampleSummary>,
    /// The digest of the group's payload.
    pub payload: Option<Digest>,
    /// The oldest version in any span; `None` before completion, or if the version is unknown.
    pub oldest: Option<Version>,
    /// The version gap of the group when it was completed.
    pub gap_at_completion: Option<u64>,
    /// The version gap of the group when it was settled.
    pub gap_at_settlement: Option<u64>,
    /// The step lag of the group when it was consumed.
    pub step_lag: Option<u64>,
    /// The versions installed between the group's lease and its settlement, or the log's end.
    pub published: Vec<(Version, When)>,
    /// Every attempt at the prompt, including this group, and what became of it.
    pub lineage: Vec<(GroupId, Disposition)>,
}

/// Computes a [`History`], event by event.
#[derive(Debug)]
pub struct Historian {
    group: GroupId,
    installed: Installed,
    history: Option<History>,
    lineage: BTreeMap<u32, Disposition>,
}

impl Historian {
    /// Creates a historian of `group` that has seen no event.
    pub fn new(group: GroupId) -> Self {
        Self { group, installed: Installed::default(), history: None, lineage: BTreeMap::new() }
    }

    /// Adds the next event of the run.
    pub fn push(&mut self, event: &Event) {
        self.installed.apply(event, &mut Vec::new());
        let when = When {
            seq: event.seq,
            session: event.session,
            at_ns: event.at,
            wall_ms: event.wall_ms,
            installed: self.installed.version(),
        };
        match &event.kind {
            EventKind::Published { version, .. } | EventKind::Reinstalled { version, .. } => {
                if let Some(history) = self.history.as_mut().filter(|history| history.settled.is_none()) {
                    history.published.push((*version, when));
                }
            }
            EventKind::BatchTaken { step, groups, .. } => {
                let prompt = self.group.prompt.clone();
                for (group, place) in groups.iter().zip(0..).filter(|(group, _)| group.id.prompt == prompt) {
                    let disposition = Disposition::Consumed { step: *step, place, of: groups.len() as u64 };
                    self.settle(&group.id, disposition, when, group.dequeued);
                    if let Some(history) = self.history.as_mut().filter(|history| history.group == group.id) {
                        history.step_lag = group.step_lag;
                    }
                }
            }
            kind => {
                if let Some(id) = kind.group().filter(|id| id.prompt == self.group.prompt) {
                    self.record(id, kind, when);
                }
            }
        }
    }

    fn record(&mut self, id: &GroupId, kind: &EventKind, when: When) {
        let this = *id == self.group;
        match kind {
            EventKind::Leased { position, .. } => {
                self.lineage.insert(id.attempt, Disposition::InFlight);
                if this {
                    self.history = Some(History::begun(self.group.clone(), *position, when));
                }
            }
            EventKind::Reissued { .. } => {
                self.history.as_mut().filter(|_| this).into_iter().for_each(|history| history.reissued.push(when));
            }
            EventKind::Completed { summary, payload, .. } => {
                self.lineage.insert(id.attempt, Disposition::Waiting);
                if let Some(history) = self.history.as_mut().filter(|_| this) {
                    history.completed = Some(when);
                    history.expected = summary.expected;
                    history.samples.clone_from(&summary.samples);
                    history.payload = Some(*payload);
                    history.oldest = match summary.oldest() {
                        Some(OldestVersion::Known(version)) => Some(version),
                        _ => None,
                    };
                    history.gap_at_completion = self.installed.gap(summary.oldest());
                }
            }
            EventKind::Admitted { .. } => {
                self.lineage.insert(id.attempt, Disposition::Buffered);
                self.history.as_mut().filter(|_| this).into_iter().for_each(|history| history.admitted = Some(when));
            }
            EventKind::Excluded { reason, then, dequeued, .. } => {
                let disposition = Disposition::Excluded { reason: reason.clone(), then: then.clone() };
                self.settle(id, disposition, when, *dequeued);
            }
            _ => {}
        }
    }

    fn settle(&mut self, id: &GroupId, disposition: Disposition, when: When, dequeued: Option<u64>) {
        self.lineage.insert(id.attempt, disposition);
        if let Some(history) = self.history.as_mut().filter(|history| history.group == *id) {
            history.settled = Some(when);
            history.dequeued_ns = dequeued;
            history.gap_at_settlement = self.installed.gap(history.oldest.map(OldestVersion::Known));
        }
    }

    /// Returns the history, or `None` if the group was never leased.
    #[must_use]
    pub fn finish(self) -> Option<History> {
        let mut history = self.history?;
        history.disposition = self.lineage.get(&self.group.attempt)?.clone();
        let name = |attempt| GroupId { prompt: history.group.prompt.clone(), attempt };
        history.lineage = self.lineage.into_iter().map(|(attempt, became)| (name(attempt), became)).collect();
        Some(history)
    }
}

/// Returns the history of `group` from all events of its run, in order, or `None` if the group was never leased.
#[must_use]
pub fn history<'a>(events: impl IntoIterator<Item = &'a Event>, group: &GroupId) -> Option<History> {
    let mut historian = Historian::new(group.clone());
    events.into_iter().for_each(|event| historian.push(event));
    historian.finish()
}

impl History {
    fn begun(group: GroupId, position: Option<u64>, leased: When) -> Self {
        Self {
            group,
            position,
            leased,
            reissued: Vec::new(),
            completed: None,
            admitted: None,
            dequeued_ns: None,
            settled: None,
            disposition: Disposition::InFlight,
            expected: 0,
            samples: Vec::new(),
            payload: None,
            oldest: None,
            gap_at_completion: None,
            gap_at_settlement: None,
            step_lag: None,
            published: Vec::new(),
            lineage: Vec::new(),
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.installed.map_or_else(|| "no version".to_owned(), |version| version.to_string());
        write!(f, "{} at {} of session {}, {version} installed", self.seq, seconds(self.at_ns), self.session)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = |gap: Option<u64>| gap.map_or_else(|| "gap unknown".to_owned(), |gap| format!("gap {gap}"));
        writeln!(f, "group       {}: {}", self.group, self.disposition)?;
        writeln!(f, "leased      {}", self.leased)?;
        for reissued in &self.reissued {
            writeln!(f, "re-issued   {reissued}")?;
        }
        if let Some(completed) = &self.completed {
            writeln!(f, "completed   {completed}: {}", gap(self.gap_at_completion))?;
        }
        if let Some(admitted) = &self.admitted {
            writeln!(f, "admitted    {admitted}")?;
        }
        if let Some(settled) = &self.settled {
            let left = self.dequeued_ns.map(|at| format!(", out of the buffer at {}", seconds(at)));
            let lag = self.step_lag.map(|lag| format!(", step lag {lag}"));
            let (gap, left, lag) = (gap(self.gap_at_settlement), left.unwrap_or_default(), lag.unwrap_or_default());
            writeln!(f, "settled     {settled}: {gap}{lag}{left}")?;
        }
        for (version, when) in &self.published {
            writeln!(f, "meanwhile   {version} installed by {} at {}", when.seq, seconds(when.at_ns))?;
        }
        if let Some(payload) = self.payload {
            writeln!(
                f,
                "samples     {} of {} expected, payload {}",
                self.samples.len(),
                self.expected,
                payload.short()
            )?;
        }
        for (sample, index) in self.samples.iter().zip(0_usize..) {
            write_sample(f, index, sample)?;
        }
        if self.lineage.len() > 1 {
            writeln!(f, "attempts    {}", self.lineage.len())?;
            for (group, became) in &self.lineage {
                writeln!(f, "  {group}  {became}")?;
            }
        }
        Ok(())
    }
}

fn write_sample(f: &mut fmt::Formatter<'_>, index: usize, sample: &SampleSummary) -> fmt::Result {
    let reward = sample.reward.map_or_else(|| "none".to_owned(), |reward| format!("{reward}"));
    let oldest = match sample.oldest {
        Some(OldestVersion::Known(version)) => version.to_string(),
        Some(OldestVersion::Unknown) => "unknown".to_owned(),
        None => "none".to_owned(),
    };
    let newest = sample.newest.map_or_else(|| oldest.clone(), |version| version.to_string());
    let versions = if oldest == newest { oldest } else { format!("{oldest} to {newest}") };
    let status = format!("{:?}", sample.status).to_lowercase();
    write!(f, "  {index:>2}  {status:<9} {:>6} tokens, reward {reward}, {versions}", sample.generated)?;
    let times = sample.times;
    for (name, at) in [("first token", times.first_token), ("ended", times.ended), ("scored", times.scored)] {
        if let (Some(at), Some(submitted)) = (at, times.submitted) {
            write!(f, ", {name} +{}", seconds(at.saturating_sub(submitted)))?;
        }
    }
    writeln!(f)
}
