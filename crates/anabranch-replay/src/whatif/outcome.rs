//! What a schedule came to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Settings;
use crate::series::{Durations, Series};

/// Groups and the tokens generated for them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Groups.
    pub groups: u64,
    /// Generated tokens of them.
    pub tokens: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, tokens: u64) {
        self.groups += 1;
        self.tokens += tokens;
    }

    /// Generated tokens of a group; absent where there is none.
    pub fn mean_tokens(&self) -> Option<f64> {
        (self.groups > 0).then(|| self.tokens as f64 / self.groups as f64)
    }
}

/// A part of a count.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The part.
    pub part: u64,
    /// All.
    pub of: u64,
}

impl Share {
    pub(crate) fn add(&mut self, part: bool, amount: u64) {
        self.of += amount;
        self.part += u64::from(part) * amount;
    }

    /// The part as a number from 0 to 1; 0 of nothing.
    pub fn ratio(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.part as f64 / self.of as f64 }
    }
}

/// What rests on durations drawn from the recorded ones, because the recorded run never did that work.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Modelled {
    /// Of the groups whose generation ended.
    pub groups: Share,
    /// Of the tokens generated for them.
    pub tokens: Share,
    /// Of the training steps.
    pub steps: Share,
    /// Of the publications after steps.
    pub publications: Share,
}

/// Slot time in which nothing was generated.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// Time in which generation stood still for publications, in nanoseconds.
    pub paused_ns: u64,
    /// Time that slots lost to publications while they held a sample, summed over slots, in nanoseconds.
    pub publication_slot_ns: u64,
    /// Time that slots were left free because completed groups waited for room, summed over slots, in nanoseconds.
    pub full_buffer_slot_ns: u64,
    /// Slots times wall time, in nanoseconds.
    pub slot_ns: u64,
}

impl Stall {
    /// The part of all slot time that was lost, from 0 to 1.
    pub fn ratio(&self) -> f64 {
        let lost = self.publication_slot_ns + self.full_buffer_slot_ns;
        if self.slot_ns == 0 { 0.0 } else { lost as f64 / self.slot_ns as f64 }
    }
}

/// Whether exclusion favours short groups: generated tokens of a group, where there are any.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct LengthBias {
    /// Mean over consumed groups.
    pub consumed: Option<f64>,
    /// Mean over excluded groups.
    pub excluded: Option<f64>,
}

impl LengthBias {
    /// Mean of what was excluded over mean of what was consumed: above 1, what was excluded was longer.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.excluded? / self.consumed.filter(|consumed| *consumed > 0.0)?)
    }
}

/// Little's law, which ties the age of what is trained on to how much of it there is. Means over the time from the first
/// lease to the last batch.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Little {
    /// Mean groups from their lease to the buffer.
    pub in_flight: f64,
    /// Mean groups in the buffer or in a batch that is being assembled.
    pub buffered: f64,
    /// (in flight + buffered) / batch + (update interval − 1) / 2: the mean step lag of consumed groups, in a steady
    /// state without exclusions.
    pub step_lag: f64,
}

/// What a schedule came to under some settings.
///
/// It cannot know that other weights would have written other text, nor that an engine whose speed depends on its load
/// would have run at another speed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The settings.
    pub settings: Settings,
    /// The seed of durations that the recorded run does not tell.
    pub seed: u64,
    /// Training steps made.
    pub steps: u64,
    /// Publications after steps.
    pub publications: u64,
    /// What was trained on.
    pub consumed: Amount,
    /// What was excluded, by the reason's name.
    pub wasted: BTreeMap<&'static str, Amount>,
    /// Groups leased and neither consumed nor excluded at the end; tokens of those completed.
    pub left: Amount,
    /// Leases beyond the first of a prompt.
    pub retries: u64,
    /// Version gap of consumed groups.
    pub gap: Series,
    /// Version gap of stale groups when they were excluded.
    pub stale_gap: Series,
    /// Step lag of consumed groups.
    pub step_lag: Series,
    /// How long the learner waited for each batch, once free.
    pub learner_wait: Durations,
    /// Where generation stood still.
    pub stall: Stall,
    /// From the opening of the run to its end, in nanoseconds.
    pub wall_ns: u64,
    /// Whether exclusion favours short groups.
    pub length: LengthBias,
    /// Little's law; absent where no batch was taken.
    pub little: Option<Little>,
    /// How much of this rests on durations that were not recorded.
    pub modelled: Modelled,
}

impl Outcome {
    pub(crate) fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            seed,
            steps: 0,
            publications: 0,
            consumed: Amount::default(),
            wasted: BTreeMap::new(),
            left: Amount::default(),
            retries: 0,
            gap: Series::default(),
            stale_gap: Series::default(),
            step_lag: Series::default(),
            learner_wait: Durations::default(),
            stall: Stall::default(),
            wall_ns: 0,
            length: LengthBias::default(),
            little: None,
            modelled: Modelled::default(),
        }
    }

    /// Everything excluded.
    pub fn wasted_total(&self) -> Amount {
        self.wasted.values().fold(Amount::default(), |sum, amount| Amount {
            groups: sum.groups + amount.groups,
            tokens: sum.tokens + amount.tokens,
        })
    }
}
