//! The learner's time: when it trained, and when it was free and waited.

use super::slices::Slices;
use crate::Slice;

#[derive(Debug, Default)]
pub(super) struct LearnerTimes {
    taken_at: Option<u64>,
}

impl LearnerTimes {
    /// Notes that a batch was taken, for which the learner had been free since `free_since`.
    pub(super) fn take(&mut self, free_since: u64, now: u64, slices: &mut Slices<Slice>) {
        slices.spread(free_since, now, |slice, ns| slice.learner_wait_ns += ns);
        self.taken_at = Some(now);
    }

    /// Ends the training step, if one was being made.
    pub(super) fn end(&mut self, now: u64, slices: &mut Slices<Slice>) {
        if let Some(taken_at) = self.taken_at.take() {
            slices.spread(taken_at, now, |slice, ns| slice.training_ns += ns);
        }
    }
}
