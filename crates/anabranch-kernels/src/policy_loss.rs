//! The clipped policy loss, its gradient in the log-probs and its metrics, in one pass over the tokens.
//!
//! ℓ is the log-prob under the weights being trained, p under those the ratio is taken against (proximal), b as the
//! engine recorded it (behaviour), A the advantage. With r = e^(ℓ−p), a token's loss is w · −min(rA, clip(r, 1−low,
//! 1+high)·A) (PPO, Schulman 2017); a dual clip takes at most −cA of it where A < 0. The weight w corrects for the
//! distance between p and b and carries no gradient. Log ratios are clamped to ±20, and have no gradient beyond. Tokens
//! whose mask is 0 take no part, whatever else is stored for them.
//!
//! Sums of 16 tokens a unit are added up in f64 when they are read: no barrier, no second launch, a fixed
//! order. Floor: 28·n bytes.

use cubecl::prelude::*;

use crate::device::Device;
use crate::grid;
use crate::tensor::Tensor;

mod metrics;
pub mod reference;

pub use metrics::Metrics;
use metrics::SUMS;

/// Tokens of one unit.
const TOKENS: usize = 16;

/// Log ratios are clamped to ± this.
pub(crate) const LOG_RATIO_LIMIT: f32 = 20.0;

/// Below this, e^d − 1 − d is summed as a series: the difference would have lost its digits.
const SERIES_LIMIT: f32 = 0.25;

/// The bounds beyond which the ratio does not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// The ratio counts down to 1 − `low`.
    pub low: f32,
    /// The ratio counts up to 1 + `high`.
    pub high: f32,
    /// Dual clip c > 1: for A < 0 the loss is at most −cA.
    pub dual: Option<f32>,
}

/// The weight w of a token's loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Correction {
    /// 1.
    None,
    /// e^(p−b) (decoupled PPO, Hilton 2021).
    Decoupled,
    /// min(e^(p−b), cap) (truncated importance sampling).
    Truncated {
        /// The largest weight.
        cap: f32,
    },
}

/// The inputs for n tokens; every tensor has shape `[n]`. Cloning makes another name for the same memory.
#[derive(Clone, Debug)]
pub struct Inputs<R: Runtime> {
    /// ℓ, under the weights being trained.
    pub log_prob: Tensor<R>,
    /// p, under the weights that the ratio is taken against.
    pub proximal: Tensor<R>,
    /// b, as recorded by the engine that sampled the token.
    pub behaviour: Tensor<R>,
    /// A.
    pub advantages: Tensor<R>,
    /// 1 if the token takes part, 0 if not.
    pub mask: Tensor<R>,
    /// Entropy of the distribution the token was drawn from; only summed up.
    pub entropy: Tensor<R>,
}

/// The output of [`forward_backward`]: the sums of its metrics.
#[derive(Debug)]
pub struct LossOutput<R: Runtime> {
    /// [SUMS, units].
    partial: Tensor<R>,
    tokens: usize,
}

impl<R: Runtime> LossOutput<R> {
    /// Allocates for `tokens` tokens, including those that the mask leaves out.
    pub fn new(device: &Device<R>, tokens: usize) -> Self {
        Self { partial: device.empty(&[SUMS, tokens.div_ceil(TOKENS)]), tokens }
    }

    /// Returns the metrics. Waits until the pass has run.
    pub fn read(&self, device: &Device<R>) -> Metrics {
        if self.tokens == 0 {
            return Metrics::default();
        }
        Metrics::from_partial(&self.partial.read(device), self.partial.shape()[1])
    }
}

/// e^d − 1 − d for |d| ≤ 20, without cancellation.
#[cube]
fn excess(d: f32) -> f32 {
    let mut excess = f32::exp(d) - 1.0 - d;
    if f32::abs(d) < SERIES_LIMIT {
        let tail = fma(d, fma(d, fma(d, fma(d, 1.0 / 5040.0, 1.0 / 720.0), 1.0 / 120.0), 1.0 / 24.0), 1.0 / 6.0);
        excess = d * d * fma(d, tail, 0.5);
    }
    excess
}

/// d within ± the limit.
#[cube]
fn clamped(d: f32) -> f32 {
    f32::clamp(d, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
}

/// The settings, in the order the kernel reads them.
#[derive(CubeLaunch, CubeType)]
struct Bounds {
    lowest: f32,
    highest: f32,
    dual: f32,
    cap: f32,
    scale: f32,
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_arguments, reason = "a kernel's buffers are its arguments")]
fn loss_kernel(
    log_prob: &Array<f32>,
    proximal: &Array<f32>,
    behaviour: &Array<f32>,
    advantages: &Array<f32>,
    mask: &Array<f32>,
    entropy: &Array<f32>,
    grad_log_prob: &mut Array<f32>,
    partial: &mut Array<f32>,
    bounds: &Bounds,
    units: usize,
    #[comptime] weighted: bool,
) {
    if ABSOLUTE_POS < units {
        let mut loss_sum = 0.0f32;
        let mut tokens = 0.0f32;
        let mut clipped = 0.0f32;
        let mut kl_sum = 0.0f32;
        let mut ratio_sum = 0.0f32;
        let mut deviation = 0.0f32;
        let mut weight_sum = 0.0f32;
        let mut square_sum = 0.0f32;
        let mut entropy_sum = 0.0f32;
        // The bits of a NaN, once an input was not finite: comparisons and minima would hide it.
        let mut spoiled = 0u32;
        for i in range_stepped(ABSOLUTE_POS, log_prob.len(), units) {
            let mut grad = 0.0f32;
            if mask[i] != 0.0 {
                tokens += 1.0;
                let l = log_prob[i];
                let p = proximal[i];
                let b = behaviour[i];
                let advantage = advantages[i];
                let witness = l + p + b + advantage + mask[i];
                if witness.is_nan() || witness.is_inf() {
                    spoiled = u32::reinterpret(witness) | 0x7fc0_0000u32;
                    grad = f32::reinterpret(spoiled);
                } else {
                    let step = clamped(l - p);
                    let ratio = f32::exp(step);
                    let free = -ratio * advantage;
                    let bounded = -f32::min(f32::max(ratio, bounds.lowest), bounds.highest) * advantage;
                    let importance = f32::exp(clamped(p - b));
                    let mut weight = 1.0f32;
                    if comptime!(weighted) {
                        weight = f32::min(importance, bounds.cap);
                    }
                    let mut loss = free;
                    let mut active = true;
                    if bounded > free {
                        loss = bounded;
                        active = false;
                    }
                    let most = -bounds.dual * advantage;
                    if advantage < 0.0 && loss > most {
                        loss = most;
                        active = false;
                    }
                    if !active {
                        clipped += 1.0;
                    } else if f32::abs(l - p) <= LOG_RATIO_LIMIT {
                        grad = bounds.scale * weight * free;
                    }
                    loss_sum = fma(weight, loss, loss_sum);
                    kl_sum += excess(clamped(l - b));
                    ratio_sum += ratio;
                    deviation = f32::max(deviation, f32::abs(step + excess(step)));
                    weight_sum += importance;
                    square_sum = fma(importance, importance, square_sum);
                    entropy_sum += entropy[i];
                }
            }
            grad_log_prob[i] = grad;
        }
        if spoiled != 0 {
            let nan = f32::reinterpret(spoiled);
            loss_sum = nan;
            clipped = nan;
            kl_sum = nan;
            ratio_sum = nan;
            deviation = nan;
            weight_sum = nan;
            square_sum = nan;
            entropy_sum = nan;
        }
        partial[ABSOLUTE_POS] = loss_sum;
        partial[ABSOLUTE_POS + units] = tokens;
        partial[ABSOLUTE_POS + 2 * units] = clipped;
        partial[ABSOLUTE_POS + 3 * units] = kl_sum;
        partial[ABSOLUTE_POS + 4 * units] = ratio_sum;
        partial[ABSOLUTE_POS + 5 * units] = deviation;
        partial[ABSOLUTE_POS + 6 * units] = weight_sum;
        partial[ABSOLUTE_POS + 7 * units] = square_sum;
        partial[ABSOLUTE_POS + 8 * units] = entropy_sum;
    }
}

/// Writes `scale` · ∂(Σ loss)/∂ℓ to `grad_log_prob` `[n]` and the sums of the metrics to `output`.
///
/// For the token mean, `scale` is one over the tokens of the whole batch, over all its micro-batches. Masked tokens get
/// a gradient of 0. A token that takes part with a log-prob or an advantage that is not finite makes its gradient and
/// all sums but the number of tokens NaN.
///
/// # Panics
/// Panics if a shape is not `[n]`, or `output` was made for another n.
pub fn forward_backward<R: Runtime>(
    device: &Device<R>,
    clip: &Clip,
    correction: &Correction,
    inputs: &Inputs<R>,
    scale: f32,
    grad_log_prob: &Tensor<R>,
    output: &LossOutput<R>,
) {
    const OP: &str = "policy_loss::forward_backward";
    let shape = [inputs.log_prob.len()];
    for (name, tensor) in [
        ("inputs.log_prob", &inputs.log_prob),
        ("inputs.proximal", &inputs.proximal),
        ("inputs.behaviour", &inputs.behaviour),
        ("inputs.advantages", &inputs.advantages),
        ("inputs.mask", &inputs.mask),
        ("inputs.entropy", &inputs.entropy),
        ("grad_log_prob", grad_log_prob),
    ] {
        tensor.expect(OP, name, &shape);
    }
    assert!(output.tokens == shape[0], "{OP}: `output` was made for {} tokens, there are {}", output.tokens, shape[0]);
    if shape[0] == 0 {
        return;
    }
    let (weighted, cap) = match *correction {
        Correction::None => (false, 1.0),
        Correction::Decoupled => (true, f32::MAX),
        Correction::Truncated { cap } => (true, cap),
    };
    let bounds = BoundsLaunch::new(1.0 - clip.low, 1.0 + clip.high, clip.dual.unwrap_or(f32::MAX), cap, scale);
    let units = output.partial.shape()[1];
    // SAFETY: units are checked against the columns of `partial`, which has a row for each sum; tokens against
    // `log_prob`, and all other buffers are as long.
    unsafe {
        loss_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(units),
            grid::cube_dim(),
            inputs.log_prob.arg(),
            inputs.proximal.arg(),
            inputs.behaviour.arg(),
            inputs.advantages.arg(),
            inputs.mask.arg(),
            inputs.entropy.arg(),
            grad_log_prob.arg(),
            output.partial.arg(),
            bounds,
            units,
            weighted,
        );
    }
}

#[cfg(test)]
mod tests;
