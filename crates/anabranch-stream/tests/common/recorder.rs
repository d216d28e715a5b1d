//! A recorder of the `metrics` facade that remembers what it heard.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_metrics::MetricValue;
use anabranch_stream::Run;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use parking_lot::Mutex;

/// A metric and its labels.
type Name = (String, Vec<(String, String)>);

/// What was heard of one metric.
#[derive(Copy, Clone, Debug)]
enum Heard {
    Counter(u64),
    Gauge(f64),
    /// How many values, and their sum.
    Histogram(u64, f64),
}

/// Remembers everything; clones share it.
#[derive(Clone, Default)]
pub struct Ear(Arc<Mutex<BTreeMap<Name, Heard>>>);

struct Listener(Ear, Name);

impl Ear {
    fn listen(&self, key: &Key, first: Heard) -> Arc<Listener> {
        let labels = key.labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
        let name = (key.name().to_owned(), labels);
        self.0.lock().entry(name.clone()).or_insert(first);
        Arc::new(Listener(self.clone(), name))
    }

    /// What it heard of the counter called `name`, over all its labels.
    pub fn counter(&self, name: &str) -> u64 {
        let heard = self.0.lock();
        let counts = heard.iter().filter_map(|((of, _), heard)| match heard {
            Heard::Counter(count) if of == name => Some(count),
            _ => None,
        });
        counts.sum()
    }

    /// It heard exactly what a snapshot reads now; of what the snapshot lacks, at most that it is not known any more.
    pub fn agrees_with(&self, run: &Run) {
        let metrics = run.metrics();
        let mut heard = self.0.lock().clone();
        for reading in metrics.readings() {
            let of_run = ("run".to_owned(), run.name().to_owned());
            let label = reading.metric.label.zip(reading.label).map(|(name, value)| (name.to_owned(), value));
            let name = (reading.metric.name.to_owned(), [of_run].into_iter().chain(label).collect());
            match (heard.remove(&name), reading.value) {
                (Some(Heard::Counter(heard)), MetricValue::Counter(value)) => assert_eq!(heard, value, "{name:?}"),
                (Some(Heard::Gauge(heard)), MetricValue::Gauge(value)) => {
                    assert!((heard - value).abs() < 1e-12, "{name:?}: {heard}, not {value}");
                }
                (Some(Heard::Histogram(count, sum)), MetricValue::Histogram { histogram, scale }) => {
                    assert_eq!(count, histogram.count(), "{name:?}");
                    assert!((sum - histogram.sum() as f64 * scale).abs() < 1e-6, "{name:?}: {sum}");
                }
                other => panic!("{name:?}: {other:?}"),
            }
        }
        for (name, heard) in heard {
            match heard {
                Heard::Gauge(value) => assert!(value.is_nan(), "{name:?} is {value}, the snapshot has none"),
                Heard::Counter(0) => {}
                other => panic!("{name:?}: {other:?}, the snapshot has none"),
            }
        }
    }
}

impl Listener {
    fn hear(&self, change: impl FnOnce(&mut Heard)) {
        self.0.0.lock().entry(self.1.clone()).and_modify(change);
    }
}

impl CounterFn for Listener {
    fn increment(&self, more: u64) {
        self.hear(|heard| {
            if let Heard::Counter(value) = heard {
                *value += more;
            }
        });
    }

    fn absolute(&self, to: u64) {
        self.hear(|heard| {
            if let Heard::Counter(value) = heard {
                *value = to.max(*value);
            }
        });
    }
}

impl GaugeFn for Listener {
    fn increment(&self, more: f64) {
        self.hear(|heard| {
            if let Heard::Gauge(value) = heard {
                *value += more;
            }
        });
    }

    fn decrement(&self, less: f64) {
        self.hear(|heard| {
            if let Heard::Gauge(value) = heard {
                *value -= less;
            }
        });
    }

    fn set(&self, to: f64) {
        self.hear(|heard| {
            if let Heard::Gauge(value) = heard {
                *value = to;
            }
        });
    }
}

impl HistogramFn for Listener {
    fn record(&self, value: f64) {
        self.hear(|heard| {
            if let Heard::Histogram(count, sum) = heard {
                (*count, *sum) = (*count + 1, *sum + value);
            }
        });
    }
}

impl Recorder for Ear {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.listen(key, Heard::Counter(0)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.listen(key, Heard::Gauge(0.0)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.listen(key, Heard::Histogram(0, 0.0)))
    }
}
