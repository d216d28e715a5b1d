//! The values of a snapshot under the names of the facade, for other exporters.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::instrument::seconds;
use crate::{GapHistograms, Histogram, Metric, Metrics, names};

/// One value of a snapshot with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<'a> {
    /// The metric.
    pub metric: &'static Metric,
    /// The value of the label, if the metric has one.
    pub label: Option<String>,
    /// The value.
    pub value: MetricValue<'a>,
}

/// The value of a metric.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum MetricValue<'a> {
    /// A counter.
    Counter(u64),
    /// A gauge.
    Gauge(f64),
    /// A distribution.
    Histogram {
        /// The histogram in whole numbers: nanoseconds if the metric is in seconds.
        histogram: &'a Histogram,
        /// The factor that converts bounds, sum, mean and largest value to the metric's unit.
        scale: f64,
    },
}

impl MetricValue<'_> {
    /// The mean and the largest value of a histogram in the metric's unit; `None` if it is empty.
    pub fn mean_and_max(&self) -> Option<(f64, f64)> {
        let Self::Histogram { histogram, scale } = self else { return None };
        Some((histogram.mean()? * scale, histogram.max()? as f64 * scale))
    }
}

impl Metrics {
    /// All known values with name and label: counters, then gauges, then histograms.
    pub fn readings(&self) -> Vec<Reading<'_>> {
        let mut readings = Vec::with_capacity(64);
        self.counts(&mut readings);
        self.levels(&mut readings);
        self.spreads(&mut readings);
        readings
    }

    /// The values that the learner measured in the last training step.
    pub fn learned(&self) -> Vec<Reading<'_>> {
        let of_learner = [names::LOSS, names::ESS, names::LEARNER];
        let mut readings = self.readings();
        readings.retain(|reading| of_learner.contains(&reading.metric));
        readings
    }

    fn counts(&self, into: &mut Vec<Reading<'_>>) {
        let counters = &self.counters;
        let nanoseconds = |time: Option<std::time::Duration>| time.map(|time| time.as_nanos() as u64);
        let counts = [
            (names::LEASED, Some(counters.leased)),
            (names::REISSUED, Some(counters.reissued)),
            (names::COMPLETED, Some(counters.completed)),
            (names::ADMITTED, Some(counters.admitted)),
            (names::CONSUMED, Some(counters.consumed)),
            (names::EXHAUSTED, Some(counters.exhausted)),
            (names::TOKENS_GENERATED, Some(counters.generated_tokens)),
            (names::TOKENS_CONSUMED, Some(counters.consumed_tokens)),
            (names::BATCHES, Some(counters.batches)),
            (names::PUBLICATIONS, Some(counters.publications)),
            (names::QUEUE_EMPTY, nanoseconds(counters.queue_empty)),
            (names::QUEUE_FULL, nanoseconds(counters.queue_full)),
            (names::BLOCKED, nanoseconds(counters.producer_blocked)),
        ];
        for (metric, value) in counts {
            into.extend(value.map(|value| Reading { metric, label: None, value: MetricValue::Counter(value) }));
        }
        labelled(into, names::EXCLUDED, &counters.excluded);
        labelled(into, names::FILTERED, &counters.filtered);
        labelled(into, names::RETRIES, &counters.retried);
        labelled(into, names::TOKENS_WASTED, &counters.wasted_tokens);
    }

    fn levels(&self, into: &mut Vec<Reading<'_>>) {
        let gauges = &self.gauges;
        let max = |histogram: &Histogram| histogram.max().map(|max| max as f64);
        let levels = [
            (names::VERSION, gauges.version.map(|version| version.0 as f64)),
            (names::STEP, Some(gauges.step.0 as f64)),
            (names::UPDATES, Some(gauges.updates as f64)),
            (names::IN_FLIGHT, Some(gauges.in_flight as f64)),
            (names::WAITING, Some(gauges.waiting as f64)),
            (names::QUEUE_SIZE, gauges.queue.map(|groups| groups as f64)),
            (names::QUEUE_CAPACITY, gauges.queue_capacity.map(|groups| groups as f64)),
            (names::TAKEN, Some(gauges.taken as f64)),
            (names::BUFFERED_GAP_MEAN, gauges.buffered_gap.mean()),
            (names::BUFFERED_GAP_MAX, max(&gauges.buffered_gap)),
            (names::BUFFERED_LAG_MEAN, gauges.buffered_step_lag.mean()),
            (names::BUFFERED_LAG_MAX, max(&gauges.buffered_step_lag)),
            (names::LOSS, gauges.loss),
            (names::ESS, gauges.effective_sample_size),
        ];
        for (metric, value) in levels {
            into.extend(value.map(|value| Reading { metric, label: None, value: MetricValue::Gauge(value) }));
        }
        into.extend(gauges.learner.iter().map(|(name, &value)| Reading {
            metric: names::LEARNER,
            label: Some(name.clone()),
            value: MetricValue::Gauge(value),
        }));
    }

    fn spreads<'a>(&'a self, into: &mut Vec<Reading<'a>>) {
        let histograms = &self.histograms;
        let mut gaps = |series: &str, gaps: &'a GapHistograms| {
            let parts = [
                (names::GAP, &gaps.gap),
                (names::GAP_GENERATION, &gaps.generation),
                (names::GAP_QUEUE, &gaps.queue),
                (names::STEP_LAG, &gaps.step_lag),
            ];
            into.extend(parts.map(|(metric, histogram)| {
                let value = MetricValue::Histogram { histogram, scale: 1.0 };
                Reading { metric, label: Some(series.to_owned()), value }
            }));
        };
        gaps("consumed", &histograms.consumed);
        gaps("excluded", &histograms.excluded);
        let durations = [
            (names::LEARNER_WAIT, &histograms.learner_wait),
            (names::TRAINING, &histograms.training),
            (names::PAUSED, &histograms.paused),
        ];
        for (metric, histogram) in durations {
            into.push(Reading { metric, label: None, value: MetricValue::Histogram { histogram, scale: seconds(1) } });
        }
    }
}

fn labelled<K: Display>(into: &mut Vec<Reading<'_>>, metric: &'static Metric, counts: &BTreeMap<K, u64>) {
    into.extend(counts.iter().map(|(label, &value)| Reading {
        metric,
        label: Some(label.to_string()),
        value: MetricValue::Counter(value),
    }));
}
