//! The norm of the gradient and `AdamW`, over flat buffers of all parameters.
//!
//! `AdamW` (Loshchilov and Hutter 2019) at step t, with g scaled by min(1, `max_norm`/‖g‖): m ← β₁m + (1−β₁)g,
//! v ← β₂v + (1−β₂)g², θ ← θ − lr·λ·θ − lr · (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε). λ applies to the first `decayed` elements alone.
//!
//! The norm stays on the device: a step needs no synchronisation.
//!
//! Floors: norm 4·N bytes; update 28·N bytes (θ, m, v read and written, g read).

use cubecl::prelude::*;

use crate::device::Device;
use crate::tensor::Tensor;
use crate::{grid, row};

/// Elements whose squares are added up before they join a unit's sum: keeps the rounding of long sums small.
const BLOCK: usize = 64;

/// The most partial sums of a norm: enough units to fill a device.
const MAX_UNITS: usize = 16_384;

/// Units of the one cube that adds up the partial sums. A power of two.
const FINAL: u32 = 128;

/// Settings of one `AdamW` update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub learning_rate: f32,
    /// Decay rate of the first moment.
    pub beta1: f32,
    /// Decay rate of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// Decoupled weight decay λ, multiplied by the learning rate.
    pub weight_decay: f32,
    /// The gradient is scaled down to this norm if it is longer.
    pub max_norm: Option<f32>,
}

/// The result of [`gradient_norm`], and its scratch space.
#[derive(Debug)]
pub struct GradientNorm<R: Runtime> {
    /// ‖g‖₂, shape `[1]`.
    pub value: Tensor<R>,
    partial: Tensor<R>,
    len: usize,
}

impl<R: Runtime> GradientNorm<R> {
    /// For gradients of `len` elements.
    pub fn new(device: &Device<R>, len: usize) -> Self {
        let units = len.div_ceil(BLOCK).clamp(1, MAX_UNITS);
        Self { value: device.empty(&[1]), partial: device.empty(&[units]), len }
    }
}

#[cube(launch_unchecked)]
fn squares_kernel(grads: &Array<f32>, partial: &mut Array<f32>, #[comptime] block: usize) {
    let units = partial.len();
    if ABSOLUTE_POS < units {
        let mut sum = 0.0f32;
        // Neighbouring units read neighbouring elements; each adds up `block` of its own at a time.
        for first in range_stepped(ABSOLUTE_POS, grads.len(), units * block) {
            let mut squares = 0.0f32;
            for i in range_stepped(first, min(first + units * block, grads.len()), units) {
                squares = fma(grads[i], grads[i], squares);
            }
            sum += squares;
        }
        partial[ABSOLUTE_POS] = sum;
    }
}

#[cube(launch_unchecked)]
fn root_kernel(partial: &Array<f32>, value: &mut Array<f32>, #[comptime] units: u32) {
    let lane = UNIT_POS as usize;
    let mut own = 0.0f32;
    for i in range_stepped(lane, partial.len(), comptime!(units as usize)) {
        own += partial[i];
    }
    let sum = row::sum(own, units);
    if lane == 0 {
        value[0] = f32::sqrt(sum);
    }
}

/// The numbers of an update, in the order the kernel reads them.
#[derive(CubeLaunch, CubeType)]
struct Update {
    beta1: f32,
    beta2: f32,
    /// lr / (1 − β₁ᵗ).
    rate: f32,
    /// 1 / √(1 − β₂ᵗ).
    root: f32,
    eps: f32,
    /// 1 − lr·λ.
    keep: f32,
    max_norm: f32,
    decayed: usize,
}

#[cube(launch_unchecked)]
fn adamw_kernel(
    params: &mut Array<f32>,
    grads: &Array<f32>,
    first: &mut Array<f32>,
    second: &mut Array<f32>,
    norm: &Array<f32>,
    update: &Update,
) {
    let length = norm[0];
    // A gradient that is not finite would spoil weights and moments for good.
    if ABSOLUTE_POS < params.len() && !length.is_nan() && !length.is_inf() {
        let mut grad = grads[ABSOLUTE_POS];
        if length > update.max_norm {
            grad *= update.max_norm / length;
        }
        let m = update.beta1 * first[ABSOLUTE_POS] + (1.0 - update.beta1) * grad;
        let v = update.beta2 * second[ABSOLUTE_POS] + (1.0 - update.beta2) * grad * grad;
        first[ABSOLUTE_POS] = m;
        second[ABSOLUTE_POS] = v;
        let mut param = params[ABSOLUTE_POS];
        if ABSOLUTE_POS < update.decayed {
            param *= update.keep;
        }
        params[ABSOLUTE_POS] = param - update.rate * m / (f32::sqrt(v) * update.root + update.eps);
    }
}

/// Writes ‖g‖₂ of all elements of `grads` to `norm.value`, always adding in the same order.
///
/// A gradient with an element that is not finite, or whose square overflows f32, gives a norm that is not finite.
///
/// # Panics
/// Panics if `norm` was made for another length.
pub fn gradient_norm<R: Runtime>(device: &Device<R>, grads: &Tensor<R>, norm: &GradientNorm<R>) {
    assert!(
        grads.len() == norm.len,
        "optimizer::gradient_norm: expected {} elements, as `norm` was made for, found {} in `grads`",
        norm.len,
        grads.len()
    );
    // SAFETY: units are checked against `partial` and elements against `grads`; the second kernel is a single cube of
    // FINAL units that reads within `partial` and writes the one element of `value`.
    unsafe {
        squares_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(norm.partial.len()),
            grid::cube_dim(),
            grads.arg(),
            norm.partial.arg(),
            BLOCK,
        );
        root_kernel::launch_unchecked::<R>(
            device.client(),
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(FINAL),
            norm.partial.arg(),
            norm.value.arg(),
            FINAL,
        );
    }
}

/// One `AdamW` update of `params`, `first` and `second` in place.
///
/// `step` counts updates from 1. Elements `[0, decayed)` of `params` decay. `norm` holds the norm of `grads` as
/// [`gradient_norm`] left it. If it is not finite, nothing is changed; read `norm.value` to know. All tensors have the
/// same number of elements.
///
/// # Panics
/// Panics if lengths differ, `decayed` exceeds them, or `step` is 0.
#[allow(clippy::too_many_arguments, reason = "the four buffers of an optimizer and what it needs to know")]
pub fn adamw<R: Runtime>(
    device: &Device<R>,
    settings: &AdamW,
    step: u32,
    decayed: usize,
    params: &Tensor<R>,
    grads: &Tensor<R>,
    first: &Tensor<R>,
    second: &Tensor<R>,
    norm: &GradientNorm<R>,
) {
    const OP: &str = "optimizer::adamw";
    grads.expect(OP, "grads", params.shape());
    first.expect(OP, "first", params.shape());
    second.expect(OP, "second", params.shape());
    assert!(norm.len == params.len(), "{OP}: `norm` was made for {} elements of {}", norm.len, params.len());
    assert!(decayed <= params.len(), "{OP}: `decayed` is {decayed}, there are {} parameters", params.len());
    assert!(step > 0, "{OP}: `step` counts from 1");
    if params.is_empty() {
        return;
    }
    let correction = |beta: f32| 1.0 - f64::from(beta).powf(f64::from(step));
    let rate = f64::from(settings.learning_rate);
    let update = UpdateLaunch::new(
        settings.beta1,
        settings.beta2,
        (rate / correction(settings.beta1)) as f32,
        (1.0 / correction(settings.beta2).sqrt()) as f32,
        settings.eps,
        (1.0 - rate * f64::from(settings.weight_decay)) as f32,
        settings.max_norm.unwrap_or(f32::MAX),
        decayed,
    );
    // SAFETY: elements are checked against `params`; the other buffers are as long, and `norm.value` holds one element.
    unsafe {
        adamw_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(params.len()),
            grid::cube_dim(),
            params.arg(),
            grads.arg(),
            first.arg(),
            second.arg(),
            norm.value.arg(),
            update,
        );
    }
}

/// The same operations in plain f64.
pub mod reference {
    use super::AdamW;

    /// ‖g‖₂.
    pub fn gradient_norm(grads: &[f64]) -> f64 {
        grads.iter().map(|g| g * g).sum::<f64>().sqrt()
    }

    /// One update in place; see [`super::adamw`].
    pub fn adamw(
        settings: &AdamW,
        step: u32,
        decayed: usize,
        params: &mut [f64],
        grads: &[f64],
        first: &mut [f64],
        second: &mut [f64],
    ) {
        let norm = gradient_norm(grads);
        if !norm.is_finite() {
            return;
        }
        let scale = settings.max_norm.map_or(1.0, |max| (f64::from(max) / norm).min(1.0));
        let (beta1, beta2) = (f64::from(settings.beta1), f64::from(settings.beta2));
        let rate = f64::from(settings.learning_rate);
        for i in 0..params.len() {
            let grad = grads[i] * scale;
            first[i] = beta1 * first[i] + (1.0 - beta1) * grad;
            second[i] = beta2 * second[i] + (1.0 - beta2) * grad * grad;
            let mean = first[i] / (1.0 - beta1.powf(f64::from(step)));
            let square = second[i] / (1.0 - beta2.powf(f64::from(step)));
            let decay = if i < decayed { rate * f64::from(settings.weight_decay) * params[i] } else { 0.0 };
            params[i] -= decay + rate * mean / (square.sqrt() + f64::from(settings.eps));
        }
    }
}

#[cfg(test)]
mod tests;
