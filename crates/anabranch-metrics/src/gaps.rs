//! The gaps of settled groups.

use crate::instrument::{Facade, Spread};
use crate::{GapHistograms, names};

/// The gaps of the groups that were settled in one way.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    gap: Spread,
    generation: Spread,
    queue: Spread,
    step_lag: Spread,
}

impl Gaps {
    pub(super) fn new(series: &'static str) -> Self {
        Self {
            gap: Spread::of_counts(names::GAP, series),
            generation: Spread::of_counts(names::GAP_GENERATION, series),
            queue: Spread::of_counts(names::GAP_QUEUE, series),
            step_lag: Spread::of_counts(names::STEP_LAG, series),
        }
    }

    pub(super) fn attach(&mut self, facade: &Facade) {
        for spread in [&mut self.gap, &mut self.generation, &mut self.queue, &mut self.step_lag] {
            spread.attach(facade);
        }
    }

    /// Adds a group that was settled with a gap; its gap was `completed` when the group was completed.
    pub(super) fn add(&mut self, gap: Option<u64>, completed: Option<u64>, step_lag: Option<u64>) {
        self.gap.add(gap);
        self.generation.add(completed);
        self.queue.add(gap.zip(completed).map(|(gap, completed)| gap.saturating_sub(completed)));
        self.step_lag.add(step_lag);
    }

    pub(super) fn get(&self) -> GapHistograms {
        GapHistograms {
            gap: self.gap.get(),
            generation: self.generation.get(),
            queue: self.queue.get(),
            step_lag: self.step_lag.get(),
        }
    }
}
