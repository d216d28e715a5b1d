//! Series of counts and of times, as audits sum them up.

use std::collections::BTreeMap;

use serde::Serialize;

/// A series of whole numbers: how many, mean, largest, and how often each value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Series {
    /// How often each value.
    pub histogram: BTreeMap<u64, u64>,
    /// How many had no value, because a version is unknown.
    pub unknown: u64,
}

impl Series {
    pub(crate) fn add(&mut self, value: Option<u64>) {
        match value {
            Some(value) => *self.histogram.entry(value).or_default() += 1,
            None => self.unknown += 1,
        }
    }

    /// Adds what `other` has.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (value, count) in &other.histogram {
            *self.histogram.entry(*value).or_default() += count;
        }
        self.unknown += other.unknown;
    }

    /// How many had a value.
    pub fn count(&self) -> u64 {
        self.histogram.values().sum()
    }

    /// Sum of the values.
    pub fn sum(&self) -> u64 {
        self.histogram.iter().map(|(value, count)| value * count).sum()
    }

    /// Their mean; absent where there are none.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum() as f64 / count as f64)
    }

    /// The largest; absent where there are none.
    pub fn max(&self) -> Option<u64> {
        self.histogram.keys().next_back().copied()
    }
}

/// A series of durations in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Durations {
    /// How many.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub total_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl Durations {
    pub(crate) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds what `other` has.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Their mean, in nanoseconds; absent where there are none.
    pub fn mean_ns(&self) -> Option<u64> {
        self.total_ns.checked_div(self.count)
    }
}

/// A measure that is to change over a run: its mean over the first tenth and over the last.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Mean over the first tenth.
    pub first: f64,
    /// Mean over the last tenth.
    pub last: f64,
    /// How many values a tenth has: at least 1.
    pub of: u64,
}

impl Change {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let of = (values.len() / 10).max(1);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (first, last) = (values.get(..of)?, values.get(values.len() - of..)?);
        Some(Self { first: mean(first), last: mean(last), of: of as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_sums_up_what_it_was_given() {
        let mut series = Series::default();
        assert_eq!((series.mean(), series.max()), (None, None));
        for value in [Some(0), Some(3), Some(0), None, Some(1)] {
            series.add(value);
        }
        assert_eq!((series.count(), series.unknown, series.mean(), series.max()), (4, 1, Some(1.0), Some(3)));
        assert_eq!(series.histogram, BTreeMap::from([(0, 2), (1, 1), (3, 1)]));
    }

    #[test]
    fn a_change_compares_tenths() {
        assert_eq!(Change::of(&[]), None);
        assert_eq!(Change::of(&[2.0]), Some(Change { first: 2.0, last: 2.0, of: 1 }));
        let values: Vec<f64> = (0..20).map(f64::from).collect();
        assert_eq!(Change::of(&values), Some(Change { first: 0.5, last: 18.5, of: 2 }));
    }
}
