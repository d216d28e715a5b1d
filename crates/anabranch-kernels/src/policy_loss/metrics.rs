//! The metrics of a pass over the tokens, as sums.

/// Rows of the partial sums: the fields of [`Metrics`] in their order.
pub(super) const SUMS: usize = 9;

/// The row that holds a largest value instead of a sum.
const DEVIATION: usize = 5;

/// Sums over the tokens that take part. Divide by `tokens` for means; [`Metrics::merge`] those of micro-batches first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Σ w · loss.
    pub loss_sum: f64,
    /// How many tokens took part.
    pub tokens: f64,
    /// How many have no gradient because the clip or the dual clip holds.
    pub clipped: f64,
    /// Σ e^d − 1 − d with d = ℓ − b: the k3 estimator (Schulman 2020) of KL(μ‖π), unbiased as the tokens were drawn
    /// from μ.
    pub kl_k3_sum: f64,
    /// Σ r.
    pub ratio_sum: f64,
    /// The largest |r − 1|; exactly 0 if every ℓ is bitwise p.
    pub max_ratio_deviation: f64,
    /// Σ e^(p−b), not truncated, whatever the correction.
    pub weight_sum: f64,
    /// Σ (e^(p−b))².
    pub weight_square_sum: f64,
    /// Σ entropy.
    pub entropy_sum: f64,
}

impl Metrics {
    /// Adds up the columns of `partial` [SUMS, units] in order.
    pub(super) fn from_partial(partial: &[f32], units: usize) -> Self {
        let mut totals = [0.0; SUMS];
        for (row, values) in partial.chunks_exact(units).enumerate() {
            let values = values.iter().map(|value| f64::from(*value));
            totals[row] = if row == DEVIATION { values.fold(0.0, larger) } else { values.sum() };
        }
        let [
            loss_sum,
            tokens,
            clipped,
            kl_k3_sum,
            ratio_sum,
            max_ratio_deviation,
            weight_sum,
            weight_square_sum,
            entropy_sum,
        ] = totals;
        Self {
            loss_sum,
            tokens,
            clipped,
            kl_k3_sum,
            ratio_sum,
            max_ratio_deviation,
            weight_sum,
            weight_square_sum,
            entropy_sum,
        }
    }

    /// The metrics of both sets of tokens together.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            loss_sum: self.loss_sum + other.loss_sum,
            tokens: self.tokens + other.tokens,
            clipped: self.clipped + other.clipped,
            kl_k3_sum: self.kl_k3_sum + other.kl_k3_sum,
            ratio_sum: self.ratio_sum + other.ratio_sum,
            max_ratio_deviation: larger(self.max_ratio_deviation, other.max_ratio_deviation),
            weight_sum: self.weight_sum + other.weight_sum,
            weight_square_sum: self.weight_square_sum + other.weight_square_sum,
            entropy_sum: self.entropy_sum + other.entropy_sum,
        }
    }

    /// Returns the normalised effective sample size of the weights, (Σw)² / (n·Σw²): 1 if all are equal. NaN without
    /// tokens.
    pub fn effective_sample_size(&self) -> f64 {
        self.weight_sum * self.weight_sum / (self.tokens * self.weight_square_sum)
    }
}

/// Returns the larger of two numbers, or NaN if either is NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}
