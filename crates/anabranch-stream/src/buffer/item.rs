//! What a buffer needs to know of a group.

use anabranch_core::{Group, Moment, Order, Sample, Stage, Stamp};

use super::queue::Item;

impl Item for Group {
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
        let at = self.context.lease.as_ref().map(|lease| lease.run().now());
        self.context.dequeued = at;
        if let Some(lease) = &mut self.context.lease {
            lease.arrive(Stage::Dequeued);
        }
        let admitted = self.context.admitted.and_then(|stamp| stamp.moment.event());
        admitted.zip(at).map(|(admitted, at)| Stamp { moment: Moment::Dequeued { admitted }, at })
    }
}
