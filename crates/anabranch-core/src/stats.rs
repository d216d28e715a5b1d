//! Live counts of a run.

use std::collections::BTreeMap;

use crate::{EventKind, TrainingStep, Version};

/// Counts over the whole life of a run, and where its groups are now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Leases issued; a re-issue does not count again.
    pub leased: u64,
    /// Leases issued again after a restart.
    pub reissued: u64,
    /// Groups completed.
    pub completed: u64,
    /// Tokens generated in completed groups.
    pub generated_tokens: u64,
    /// Groups admitted to the buffer.
    pub admitted: u64,
    /// Groups consumed by batches.
    pub consumed: u64,
    /// Groups excluded, by reason.
    pub excluded: BTreeMap<&'static str, u64>,
    /// Prompts queued again after an exclusion.
    pub retried: u64,
    /// Batches taken.
    pub batches: u64,
    /// Publications, the initial installation among them.
    pub publications: u64,
    /// Version installed.
    pub version: Option<Version>,
    /// Training steps completed.
    pub step: TrainingStep,
    /// Groups on their way to the buffer, now.
    pub upstream: usize,
    /// Groups in the buffer, now.
    pub buffered: usize,
}

impl Stats {
    /// Counts one event.
    pub fn count(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Leased { .. } => self.leased += 1,
            EventKind::Reissued { .. } => self.reissued += 1,
            EventKind::Completed { summary, .. } => {
                self.completed += 1;
                self.generated_tokens += summary.generated();
            }
            EventKind::Admitted { .. } => self.admitted += 1,
            EventKind::Excluded { reason, then, .. } => {
                *self.excluded.entry(reason.name()).or_default() += 1;
                self.retried += u64::from(matches!(then, crate::Then::Retry(_)));
            }
            EventKind::BatchTaken { groups, .. } => {
                self.batches += 1;
                self.consumed += groups.len() as u64;
            }
            EventKind::Stepped { step, .. } => self.step = *step,
            EventKind::Published { version, .. } => {
                self.publications += 1;
                self.version = Some(*version);
            }
            _ => {}
        }
    }
}
