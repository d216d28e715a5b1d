//! The facts about a group that a buffer needs.

use anabranch_core::{Moment, Order, Sample, Stamp};

use super::queue::Item;
use crate::Rollout;
use crate::run::Stage;

impl Item for Rollout {
    /// Tokens, masks and log-probs.
    fn bytes(&self) -> u64 {
        let sample = |sample: &Sample| {
            let words =
                sample.tokens.len() + sample.logprobs.len() + sample.truncated_logprobs.as_ref().map_or(0, Vec::len);
            4 * words as u64 + sample.loss_mask.len() as u64
        };
        self.samples.iter().map(sample).sum()
    }

    fn rank(&self, order: Order) -> u64 {
        order.rank(self.oldest())
    }

    fn leave(&mut self) -> Option<Stamp> {
        let at = self.run().now();
        self.dequeued = Some(at);
        self.lease.arrive(Stage::Dequeued);
        let admitted = self.admitted.and_then(|stamp| stamp.moment.event());
        admitted.map(|admitted| Stamp { moment: Moment::Dequeued { admitted }, at })
    }
}
