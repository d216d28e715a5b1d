//! The history of one group: from its lease to what became of it, and the versions published meanwhile.

use std::collections::BTreeMap;
use std::fmt;

use anabranch_core::{
    Digest, Event, EventKind, GroupId, OldestVersion, Reason, SampleSummary, Seq, Then, TrainingStep, Version,
};
use serde::Serialize;

use crate::installed::Installed;
use crate::units::seconds;

/// A record and its time.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct When {
    /// The record.
    pub seq: Seq,
    /// Its session.
    pub session: u32,
    /// Nanoseconds since that session's start.
    pub at_ns: u64,
    /// Wall time, milliseconds since the Unix epoch.
    pub wall_ms: u64,
    /// The version installed then.
    pub installed: Option<Version>,
}

/// What became of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "disposition", rename_all = "snake_case")]
pub enum Disposition {
    /// Leased, not completed.
    InFlight,
    /// Completed, not in the buffer.
    Waiting,
    /// In the buffer, or in a batch that is being assembled.
    Buffered,
    /// Consumed.
    Consumed {
        /// The training step.
        step: TrainingStep,
        /// Its place in the batch, from 0.
        place: u64,
        /// Groups of the batch.
        of: u64,
    },
    /// Excluded.
    Excluded {
        /// Why.
        reason: Reason,
        /// What became of its prompt.
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

/// The history of one group. Prints as a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// The group.
    pub group: GroupId,
    /// For fresh prompts: the position in the dataset's order over all epochs.
    pub position: Option<u64>,
    /// Its lease.
    pub leased: When,
    /// Its re-issues.
    pub reissued: Vec<When>,
    /// Its completion.
    pub completed: Option<When>,
    /// Its admission to the buffer.
    pub admitted: Option<When>,
    /// When it left the buffer: nanoseconds since the start of the session that settled it.
    pub dequeued_ns: Option<u64>,
    /// The record that settled it.
    pub settled: Option<When>,
    /// What became of it.
    #[serde(flatten)]
    pub disposition: Disposition,
    /// How many samples were asked for.
    pub expected: u32,
    /// Its samples, in order.
    pub samples: Vec<SampleSummary>,
    /// Digest of its payload.
    pub payload: Option<Digest>,
    /// The oldest version in any span; nothing before completion, or where it is unknown.
    pub oldest: Option<Version>,
    /// Its version gap when it was completed.
    pub gap_at_completion: Option<u64>,
    /// Its version gap when it was settled.
    pub gap_at_settlement: Option<u64>,
    /// Its step lag when it was consumed.
    pub step_lag: Option<u64>,
    /// Versions installed between its lease and its settlement (or the log's end).
    pub published: Vec<(Version, When)>,
    /// Every attempt at its prompt, itself among them.
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
    /// A historian of `group` that has seen nothing.
    pub fn new(group: GroupId) -> Self {
        Self { group, installed: Installed::default(), history: None, lineage: BTreeMap::new() }
    }

    /// Takes the next event.
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

    /// The history; nothing where the group was never leased.
    pub fn finish(self) -> Option<History> {
        let mut history = self.history?;
        history.disposition = self.lineage.get(&self.group.attempt)?.clone();
        let name = |attempt| GroupId { prompt: history.group.prompt.clone(), attempt };
        history.lineage = self.lineage.into_iter().map(|(attempt, became)| (name(attempt), became)).collect();
        Some(history)
    }
}

/// The history of `group` from all events of its run, in order; nothing where it was never leased.
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
