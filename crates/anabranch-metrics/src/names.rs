//! The names of all metrics, in one place. `docs/metrics.md` prints this list; a test compares the two.

/// The kind of a metric.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// The current value.
    Gauge,
    /// A distribution of values.
    Histogram,
}

impl MetricKind {
    /// The name of the kind, as in Prometheus.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The period that the value of a metric covers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MetricSpan {
    /// The whole life of the run: a resumed run continues from the end of the log.
    Run,
    /// This session, because the log does not have the value.
    Session,
    /// This moment.
    Now,
}

impl MetricSpan {
    /// The name of the period.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Session => "session",
            Self::Now => "now",
        }
    }
}

/// The description of one metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name at the `metrics` facade.
    pub name: &'static str,
    /// The kind.
    pub kind: MetricKind,
    /// The unit.
    pub unit: &'static str,
    /// The label besides `run`, if there is one.
    pub label: Option<&'static str>,
    /// The period that the value covers.
    pub span: MetricSpan,
    /// The meaning.
    pub meaning: &'static str,
}

impl Metric {
    const fn new(
        kind: MetricKind,
        span: MetricSpan,
        name: &'static str,
        unit: &'static str,
        label: Option<&'static str>,
        meaning: &'static str,
    ) -> Self {
        Self { name, kind, unit, label, span, meaning }
    }
}

/// Declares the metrics and their list.
macro_rules! metrics {
    ($($constant:ident: $kind:ident $span:ident $name:literal $unit:literal $label:expr, $meaning:literal;)*) => {
        $(pub(crate) const $constant: &Metric =
            &Metric::new(MetricKind::$kind, MetricSpan::$span, concat!("anabranch_", $name), $unit, $label, $meaning);)*

        /// All metrics, in the order of `docs/metrics.md`.
        pub const METRICS: &[&Metric] = &[$($constant),*];
    };
}

metrics! {
    LEASED: Counter Run "leased_total" "groups" None,
        "leases issued, without re-issues";
    REISSUED: Counter Run "reissued_total" "groups" None,
        "leases issued again after a restart";
    COMPLETED: Counter Run "completed_total" "groups" None,
        "groups in which every sample has ended and has a reward or a reason for having none";
    ADMITTED: Counter Run "admitted_total" "groups" None,
        "groups admitted to the buffer";
    CONSUMED: Counter Run "consumed_total" "groups" None,
        "groups consumed by batches";
    EXCLUDED: Counter Run "excluded_total" "groups" Some("reason"),
        "groups thrown away: `aborted`, `filtered`, `malformed`, `future_version`, `unknown_version`, `stale`";
    FILTERED: Counter Run "filtered_total" "groups" Some("filter"),
        "groups that a user filter rejected, by the filter's name; `anabranch_excluded_total` counts them too";
    RETRIES: Counter Run "retries_total" "leases" Some("attempt"),
        "prompts queued again after an exclusion, by the attempt they are queued for (1 is the second lease of a \
         prompt; `16` counts all from 16 on)";
    EXHAUSTED: Counter Run "exhausted_total" "prompts" None,
        "prompts whose last attempt was excluded";
    TOKENS_GENERATED: Counter Run "tokens_generated_total" "tokens" None,
        "tokens that the policy generated in completed groups";
    TOKENS_CONSUMED: Counter Run "tokens_consumed_total" "tokens" None,
        "tokens that the policy generated in consumed groups";
    TOKENS_WASTED: Counter Run "tokens_wasted_total" "tokens" Some("reason"),
        "tokens that the policy generated in excluded groups, by the reason of the exclusion";
    BATCHES: Counter Run "batches_total" "batches" None,
        "batches taken for training";
    PUBLICATIONS: Counter Run "publications_total" "publications" None,
        "installations of new weights on the engines, including the initial one";
    QUEUE_EMPTY: Counter Session "queue_empty_nanoseconds_total" "nanoseconds" None,
        "time in which the buffer held no group, from the opening of the session to its close";
    QUEUE_FULL: Counter Session "queue_full_nanoseconds_total" "nanoseconds" None,
        "time in which the buffer was full, or (with a capacity in bytes) a group waited for room";
    BLOCKED: Counter Session "producer_blocked_nanoseconds_total" "nanoseconds" None,
        "time in which at least one completed group waited for room in the buffer";
    VERSION: Gauge Now "version" "version" None,
        "the version installed on the engines";
    STEP: Gauge Now "training_step" "steps" None,
        "training steps completed";
    UPDATES: Gauge Now "optimizer_updates" "updates" None,
        "optimizer updates made";
    IN_FLIGHT: Gauge Now "in_flight" "groups" None,
        "groups that are being generated, scored or logged: between the lease and the buffer (or batch)";
    WAITING: Gauge Now "waiting_for_room" "groups" None,
        "completed groups that wait for room in the buffer";
    QUEUE_SIZE: Gauge Now "queue_size" "groups" None,
        "groups in the buffer";
    QUEUE_CAPACITY: Gauge Now "queue_capacity" "groups" None,
        "groups that the buffer may hold";
    TAKEN: Gauge Now "taken" "groups" None,
        "groups that left the buffer but are not consumed yet, most of them in the batch being assembled";
    BUFFERED_GAP_MEAN: Gauge Now "buffered_gap_mean" "versions" None,
        "mean version gap of the groups in the buffer, against the installed version";
    BUFFERED_GAP_MAX: Gauge Now "buffered_gap_max" "versions" None,
        "largest version gap of the groups in the buffer";
    BUFFERED_LAG_MEAN: Gauge Now "buffered_step_lag_mean" "steps" None,
        "mean step lag of the groups in the buffer, against the completed training steps";
    BUFFERED_LAG_MAX: Gauge Now "buffered_step_lag_max" "steps" None,
        "largest step lag of the groups in the buffer";
    LOSS: Gauge Now "loss" "" None,
        "the loss of the last training step";
    ESS: Gauge Now "effective_sample_size" "share of tokens" None,
        "effective sample size of the importance weights of the last training step, if the learner reports it (`ess`): \
         (Σw)² / (n·Σw²), from 1/n to 1";
    LEARNER: Gauge Now "learner" "" Some("metric"),
        "the learner's other metrics of the last training step, by the learner's own names (the first 64)";
    GAP: Histogram Run "gap" "versions" Some("series"),
        "version gap of groups when they were settled: `consumed` by a batch, or `excluded`";
    GAP_GENERATION: Histogram Run "gap_generation" "versions" Some("series"),
        "the part of the gap that arose before the group was completed";
    GAP_QUEUE: Histogram Run "gap_queue" "versions" Some("series"),
        "the part of the gap that arose afterwards, in the queue and in the batch being assembled; both parts add up \
         to the gap";
    STEP_LAG: Histogram Run "step_lag" "steps" Some("series"),
        "completed training steps when groups were settled, minus the training step of the weights of their oldest \
         span";
    LEARNER_WAIT: Histogram Run "learner_wait_seconds" "seconds" None,
        "how long the idle learner waited for each batch";
    TRAINING: Histogram Run "training_seconds" "seconds" None,
        "how long each training step took, from its batch to its record";
    PAUSED: Histogram Run "generation_paused_seconds" "seconds" None,
        "how long generation paused for each publication";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_their_kind() {
        for (index, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..index].iter().all(|other| other.name != metric.name), "{}", metric.name);
            assert_eq!(metric.kind == MetricKind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert_eq!(metric.kind == MetricKind::Gauge, metric.span == MetricSpan::Now, "{}", metric.name);
        }
    }
}
