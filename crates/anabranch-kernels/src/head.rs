//! The language-model head: from hidden states to the log-probability of a target token and the entropy of its
//! distribution, in chunks of the vocabulary, so that logits `[n, V]` never exist as a whole.
//!
//! With z = h·Wᵀ and p = softmax(z/τ): ℓ = log p(target), H = −Σ p log p. Backward, for given ∂L/∂ℓ and ∂L/∂H: ∂L/∂z_j
//! = (∂L/∂ℓ·(1\[j = target\] − p_j) − ∂L/∂H·p_j·(log p_j + H))/τ. Chunks are computed again in the backward pass.
//!
//! Floors: forward 2·n·d·V operations; backward 6·n·d·V. Bytes: W and h once, a chunk of logits written and read once.

use cubecl::prelude::*;

use crate::device::Device;
use crate::linear::{self, Write};
use crate::rounding_barrier::GUARD;
use crate::softmax::{self, Running};
use crate::tensor::{Ids, Tensor, VIEW_ALIGNMENT};
use crate::{grid, row};

pub mod reference;

/// How the head walks over the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    vocab_chunk: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self { vocab_chunk: 8192 }
    }
}

impl Head {
    /// Chunks of `vocab_chunk` tokens. Sampler and learner must use the same size for their log-probabilities to agree
    /// in every bit.
    ///
    /// # Panics
    /// Panics if `vocab_chunk` is not a positive multiple of [`VIEW_ALIGNMENT`].
    pub fn new(vocab_chunk: usize) -> Self {
        assert!(
            vocab_chunk > 0 && vocab_chunk.is_multiple_of(VIEW_ALIGNMENT),
            "Head::new: `vocab_chunk` must be a positive multiple of {VIEW_ALIGNMENT}, it is {vocab_chunk}"
        );
        Self { vocab_chunk }
    }

    /// The number of tokens in a chunk, for a vocabulary of `vocab`.
    pub(crate) fn chunk(self, vocab: usize) -> usize {
        self.vocab_chunk.min(vocab)
    }

    /// (first token, tokens) of each chunk.
    fn chunks(self, vocab: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let size = self.chunk(vocab);
        (0..vocab).step_by(size.max(1)).map(move |first| (first, size.min(vocab - first)))
    }
}

/// The output of [`forward`], which [`backward`] reads again.
#[derive(Clone, Debug)]
pub struct HeadOutput<R: Runtime> {
    /// log p(target). `[n]`
    pub log_prob: Tensor<R>,
    /// The entropy of the distribution, in nats. `[n]`
    pub entropy: Tensor<R>,
    /// Largest logit, sum, weighted sum and the target's logit. [n, 4]
    state: Tensor<R>,
}

impl<R: Runtime> HeadOutput<R> {
    /// Room for `rows` targets.
    pub fn new(device: &Device<R>, rows: usize) -> Self {
        Self { log_prob: device.empty(&[rows]), entropy: device.empty(&[rows]), state: device.empty(&[rows, 4]) }
    }
}

#[cube(launch_unchecked)]
fn forward_kernel(
    logits: &Array<f32>,
    targets: &Array<u32>,
    state: &mut Array<f32>,
    log_prob: &mut Array<f32>,
    entropy: &mut Array<f32>,
    first: usize,
    width: usize,
    inverse: f32,
    guard: u32,
    #[comptime] is_first: bool,
    #[comptime] is_last: bool,
    #[comptime] lanes: u32,
) {
    let at = row::index(lanes);
    let lane = row::lane(lanes);
    if at < targets.len() {
        let mut seen = softmax::chunk(logits, at * width, width, lane, inverse, guard, lanes);
        let mut target_logit = 0.0f32;
        if comptime!(!is_first) {
            let before = Running { largest: state[at * 4], sum: state[at * 4 + 1], weighted: state[at * 4 + 2] };
            target_logit = state[at * 4 + 3];
            let merged = softmax::merge(before, seen, inverse, guard);
            seen.largest = merged.largest;
            seen.sum = merged.sum;
            seen.weighted = merged.weighted;
        }
        let target = targets[at] as usize;
        if target >= first && target < first + width {
            target_logit = logits[at * width + target - first];
        }
        if lane == 0 {
            state[at * 4] = seen.largest;
            state[at * 4 + 1] = seen.sum;
            state[at * 4 + 2] = seen.weighted;
            state[at * 4 + 3] = target_logit;
            if comptime!(is_last) {
                log_prob[at] = softmax::log_prob(seen, target_logit, inverse, guard);
                entropy[at] = softmax::entropy(seen);
            }
        }
    }
}

/// Turns a chunk of logits into the gradient in them, in place.
#[cube(launch_unchecked)]
fn backward_kernel(
    logits: &mut Array<f32>,
    targets: &Array<u32>,
    state: &Array<f32>,
    entropy: &Array<f32>,
    grad_log_prob: &Array<f32>,
    grad_entropy: &Array<f32>,
    first: usize,
    width: usize,
    inverse: f32,
    guard: u32,
    #[comptime] with_entropy: bool,
) {
    if ABSOLUTE_POS < logits.len() {
        let at = ABSOLUTE_POS / width;
        let token = first + ABSOLUTE_POS % width;
        let sum = state[at * 4 + 1];
        let d = softmax::centred(logits[ABSOLUTE_POS], state[at * 4], inverse, guard);
        let p = f32::exp(d) / sum;
        let mut hit = 0.0f32;
        if token == targets[at] as usize {
            hit = 1.0f32;
        }
        let mut grad = grad_log_prob[at] * (hit - p);
        if comptime!(with_entropy) {
            grad -= grad_entropy[at] * p * (d - f32::ln(sum) + entropy[at]);
        }
        logits[ABSOLUTE_POS] = grad * inverse;
    }
}

/// 1/τ as the head and the sampler both compute it.
pub(crate) fn inverse_temperature(op: &str, temperature: f32) -> f32 {
    assert!(
        temperature.is_finite() && temperature > 0.0,
        "{op}: `temperature` must be positive and finite, it is {temperature}"
    );
    1.0 / temperature
}

fn expect_head<R: Runtime>(op: &str, hidden: &Tensor<R>, weight: &Tensor<R>) -> (usize, usize, usize) {
    let (rows, width) = hidden.matrix(op, "hidden");
    let (vocab, _) = weight.matrix(op, "weight");
    weight.expect(op, "weight", &[vocab, width]);
    assert!(vocab > 0, "{op}: `weight` has no rows");
    (rows, width, vocab)
}

/// Logits z = h·Wᵀ for sampling: `hidden` [n, d], `weight` [V, d], `logits` [n, V]. The same bits as inside
/// [`forward`].
///
/// # Panics
/// Panics if a shape differs from these.
pub fn logits<R: Runtime>(device: &Device<R>, hidden: &Tensor<R>, weight: &Tensor<R>, logits: &Tensor<R>) {
    expect_head("head::logits", hidden, weight);
    linear::forward(device, hidden, weight, logits, Write::Overwrite);
}

/// Writes log p(target) and the entropy of softmax(h·Wᵀ/τ) for every row.
///
/// Shapes: `hidden` [n, d], `weight` [V, d], `targets` `[n]` below V, `out` for n rows. A row's result does not depend
/// on n.
///
/// # Panics
/// Panics if a shape differs from these or `temperature` is not positive and finite.
pub fn forward<R: Runtime>(
    device: &Device<R>,
    head: &Head,
    hidden: &Tensor<R>,
    weight: &Tensor<R>,
    targets: &Ids<R>,
    temperature: f32,
    out: &HeadOutput<R>,
) {
    const OP: &str = "head::forward";
    let (rows, width, vocab) = expect_head(OP, hidden, weight);
    let inverse = inverse_temperature(OP, temperature);
    targets.expect(OP, "targets", &[rows]);
    out.log_prob.expect(OP, "out", &[rows]);
    if rows == 0 {
        return;
    }
    let lanes = row::lanes(head.chunk(vocab));
    for (first, size) in head.chunks(vocab) {
        let chunk = device.empty(&[rows, size]);
        linear::forward(device, hidden, &weight.view(first * width, &[size, width]), &chunk, Write::Overwrite);
        let (count, dim) = row::grid(rows, lanes);
        // SAFETY: rows are checked against `targets`; `chunk` holds `size` logits a row, the state four values a row.
        unsafe {
            forward_kernel::launch_unchecked::<R>(
                device.client(),
                count,
                dim,
                chunk.arg(),
                targets.arg(),
                out.state.arg(),
                out.log_prob.arg(),
                out.entropy.arg(),
                first,
                size,
                inverse,
                GUARD,
                first == 0,
                first + size == vocab,
                lanes,
            );
        }
    }
}

/// The gradient of the loss, for [`backward`].
#[derive(Clone, Copy, Debug)]
pub struct HeadGradient<'a, R: Runtime> {
    /// ∂L/∂ℓ. `[n]`
    pub log_prob: &'a Tensor<R>,
    /// ∂L/∂H, if the loss has an entropy term. `[n]`
    pub entropy: Option<&'a Tensor<R>>,
}

/// Writes the gradient in the hidden states and adds that in the weight.
///
/// Shapes and arguments as in [`forward`], whose `saved` output it needs; `grad_hidden` [n, d] is overwritten,
/// `grad_weight` [V, d] is added to.
///
/// # Panics
/// Panics if a shape differs from these or `temperature` is not positive and finite.
#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
#[allow(clippy::needless_pass_by_value, reason = "two references, named at the call and used up by it")]
pub fn backward<R: Runtime>(
    device: &Device<R>,
    head: &Head,
    hidden: &Tensor<R>,
    weight: &Tensor<R>,
    targets: &Ids<R>,
    temperature: f32,
    saved: &HeadOutput<R>,
    gradient: HeadGradient<'_, R>,
    grad_hidden: &Tensor<R>,
    grad_weight: &Tensor<R>,
) {
    const OP: &str = "head::backward";
    let (rows, width, vocab) = expect_head(OP, hidden, weight);
    let inverse = inverse_temperature(OP, temperature);
    targets.expect(OP, "targets", &[rows]);
    saved.log_prob.expect(OP, "saved", &[rows]);
    gradient.log_prob.expect(OP, "gradient.log_prob", &[rows]);
    if let Some(entropy) = gradient.entropy {
        entropy.expect(OP, "gradient.entropy", &[rows]);
    }
    grad_hidden.expect(OP, "grad_hidden", &[rows, width]);
    grad_weight.expect(OP, "grad_weight", &[vocab, width]);
    if rows == 0 {
        return;
    }
    for (first, size) in head.chunks(vocab) {
        let chunk = device.empty(&[rows, size]);
        let part = weight.view(first * width, &[size, width]);
        linear::forward(device, hidden, &part, &chunk, Write::Overwrite);
        // SAFETY: elements are checked against `chunk`, whose rows are as many as the per-row tensors.
        unsafe {
            backward_kernel::launch_unchecked::<R>(
                device.client(),
                grid::units(chunk.len()),
                grid::cube_dim(),
                chunk.arg(),
                targets.arg(),
                saved.state.arg(),
                saved.entropy.arg(),
                gradient.log_prob.arg(),
                gradient.entropy.unwrap_or(gradient.log_prob).arg(),
                first,
                size,
                inverse,
                GUARD,
                gradient.entropy.is_some(),
            );
        }
        let mode = if first == 0 { Write::Overwrite } else { Write::Add };
        linear::grad_input(device, &chunk, &part, grad_hidden, mode);
        let grad_part = grad_weight.view(first * width, &[size, width]);
        linear::grad_weight(device, &chunk, hidden, &grad_part, Write::Add);
    }
}

#[cfg(test)]
mod tests;
