//! When the learner trained, and when it was free and waited.

use std::collections::BTreeMap;

use anabranch_core::{Cause, Event, Seq};

use super::slices::Slices;
use crate::Slice;

#[derive(Debug, Default)]
pub(super) struct LearnerTimes {
    /// The moments since the last batch from which the learner can be free, by event.
    moments: BTreeMap<Seq, u64>,
    taken_at: Option<u64>,
}

impl LearnerTimes {
    /// The learner can take a batch from this event on.
    pub(super) fn free(&mut self, seq: Seq, now: u64) {
        self.moments.insert(seq, now);
    }

    /// A batch was taken; gives how long the learner waited for it.
    pub(super) fn take(&mut self, event: &Event, now: u64, slices: &mut Slices<Slice>) -> u64 {
        let named = event.enablers.iter().filter(|enabler| enabler.cause == Cause::LearnerFree);
        let named = named.filter_map(|enabler| self.moments.get(&enabler.moment.event()?).copied()).max();
        let free_at = named.or_else(|| self.moments.values().next_back().copied()).unwrap_or(now);
        slices.spread(free_at, now, |slice, ns| slice.learner_wait_ns += ns);
        self.moments.clear();
        self.taken_at = Some(now);
        now.saturating_sub(free_at)
    }

    /// A step was made.
    pub(super) fn step(&mut self, seq: Seq, now: u64, slices: &mut Slices<Slice>) {
        self.end(now, slices);
        self.free(seq, now);
    }

    /// A session ended.
    pub(super) fn interrupt(&mut self, now: u64, slices: &mut Slices<Slice>) {
        self.end(now, slices);
        self.moments.clear();
    }

    /// Training, if it was going on, is over.
    pub(super) fn end(&mut self, now: u64, slices: &mut Slices<Slice>) {
        if let Some(taken_at) = self.taken_at.take() {
            slices.spread(taken_at, now, |slice, ns| slice.training_ns += ns);
        }
    }
}
