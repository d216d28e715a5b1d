//! Summaries of series: counts, times, and measures that change over a run.

use std::collections::BTreeMap;

use serde::Serialize;

/// A summary of a series of whole numbers: how often each value came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Series {
    /// How often each value came.
    pub histogram: BTreeMap<u64, u64>,
    /// How many items had no value because a version is unknown.
    pub unknown: u64,
}

impl Series {
    pub(crate) fn add(&mut self, value: Option<u64>) {
        match value {
            Some(value) => *self.histogram.entry(value).or_default() += 1,
            None => self.unknown += 1,
        }
    }

    /// Adds the values of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (value, count) in &other.histogram {
            *self.histogram.entry(*value).or_default() += count;
        }
        self.unknown += other.unknown;
    }

    /// Returns how many items had a value.
    pub fn count(&self) -> u64 {
        self.histogram.values().sum()
    }

    /// Returns the sum of the values.
    pub fn sum(&self) -> u64 {
        self.histogram.iter().map(|(value, count)| value * count).sum()
    }

    /// Returns the mean of the values, or `None` if there are no values.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum() as f64 / count as f64)
    }

    /// Returns the largest value, or `None` if there are no values.
    pub fn max(&self) -> Option<u64> {
        self.histogram.keys().next_back().copied()
    }
}

/// A summary of a series of durations in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Durations {
    /// How many durations there are.
    pub count: u64,
    /// The sum of the durations, in nanoseconds.
    pub total_ns: u64,
    /// The longest duration, in nanoseconds.
    pub max_ns: u64,
}

impl Durations {
    pub(crate) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the values of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns the mean duration in nanoseconds, or `None` if there are no durations.
    pub fn mean_ns(&self) -> Option<u64> {
        self.total_ns.checked_div(self.count)
    }
}

/// How a measure changes over a run: its mean over the first tenth and over the last tenth.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// The mean over the first tenth.
    pub first: f64,
    /// The mean over the last tenth.
    pub last: f64,
    /// How many values a tenth has, at least 1. The last tenth of a series of more than 65,536 values can have a few
    /// less.
    pub of: u64,
}

/// A series that can give only the means over its first and its last tenth. It keeps sums over blocks of values. A
/// block has one value at first. Whenever there are `BLOCKS` blocks, pairs of them are merged.
#[derive(Clone, Debug)]
pub(crate) struct Tenths {
    sums: Vec<f64>,
    /// How many values a block has, and how many the last block has so far.
    block: u64,
    last: u64,
}

/// The largest number of blocks. The length of a tenth is exact to one part in 3,000.
const BLOCKS: usize = 1 << 16;

impl Default for Tenths {
    fn default() -> Self {
        Self { sums: Vec::new(), block: 1, last: 1 }
    }
}

impl Tenths {
    pub(crate) fn add(&mut self, value: f64) {
        if self.last < self.block {
            self.last += 1;
            self.sums.last_mut().into_iter().for_each(|sum| *sum += value);
            return;
        }
        if self.sums.len() == BLOCKS {
            self.sums = self.sums.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.block *= 2;
        }
        self.sums.push(value);
        self.last = 1;
    }

    /// Returns both means, or `None` if there are no values.
    pub(crate) fn change(&self) -> Option<Change> {
        let of = (self.sums.len() / 10).max(1);
        let (first, last) = (self.sums.get(..of)?, self.sums.get(self.sums.len() - of..)?);
        let mean = |sums: &[f64], of: u64| sums.iter().sum::<f64>() / of as f64;
        let whole = of as u64 * self.block;
        Some(Change { first: mean(first, whole), last: mean(last, whole - (self.block - self.last)), of: whole })
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

    fn change(values: impl Iterator<Item = f64>) -> Option<Change> {
        let mut tenths = Tenths::default();
        values.for_each(|value| tenths.add(value));
        tenths.change()
    }

    #[test]
    fn a_change_compares_tenths() {
        assert_eq!(change(std::iter::empty()), None);
        assert_eq!(change(std::iter::once(2.0)), Some(Change { first: 2.0, last: 2.0, of: 1 }));
        assert_eq!(change((0..20).map(f64::from)), Some(Change { first: 0.5, last: 18.5, of: 2 }));
    }

    #[test]
    fn a_long_series_is_told_as_well_in_the_same_room() {
        for values in [65_536, 65_537, 131_073, 1_000_000, 1_234_567] {
            let Change { first, last, of } = change((0..values).map(f64::from)).unwrap();
            let tenth = f64::from(values) / 10.0;
            assert!((of as f64 - tenth).abs() <= tenth / 3_000.0, "{of} of {values}");
            // The means of a series that rises by one show the position of its tenths.
            assert!((first - (of as f64 - 1.0) / 2.0).abs() < 1e-3, "{first} over {of} of {values}");
            let from_end = f64::from(values) - 1.0 - last;
            assert!((from_end - (of as f64 - 1.0) / 2.0).abs() <= 32.0, "{last} over {of} of {values}");
        }
        let mut tenths = Tenths::default();
        (0..1_000_000).for_each(|value| tenths.add(f64::from(value)));
        assert!(tenths.sums.len() <= BLOCKS);
    }
}
