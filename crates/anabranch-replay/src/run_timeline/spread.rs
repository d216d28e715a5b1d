//! A summary of a measure over a slice.

use serde::Serialize;

/// A summary of the values of a measure: their number, mean, minimum and maximum.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Spread {
    /// How many finite values there are.
    pub count: u64,
    /// The sum of the finite values.
    pub sum: f64,
    /// The smallest finite value; `None` if there are no values.
    pub min: Option<f64>,
    /// The largest finite value; `None` if there are no values.
    pub max: Option<f64>,
    /// How many more values were infinite or not a number.
    pub not_finite: u64,
}

impl Spread {
    pub(super) fn add(&mut self, value: f64) {
        if !value.is_finite() {
            self.not_finite += 1;
            return;
        }
        self.merge(Self { count: 1, sum: value, min: Some(value), max: Some(value), not_finite: 0 });
    }

    pub(super) fn merge(&mut self, other: Self) {
        let both = |a: Option<f64>, b: Option<f64>, of: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(of(a, b)),
            (a, b) => a.or(b),
        };
        self.count += other.count;
        self.sum += other.sum;
        self.min = both(self.min, other.min, f64::min);
        self.max = both(self.max, other.max, f64::max);
        self.not_finite += other.not_finite;
    }

    /// Returns the mean of the finite values, or `None` if there are no values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_finite_are_counted_apart() {
        let mut spread = Spread::default();
        assert_eq!((spread.mean(), spread.min), (None, None));
        for value in [2.0, f64::NAN, -4.0, f64::INFINITY, 8.0] {
            spread.add(value);
        }
        assert_eq!((spread.mean(), spread.min, spread.max), (Some(2.0), Some(-4.0), Some(8.0)));
        assert_eq!((spread.count, spread.not_finite), (3, 2));
    }
}
