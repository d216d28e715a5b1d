//! What a run counts and measures: a snapshot in three kinds kept apart, and the same facts at the `metrics` facade.
//!
//! A run gives every event to a [`Meter`] as the event gets its place in the log, and each count tells the recorder as it
//! changes. What no event tells (where groups are now, for how long the buffer was empty) is measured by a
//! [`PlaceMeter`] as groups move from one stage to the next.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_core::{TrainingStep, Version};

/// What the learner calls its effective sample size.
const ESS: &str = "ess";

/// The learner's own metrics beyond so many names are left out.
const LEARNER_METRICS: usize = 64;

mod gaps;
mod histogram;
mod instrument;
mod meter;
mod names;
mod places;
#[cfg(feature = "tensorboard")]
mod tensorboard;
mod values;

pub use histogram::{COUNT_BOUNDS, Histogram, NANOSECOND_BOUNDS};
pub use instrument::{Facade, second_bounds};
pub use meter::Meter;
pub use names::{METRICS, Metric, MetricKind, MetricSpan};
pub use places::{PlaceMeter, Places};
#[cfg(feature = "tensorboard")]
pub use tensorboard::{STEP_TAGS, StepTag, TensorBoard, TensorBoardError};
pub use values::{MetricValue, Reading};

/// What a run has counted and measured up to a moment: see `Run::metrics`.
///
/// What is unknown is absent, not 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// What only grows.
    pub counters: Counters,
    /// What is so now.
    pub gauges: Gauges,
    /// The values of many moments.
    pub histograms: Histograms,
}

/// Counts over the whole life of the run, unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Leases issued; a re-issue does not count again.
    pub leased: u64,
    /// Leases issued again after a restart.
    pub reissued: u64,
    /// Groups completed.
    pub completed: u64,
    /// Groups admitted to the buffer.
    pub admitted: u64,
    /// Groups consumed by batches.
    pub consumed: u64,
    /// Groups excluded, by reason.
    pub excluded: BTreeMap<&'static str, u64>,
    /// Groups excluded by user filters, by the filter's name.
    pub filtered: BTreeMap<String, u64>,
    /// Prompts queued again after an exclusion, by the attempt that they are queued for; 16 counts all from 16 on.
    pub retried: BTreeMap<u32, u64>,
    /// Prompts whose last attempt was excluded.
    pub exhausted: u64,
    /// Tokens generated in completed groups.
    pub generated_tokens: u64,
    /// Those of consumed groups.
    pub consumed_tokens: u64,
    /// Those of excluded groups, by reason.
    pub wasted_tokens: BTreeMap<&'static str, u64>,
    /// Batches taken.
    pub batches: u64,
    /// Publications, the initial installation among them.
    pub publications: u64,
    /// Time in this session in which the buffer held no group; absent without a buffer.
    pub queue_empty: Option<Duration>,
    /// Time in this session in which the buffer had no room: it held as many groups as it may, or (with a capacity in
    /// bytes) a group waited for room.
    pub queue_full: Option<Duration>,
    /// Time in this session in which at least one completed group waited for room.
    pub producer_blocked: Option<Duration>,
}

/// What is so now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// The version installed; absent before the initial installation.
    pub version: Option<Version>,
    /// Training steps completed, as recorded last: after a restart that of the log, until the first step is trained again
    /// from the checkpoint.
    pub step: TrainingStep,
    /// Optimizer updates made.
    pub updates: u64,
    /// Groups between their issue and the buffer (or batch): generated, scored, logged.
    pub in_flight: usize,
    /// Completed groups that wait for room in the buffer.
    pub waiting: usize,
    /// Groups in the buffer; absent without one.
    pub queue: Option<usize>,
    /// Groups that the buffer may hold; absent without one.
    pub queue_capacity: Option<usize>,
    /// Groups out of the buffer that no batch has consumed yet.
    pub taken: usize,
    /// Version gaps of the groups in the buffer, against the version installed.
    pub buffered_gap: Histogram,
    /// Step lags of the groups in the buffer, against the training steps completed.
    pub buffered_step_lag: Histogram,
    /// The loss of the last training step.
    pub loss: Option<f64>,
    /// Effective sample size of the importance weights of the last training step, as a share of its tokens; absent where
    /// the learner measures none.
    pub effective_sample_size: Option<f64>,
    /// Whatever the learner measured in the last training step, by its own names (the first 64).
    pub learner: BTreeMap<String, f64>,
}

impl Gauges {
    /// Sets what the learner measured in a training step.
    pub fn set_learned(&mut self, loss: f64, metrics: &BTreeMap<String, f64>) {
        self.loss = Some(loss);
        self.effective_sample_size = metrics.get(ESS).copied();
        self.learner = metrics.iter().take(LEARNER_METRICS).map(|(name, &value)| (name.clone(), value)).collect();
    }
}

/// The values of many moments, over the whole life of the run. Consumed and excluded groups are never mixed; those
/// buffered are in [`Gauges::buffered_gap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histograms {
    /// Of groups consumed, when their batch was taken.
    pub consumed: GapHistograms,
    /// Of groups excluded, when they were; groups without a generated token are in none.
    pub excluded: GapHistograms,
    /// How long the learner, once free, waited for each batch: nanoseconds.
    pub learner_wait: Histogram,
    /// How long each training step took, from its batch to its record: nanoseconds.
    pub training: Histogram,
    /// How long generation stood still for each publication: nanoseconds.
    pub paused: Histogram,
}

/// How stale groups were when they left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GapHistograms {
    /// Version gaps.
    pub gap: Histogram,
    /// The part of each that arose before the group was completed: version installed then − oldest version.
    pub generation: Histogram,
    /// The part that arose afterwards, in the queue and in the batch being assembled. The two add up to the gap.
    pub queue: Histogram,
    /// Step lags.
    pub step_lag: Histogram,
}

impl Default for Histogram {
    /// One for gaps and lags.
    fn default() -> Self {
        Self::of_counts()
    }
}

impl Default for GapHistograms {
    fn default() -> Self {
        let of_counts = Histogram::of_counts;
        Self { gap: of_counts(), generation: of_counts(), queue: of_counts(), step_lag: of_counts() }
    }
}

impl Default for Histograms {
    fn default() -> Self {
        let of_durations = Histogram::of_durations;
        Self {
            consumed: GapHistograms::default(),
            excluded: GapHistograms::default(),
            learner_wait: of_durations(),
            training: of_durations(),
            paused: of_durations(),
        }
    }
}
