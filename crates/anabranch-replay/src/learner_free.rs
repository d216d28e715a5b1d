//! The times at which the learner became free, from which its waits for batches are measured.

use std::collections::BTreeMap;

use anabranch_core::{Cause, Event, EventKind, Moment, Seq};

/// Follows when the learner became free for a batch. It waited from then until the `BatchTaken`.
#[derive(Debug, Default)]
pub struct LearnerFree {
    /// When it last became free, in nanoseconds since the session's start.
    since: u64,
    /// The moments since the last batch at which it can have become free.
    moments: BTreeMap<Seq, u64>,
}

impl LearnerFree {
    /// Adds the next event. For a batch, returns since when the learner had been free for it, in nanoseconds since the
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

    /// Returns since when the learner is free if it is not training, in nanoseconds since the session's start.
    pub fn since(&self) -> u64 {
        self.since
    }
}
