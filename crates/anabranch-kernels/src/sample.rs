//! Drawing a token from each row of logits: greedy, or at a temperature, with optional top-k and top-p.
//!
//! Truncation keeps the k largest logits, then of those the smallest set whose renormalised mass reaches p; logits
//! equal to the last one kept are kept as well. The draw is the inverse of the cumulative distribution, in token order,
//! at a number that depends on the row's key and counter alone ([`philox`](crate::philox)).
//!
//! Three log-probabilities are returned: of the sampling distribution *before* truncation, which is what a learner
//! recomputes at the same temperature (bit for bit, [`head::forward`]); of the truncated one; and at
//! temperature 1. A row's results do not depend on the other rows.
//!
//! Thresholds are found by bisection over the 32 bits of the logit, with no sort. Floor: the logits read once, 4·n·V
//! bytes; truncation reads them up to 64 times more.

use bytemuck::{Pod, Zeroable};
use cubecl::prelude::Runtime;

use crate::device::Device;
use crate::head::{self, Head};
use crate::row;
use crate::tensor::{Ids, Tensor};

mod kernel;
pub mod reference;

/// How one row is sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowSettings {
    /// τ; 0 takes the likeliest token (of equals, the first).
    pub temperature: f32,
    /// Keep this many of the likeliest tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the likeliest tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// The run's seed.
    pub key: [u32; 2],
    /// What distinguishes this draw within the run: lease (low, high), sample, position.
    pub counter: [u32; 4],
}

/// Words of a row's settings on the device: 1/τ and top-p as bits, greedy, top-k, key, counter.
pub(crate) const WORDS: usize = 10;

impl RowSettings {
    /// Plain sampling at temperature 1.
    pub fn new(key: [u32; 2], counter: [u32; 4]) -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, key, counter }
    }

    fn truncates(&self) -> bool {
        self.temperature > 0.0 && (self.top_k > 0 || self.top_p < 1.0)
    }

    fn words(&self, row: usize) -> [u32; WORDS] {
        assert!(
            self.top_p > 0.0 && self.top_p <= 1.0,
            "sample: `rows[{row}].top_p` must lie in (0, 1], it is {}",
            self.top_p
        );
        let greedy = self.temperature == 0.0;
        let inverse = if greedy { 1.0 } else { head::inverse_temperature("sample", self.temperature) };
        let [k0, k1] = self.key;
        let [c0, c1, c2, c3] = self.counter;
        [inverse.to_bits(), self.top_p.to_bits(), u32::from(greedy), self.top_k, k0, k1, c0, c1, c2, c3]
    }
}

/// A drawn token.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Sampled {
    /// Its id.
    pub token: u32,
    /// log p at the row's temperature, before top-k and top-p; greedy rows report temperature 1.
    pub log_prob: f32,
    /// log p in the truncated distribution it was drawn from; 0 for greedy rows.
    pub log_prob_truncated: f32,
    /// log p at temperature 1.
    pub log_prob_untempered: f32,
}

/// The output of [`sample`].
#[derive(Clone, Debug)]
pub struct SampleOutput<R: Runtime> {
    /// [n, 4] words: the token and the bits of the three log-probabilities.
    words: Ids<R>,
}

impl<R: Runtime> SampleOutput<R> {
    /// Room for `rows` tokens.
    pub fn new(device: &Device<R>, rows: usize) -> Self {
        Self { words: device.empty_ids(rows * 4).reshape(&[rows, 4]) }
    }

    /// Reads all rows, with one synchronisation.
    pub fn read(&self, device: &Device<R>) -> Vec<Sampled> {
        if self.words.is_empty() {
            return Vec::new();
        }
        bytemuck::cast_slice(&self.words.read(device)).to_vec()
    }
}

/// Draws one token from each row of `logits` [n, V], which [`head::logits`] wrote.
///
/// `head` must be the one the learner uses, for its chunk size is part of the arithmetic. A row with a NaN yields the
/// token `u32::MAX` and NaN log-probabilities.
///
/// # Panics
/// Panics if `rows` or `out` are not n, or a setting is out of range.
pub fn sample<R: Runtime>(
    device: &Device<R>,
    head: &Head,
    logits: &Tensor<R>,
    rows: &[RowSettings],
    out: &SampleOutput<R>,
) {
    const OP: &str = "sample";
    let (count, vocab) = logits.matrix(OP, "logits");
    assert!(rows.len() == count, "{OP}: `rows` has {} entries for {count} rows of `logits`", rows.len());
    out.words.expect(OP, "out", &[count, 4]);
    if count == 0 {
        return;
    }
    assert!(vocab > 0, "{OP}: `logits` has no columns");
    let words: Vec<u32> = rows.iter().enumerate().flat_map(|(i, row)| row.words(i)).collect();
    let chunk = head.chunk(vocab);
    let lanes = row::lanes(chunk);
    let truncate = rows.iter().any(RowSettings::truncates);
    kernel::launch(device, logits, &device.ids(&words), &out.words, chunk, truncate, lanes);
}

#[cfg(test)]
mod tests;
