//! Histograms with fixed buckets, which use the same memory for a run of any length.

/// The inclusive upper bounds of the buckets of gaps and lags: every whole number up to 16, then powers of two.
pub const COUNT_BOUNDS: [u64; 29] = {
    let mut bounds = [0; 29];
    let mut index = 0;
    while index < 29 {
        bounds[index] = if index <= 16 { index as u64 } else { 16 << (index - 16) };
        index += 1;
    }
    bounds
};

/// The inclusive upper bounds of the buckets of durations, in nanoseconds: 1, 2 and 5 of every decade from a microsecond
/// to 10000 seconds.
pub const NANOSECOND_BOUNDS: [u64; 31] = {
    let mut bounds = [0; 31];
    let mut index = 0;
    while index < 31 {
        bounds[index] = [1, 2, 5][index % 3] * 1000 * 10_u64.pow(index as u32 / 3);
        index += 1;
    }
    bounds
};

/// Whole numbers, counted in buckets. The count, the sum and the largest value are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One bucket more than there are bounds: the last bucket is for values above all bounds.
    counts: Vec<u64>,
    sum: u64,
    max: Option<u64>,
    unknown: u64,
}

impl Histogram {
    /// Creates an empty histogram for gaps and lags, with [`COUNT_BOUNDS`].
    pub fn of_counts() -> Self {
        Self::new(&COUNT_BOUNDS)
    }

    /// Creates an empty histogram for durations in nanoseconds, with [`NANOSECOND_BOUNDS`].
    pub fn of_durations() -> Self {
        Self::new(&NANOSECOND_BOUNDS)
    }

    fn new(bounds: &'static [u64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0, max: None, unknown: 0 }
    }

    /// Adds a value `times` times. `None` counts as unknown and is in no bucket.
    pub(crate) fn add(&mut self, value: Option<u64>, times: u64) {
        let Some(value) = value else {
            self.unknown += times;
            return;
        };
        if times > 0 {
            self.counts[self.bounds.partition_point(|&bound| bound < value)] += times;
            self.sum = self.sum.saturating_add(value.saturating_mul(times));
            self.max = self.max.max(Some(value));
        }
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of the values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The mean; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// The largest value; `None` without values.
    pub fn max(&self) -> Option<u64> {
        self.max
    }

    /// The number of groups without a value because a version is unknown. They are in no bucket.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// The buckets: the inclusive upper bound (`None`: above all bounds) and the number of values. Not cumulative.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds.zip(self.counts.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_those_documented() {
        assert_eq!(COUNT_BOUNDS[..3], [0, 1, 2]);
        assert_eq!(COUNT_BOUNDS[15..19], [15, 16, 32, 64]);
        assert_eq!(COUNT_BOUNDS[28], 1 << 16);
        assert_eq!(NANOSECOND_BOUNDS[..4], [1_000, 2_000, 5_000, 10_000]);
        assert_eq!(NANOSECOND_BOUNDS[30], 10_000 * 1_000_000_000);
        for bounds in [COUNT_BOUNDS.as_slice(), &NANOSECOND_BOUNDS] {
            assert!(bounds.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn bounds_are_inclusive_and_totals_exact() {
        let mut gaps = Histogram::of_counts();
        assert_eq!(
            (gaps.mean(), gaps.max(), gaps.count()),
            (None, None, 0),
            "an empty histogram has no mean, not a mean of 0"
        );
        for value in [Some(0), Some(16), Some(17), Some(32), Some(33), Some(1 << 40), None] {
            gaps.add(value, 1);
        }
        gaps.add(Some(2), 3);
        gaps.add(Some(u64::MAX), 0);
        let filled: Vec<_> = gaps.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(Some(0), 1), (Some(2), 3), (Some(16), 1), (Some(32), 2), (Some(64), 1), (None, 1)]);
        let sum = 16 + 17 + 32 + 33 + (1 << 40) + 6;
        assert_eq!((gaps.count(), gaps.sum(), gaps.max(), gaps.unknown()), (9, sum, Some(1 << 40), 1));
        assert_eq!(gaps.mean(), Some(sum as f64 / 9.0));
    }
}
