//! The metrics of a run: a snapshot with counters, gauges and histograms, and the same numbers for the `metrics` facade
//! and for TensorBoard.
//!
//! A run passes every event to a [`Meter`] when the event gets its place in the log, and each change updates the
//! recorder. Facts that are not in the events (where groups are now, how long the buffer was empty) are measured by a
//! [`PlaceMeter`] as groups move from one stage to the next.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_core::{TrainingStep, Version};

/// The name of the learner's metric for the effective sample size.
const ESS: &str = "ess";

/// The largest number of the learner's own metrics; further names are left out.
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

/// A snapshot of the metrics of a run: see `Run::metrics`.
///
/// Unknown values are absent, not 0.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Numbers that only grow.
    pub counters: Counters,
    /// The current values.
    pub gauges: Gauges,
    /// Distributions of values.
    pub histograms: Histograms,
}

/// Counts over the whole life of the run, except for those that are marked as counts of the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Leases issued, without re-issues.
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
    /// Tokens generated in consumed groups.
    pub consumed_tokens: u64,
    /// Tokens generated in excluded groups, by reason.
    pub wasted_tokens: BTreeMap<&'static str, u64>,
    /// Batches taken.
    pub batches: u64,
    /// Publications, including the initial installation.
    pub publications: u64,
    /// Time in this session in which the buffer held no group; absent without a buffer.
    pub queue_empty: Option<Duration>,
    /// Time in this session in which the buffer was full, or (with a capacity in bytes) a group waited for room.
    pub queue_full: Option<Duration>,
    /// Time in this session in which at least one completed group waited for room.
    pub producer_blocked: Option<Duration>,
}

/// The current values.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Gauges {
    /// The installed version; absent before the initial installation.
    pub version: Option<Version>,
    /// The completed training steps, from the last record. After a restart this is the number in the log, until the
    /// first step is trained again from the checkpoint.
    pub step: TrainingStep,
    /// Optimizer updates made.
    pub updates: u64,
    /// Groups that are being generated, scored or logged: between their lease and the buffer (or batch).
    pub in_flight: usize,
    /// Completed groups that wait for room in the buffer.
    pub waiting: usize,
    /// Groups in the buffer; absent without one.
    pub queue: Option<usize>,
    /// Groups that the buffer may hold; absent without one.
    pub queue_capacity: Option<usize>,
    /// Groups that left the buffer but are not consumed yet.
    pub taken: usize,
    /// Version gaps of the groups in the buffer, against the installed version.
    pub buffered_gap: Histogram,
    /// Step lags of the groups in the buffer, against the completed training steps.
    pub buffered_step_lag: Histogram,
    /// The loss of the last training step.
    pub loss: Option<f64>,
    /// Effective sample size of the importance weights of the last training step, as a share of its tokens; absent if
    /// the learner does not report it.
    pub effective_sample_size: Option<f64>,
    /// The learner's other metrics of the last training step, by the learner's own names (the first 64).
    pub learner: BTreeMap<String, f64>,
}

impl Gauges {
    /// Sets the learner's metrics of a training step.
    pub fn set_learned(&mut self, loss: f64, metrics: &BTreeMap<String, f64>) {
        self.loss = Some(loss);
        self.effective_sample_size = metrics.get(ESS).copied();
        self.learner = metrics.iter().take(LEARNER_METRICS).map(|(name, &value)| (name.clone(), value)).collect();
    }
}

/// Distributions over the whole life of the run. Consumed and excluded groups are separate; [`Gauges::buffered_gap`]
/// has the groups in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Histograms {
    /// Gaps of consumed groups, when their batch was taken.
    pub consumed: GapHistograms,
    /// Gaps of excluded groups, when they were excluded, without groups that have no generated token.
    pub excluded: GapHistograms,
    /// How long the idle learner waited for each batch, in nanoseconds.
    pub learner_wait: Histogram,
    /// How long each training step took, from its batch to its record, in nanoseconds.
    pub training: Histogram,
    /// How long generation paused for each publication, in nanoseconds.
    pub paused: Histogram,
}

/// How stale groups were when they were settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GapHistograms {
    /// Version gaps.
    pub gap: Histogram,
    /// The part of each gap that arose before the group was completed: the version installed at that moment − oldest
    /// version.
    pub generation: Histogram,
    /// The part of each gap that arose afterwards, in the queue and in the batch being assembled. Both parts add up to
    /// the gap.
    pub queue: Histogram,
    /// Step lags.
    pub step_lag: Histogram,
}

impl Default for Histogram {
    /// Creates a histogram for gaps and lags.
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
