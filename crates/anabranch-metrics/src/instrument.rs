//! Instruments count and update the `metrics` facade in one call, so that the snapshot and the recorder always agree.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use ::metrics as facade;

use crate::names::{METRICS, Metric, MetricKind};
use crate::{Histogram, NANOSECOND_BOUNDS};

/// The recorder of the instruments: none until a run attaches them.
#[derive(Clone, Debug, Default)]
pub struct Facade {
    run: Option<Arc<str>>,
}

const METADATA: facade::Metadata<'static> = facade::Metadata::new("anabranch", facade::Level::INFO, Some("anabranch"));

impl Facade {
    /// Registers for the run called `name`: describes all metrics to the recorder that is installed now.
    pub fn of_run(name: &str) -> Self {
        facade::with_recorder(|recorder| {
            for metric in METRICS {
                let (name, meaning) = (facade::KeyName::from_const_str(metric.name), metric.meaning.into());
                match metric.kind {
                    MetricKind::Counter => recorder.describe_counter(name, None, meaning),
                    MetricKind::Gauge => recorder.describe_gauge(name, None, meaning),
                    MetricKind::Histogram => recorder.describe_histogram(name, None, meaning),
                }
            }
        });
        Self { run: Some(name.into()) }
    }

    fn key(&self, metric: &'static Metric, value: Option<&str>) -> Option<facade::Key> {
        let run = facade::Label::new("run", self.run.clone()?);
        let label = metric.label.zip(value).map(|(label, value)| facade::Label::new(label, value.to_owned()));
        Some(facade::Key::from_parts(metric.name, [run].into_iter().chain(label).collect::<Vec<_>>()))
    }

    fn counter(&self, metric: &'static Metric, label: Option<&str>) -> facade::Counter {
        let key = self.key(metric, label);
        key.map_or_else(facade::Counter::noop, |key| {
            facade::with_recorder(|recorder| recorder.register_counter(&key, &METADATA))
        })
    }

    fn gauge(&self, metric: &'static Metric, label: Option<&str>) -> facade::Gauge {
        let key = self.key(metric, label);
        key.map_or_else(facade::Gauge::noop, |key| {
            facade::with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
        })
    }

    fn histogram(&self, metric: &'static Metric, label: Option<&str>) -> facade::Histogram {
        let key = self.key(metric, label);
        key.map_or_else(facade::Histogram::noop, |key| {
            facade::with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
        })
    }
}

/// A counter.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    metric: &'static Metric,
    value: u64,
    emitted: facade::Counter,
}

impl Count {
    pub(crate) fn new(metric: &'static Metric) -> Self {
        Self { metric, value: 0, emitted: facade::Counter::noop() }
    }

    pub(crate) fn attach(&mut self, facade: &Facade) {
        self.emitted = facade.counter(self.metric, None);
        self.emitted.absolute(self.value);
    }

    pub(crate) fn add(&mut self, more: u64) {
        self.value += more;
        self.emitted.absolute(self.value);
    }

    pub(crate) fn get(&self) -> u64 {
        self.value
    }
}

/// Counters by the value of a label. A value that never occurred is absent.
#[derive(Clone, Debug)]
pub(crate) struct Counts<K> {
    metric: &'static Metric,
    facade: Facade,
    by: BTreeMap<K, (u64, facade::Counter)>,
}

impl<K: Ord + Clone + Display> Counts<K> {
    pub(crate) fn new(metric: &'static Metric) -> Self {
        Self { metric, facade: Facade::default(), by: BTreeMap::new() }
    }

    pub(crate) fn attach(&mut self, facade: &Facade) {
        self.facade = facade.clone();
        for (key, (value, emitted)) in &mut self.by {
            *emitted = facade.counter(self.metric, Some(&key.to_string()));
            emitted.absolute(*value);
        }
    }

    pub(crate) fn add(&mut self, key: K, more: u64) {
        let Self { metric, facade, by } = self;
        let (value, emitted) =
            by.entry(key).or_insert_with_key(|key| (0, facade.counter(metric, Some(&key.to_string()))));
        *value += more;
        emitted.absolute(*value);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.by.values().map(|(value, _)| value).sum()
    }

    pub(crate) fn get(&self) -> BTreeMap<K, u64> {
        self.by.iter().map(|(key, (value, _))| (key.clone(), *value)).collect()
    }
}

/// A gauge. The recorder gets it once its value is known, and NaN if the value becomes unknown again.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    metric: &'static Metric,
    label: Option<String>,
    facade: Facade,
    value: Option<f64>,
    emitted: Option<facade::Gauge>,
}

impl Level {
    pub(crate) fn new(metric: &'static Metric) -> Self {
        Self { metric, label: None, facade: Facade::default(), value: None, emitted: None }
    }

    pub(crate) fn labelled(metric: &'static Metric, label: &str, facade: &Facade) -> Self {
        Self { label: Some(label.to_owned()), facade: facade.clone(), ..Self::new(metric) }
    }

    pub(crate) fn attach(&mut self, facade: &Facade) {
        self.facade = facade.clone();
        self.set(self.value);
    }

    pub(crate) fn set(&mut self, value: Option<f64>) {
        self.value = value;
        if value.is_some() && self.emitted.is_none() && self.facade.run.is_some() {
            self.emitted = Some(self.facade.gauge(self.metric, self.label.as_deref()));
        }
        if let Some(emitted) = &self.emitted {
            emitted.set(value.unwrap_or(f64::NAN));
        }
    }

    pub(crate) fn get(&self) -> Option<f64> {
        self.value
    }
}

/// A histogram of gaps, lags, or durations in nanoseconds. The facade gets durations in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    metric: &'static Metric,
    label: Option<&'static str>,
    histogram: Histogram,
    seconds: bool,
    emitted: facade::Histogram,
}

impl Spread {
    pub(crate) fn of_counts(metric: &'static Metric, label: &'static str) -> Self {
        let (histogram, emitted) = (Histogram::of_counts(), facade::Histogram::noop());
        Self { metric, label: Some(label), histogram, seconds: false, emitted }
    }

    pub(crate) fn of_durations(metric: &'static Metric) -> Self {
        let (histogram, emitted) = (Histogram::of_durations(), facade::Histogram::noop());
        Self { metric, label: None, histogram, seconds: true, emitted }
    }

    pub(crate) fn attach(&mut self, facade: &Facade) {
        self.emitted = facade.histogram(self.metric, self.label);
    }

    pub(crate) fn add(&mut self, value: Option<u64>) {
        self.histogram.add(value, 1);
        if let Some(value) = value {
            self.emitted.record(if self.seconds { seconds(value) } else { value as f64 });
        }
    }

    pub(crate) fn get(&self) -> Histogram {
        self.histogram.clone()
    }
}

pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The bounds of the duration histograms in seconds, for exporters that want them.
pub fn second_bounds() -> Vec<f64> {
    NANOSECOND_BOUNDS.iter().map(|&bound| seconds(bound)).collect()
}
