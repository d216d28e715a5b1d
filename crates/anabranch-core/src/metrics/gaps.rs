//! How stale groups are: the clocks that they are measured against, and the gaps of those that left.

use std::collections::BTreeMap;

use super::instrument::{Facade, Spread};
use super::{GapHistograms, names};
use crate::{OldestVersion, TrainingStep, Version};

/// The two clocks, as far as the events tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Now {
    pub(crate) version: Option<Version>,
    pub(crate) step: TrainingStep,
    pub(crate) updates: u64,
    pub(crate) steps_of: BTreeMap<Version, TrainingStep>,
}

impl Now {
    pub(crate) fn gap(&self, oldest: OldestVersion) -> Option<u64> {
        if let OldestVersion::Known(oldest) = oldest { Some(self.version?.since(oldest)) } else { None }
    }

    pub(crate) fn step_lag(&self, oldest: OldestVersion) -> Option<u64> {
        if let OldestVersion::Known(oldest) = oldest {
            Some(self.step.since(*self.steps_of.get(&oldest)?))
        } else {
            None
        }
    }
}

/// The gaps of the groups that left in one way.
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

    /// A group leaves with a gap, of which it had `completed` when it was completed.
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
