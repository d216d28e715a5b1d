//! The outcome of a simulated schedule: its summary in numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Settings;
use crate::series::{Durations, Series};

/// A number of groups and the tokens generated for them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// How many groups there are.
    pub groups: u64,
    /// How many tokens were generated for them.
    pub tokens: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, tokens: u64) {
        self.groups += 1;
        self.tokens += tokens;
    }

    /// Returns the mean number of generated tokens in a group, or `None` if there are no groups.
    pub fn mean_tokens(&self) -> Option<f64> {
        (self.groups > 0).then(|| self.tokens as f64 / self.groups as f64)
    }
}

/// A part of a count.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The part.
    pub part: u64,
    /// The whole.
    pub of: u64,
}

impl Share {
    pub(crate) fn add(&mut self, part: bool, amount: u64) {
        self.of += amount;
        self.part += u64::from(part) * amount;
    }

    /// Returns the part as a number from 0 to 1, or 0 if the whole is 0.
    pub fn ratio(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.part as f64 / self.of as f64 }
    }
}

/// How much of an outcome rests on drawn durations, because the recorded run never did that work.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Modelled {
    /// The share of the groups whose generation ended.
    pub groups: Share,
    /// The share of the tokens generated for those groups.
    pub tokens: Share,
    /// The share of the training steps.
    pub steps: Share,
    /// The share of the publications after steps.
    pub publications: Share,
}

/// The slot time in which nothing was generated.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stall {
    /// How long generation stood still for publications, in nanoseconds.
    pub paused_ns: u64,
    /// How long slots with a sample stood still for publications, summed over slots, in nanoseconds.
    pub publication_slot_ns: u64,
    /// How long slots were free because completed groups waited for room, summed over slots, in nanoseconds.
    pub full_buffer_slot_ns: u64,
    /// The number of slots times the wall time, in nanoseconds.
    pub slot_ns: u64,
}

impl Stall {
    /// Returns the part of all slot time that was lost, from 0 to 1.
    pub fn ratio(&self) -> f64 {
        let lost = self.publication_slot_ns + self.full_buffer_slot_ns;
        if self.slot_ns == 0 { 0.0 } else { lost as f64 / self.slot_ns as f64 }
    }
}

/// Whether exclusion favours short groups: the mean numbers of generated tokens in a group.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LengthBias {
    /// The mean over consumed groups; `None` if there are none.
    pub consumed: Option<f64>,
    /// The mean over excluded groups; `None` if there are none.
    pub excluded: Option<f64>,
}

impl LengthBias {
    /// Returns the mean of excluded groups over that of consumed groups. Above 1, excluded groups were longer.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.excluded? / self.consumed.filter(|consumed| *consumed > 0.0)?)
    }
}

/// Little's law, which links the step lag of consumed groups to the number of groups in the pipeline. The numbers are
/// means over the time from the first lease to the last batch.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Little {
    /// The mean number of groups between their lease and the buffer.
    pub in_flight: f64,
    /// The mean number of groups in the buffer or in a batch that is being assembled.
    pub buffered: f64,
    /// (in flight + buffered) / batch + (update interval − 1) / 2. In a steady state without exclusions this is the
    /// mean step lag of consumed groups.
    pub step_lag: f64,
}

/// The predicted outcome of a run under some settings.
///
/// The prediction does not know that other weights write other text, or that an engine's speed can depend on its load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The settings of the prediction.
    pub settings: Settings,
    /// The seed that chooses durations for work that was not recorded.
    pub seed: u64,
    /// How many training steps are made.
    pub steps: u64,
    /// How many publications follow steps.
    pub publications: u64,
    /// The consumed groups.
    pub consumed: Amount,
    /// The excluded groups, by the name of the reason.
    pub wasted: BTreeMap<&'static str, Amount>,
    /// The groups that are leased and not settled at the end, with the tokens of the completed ones.
    pub left: Amount,
    /// How many leases are not the first of their prompt.
    pub retries: u64,
    /// The version gap of consumed groups.
    pub gap: Series,
    /// The version gap of stale groups when they are excluded.
    pub stale_gap: Series,
    /// The step lag of consumed groups.
    pub step_lag: Series,
    /// How long the learner, once free, waits for each batch.
    pub learner_wait: Durations,
    /// The slot time that is lost.
    pub stall: Stall,
    /// The time from the opening of the run to its end, in nanoseconds.
    pub wall_ns: u64,
    /// Whether exclusion favours short groups.
    pub length: LengthBias,
    /// Little's law; `None` if no batch is taken.
    pub little: Option<Little>,
    /// How much of the prediction rests on durations that were not recorded.
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

    /// Returns the excluded groups, for all reasons together.
    pub fn wasted_total(&self) -> Amount {
        self.wasted.values().fold(Amount::default(), |sum, amount| Amount {
            groups: sum.groups + amount.groups,
            tokens: sum.tokens + amount.tokens,
        })
    }
}
