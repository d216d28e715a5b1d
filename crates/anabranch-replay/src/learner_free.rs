//! When the learner was free, and how long it waited for each batch.

use std::collections::BTreeMap;

use anabranch_core::{Cause, Event, EventKind, Moment, Seq};

/// Follows the learner: when it was free for a batch. It waited from then to the `BatchTaken`.
#[derive(Debug, Default)]
pub struct LearnerFree {
    /// Since when it was last free, in nanoseconds since the session's start.
    since: u64,
    /// The moments since the last batch from which it can have been free.
    moments: BTreeMap<Seq, u64>,
}

impl LearnerFree {
    /// Takes the next event; of a batch it tells since when the learner had been free for it, in nanoseconds since the
    /// session's start.
    pub fn see(&mut self, event: &Event) -> Option<u64> {
        match &event.kind {
            EventKind::BatchTaken { .. } => {
                let named = event.enablers.iter().filter(|enabler| enabler.cause == Cause::LearnerFree);
                let named = named.filter_map(|enabler| match enabler.moment {
                    Moment::Event(seq) => self.moments.get(&seq).copied(),
                    _ => None,
                });
                let since = named.max().unwrap_or(self.since).min(event.at);
                self.moments.clear();
                return Some(since);
            }
            EventKind::RunResumed { .. } => self.moments.clear(),
            EventKind::RunOpened { .. }
            | EventKind::Stepped { .. }
            | EventKind::Restepped { .. }
            | EventKind::Checkpointed { .. }
            | EventKind::Published { .. }
            | EventKind::Reinstalled { .. }
            | EventKind::GenerationResumed { .. } => {}
            _ => return None,
        }
        self.since = event.at;
        self.moments.insert(event.seq, event.at);
        None
    }

    /// Since when it is free, where it is not training: nanoseconds since the session's start.
    pub fn since(&self) -> u64 {
        self.since
    }
}
