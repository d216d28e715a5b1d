//! Root-mean-square normalisation (Zhang and Sennrich 2019), as in Llama: y = w · x · r with r = (mean(x²) + ε)^(−1/2).
//!
//! Rows `[tokens, d]`, weight `[d]`. Floors: forward reads and writes each row once, 8·T·d bytes; backward 20·T·d
//! (x, the incoming gradient twice, the accumulated gradient read and written).

use cubecl::prelude::*;

use crate::device::Device;
use crate::tensor::Tensor;
use crate::{grid, partial_sums, row};

/// Rows whose products one unit adds up before the slabs are reduced.
const SLAB: usize = 256;

#[cube(launch_unchecked)]
fn forward_kernel(
    x: &Array<f32>,
    weight: &Array<f32>,
    out: &mut Array<f32>,
    inv_rms: &mut Array<f32>,
    eps: f32,
    #[comptime] lanes: u32,
) {
    let at = row::index(lanes);
    let lane = row::lane(lanes);
    let width = weight.len();
    if at < inv_rms.len() {
        let mut squares = 0.0f32;
        for i in range_stepped(lane, width, comptime!(lanes as usize)) {
            let value = x[at * width + i];
            squares = fma(value, value, squares);
        }
        let r = 1.0 / f32::sqrt(row::sum(squares, lanes) / f32::cast_from(width) + eps);
        for i in range_stepped(lane, width, comptime!(lanes as usize)) {
            out[at * width + i] = x[at * width + i] * r * weight[i];
        }
        if lane == 0 {
            inv_rms[at] = r;
        }
    }
}

#[cube(launch_unchecked)]
fn backward_kernel(
    x: &Array<f32>,
    weight: &Array<f32>,
    inv_rms: &Array<f32>,
    grad_out: &Array<f32>,
    grad_x: &mut Array<f32>,
    #[comptime] lanes: u32,
) {
    let at = row::index(lanes);
    let lane = row::lane(lanes);
    let width = weight.len();
    if at < inv_rms.len() {
        let mut products = 0.0f32;
        for i in range_stepped(lane, width, comptime!(lanes as usize)) {
            products = fma(x[at * width + i] * weight[i], grad_out[at * width + i], products);
        }
        let r = inv_rms[at];
        let pull = row::sum(products, lanes) * r * r * r / f32::cast_from(width);
        for i in range_stepped(lane, width, comptime!(lanes as usize)) {
            let j = at * width + i;
            grad_x[j] += r * weight[i] * grad_out[j] - x[j] * pull;
        }
    }
}

#[cube(launch_unchecked)]
fn weight_slab_kernel(
    x: &Array<f32>,
    inv_rms: &Array<f32>,
    grad_out: &Array<f32>,
    partial: &mut Array<f32>,
    width: usize,
    #[comptime] slab: usize,
) {
    if ABSOLUTE_POS < partial.len() {
        let column = ABSOLUTE_POS % width;
        let first = (ABSOLUTE_POS / width) * slab;
        let mut sum = 0.0f32;
        for at in first..min(first + slab, inv_rms.len()) {
            sum = fma(x[at * width + column] * inv_rms[at], grad_out[at * width + column], sum);
        }
        partial[ABSOLUTE_POS] = sum;
    }
}

/// Normalises the rows of `x` into `out` and keeps each row's factor r in `inv_rms` for the backward pass.
///
/// Shapes: `x` and `out` [T, d], `weight` `[d]`, `inv_rms` `[T]`. A row's result does not depend on T.
///
/// # Panics
/// Panics if a shape differs from these.
pub fn forward<R: Runtime>(
    device: &Device<R>,
    x: &Tensor<R>,
    weight: &Tensor<R>,
    eps: f32,
    out: &Tensor<R>,
    inv_rms: &Tensor<R>,
) {
    const OP: &str = "rms_norm::forward";
    let (rows, width) = x.matrix(OP, "x");
    weight.expect(OP, "weight", &[width]);
    out.expect(OP, "out", &[rows, width]);
    inv_rms.expect(OP, "inv_rms", &[rows]);
    if x.is_empty() {
        return;
    }
    let lanes = row::lanes(width);
    let (count, dim) = row::grid(rows, lanes);
    // SAFETY: rows are checked against `inv_rms`, columns against `weight`; the shapes above make both cover x and out.
    unsafe {
        forward_kernel::launch_unchecked::<R>(
            device.client(),
            count,
            dim,
            x.arg(),
            weight.arg(),
            out.arg(),
            inv_rms.arg(),
            eps,
            lanes,
        );
    }
}

/// Adds the gradient in `x` to `grad_x` and the gradient in the weight to `grad_weight`.
///
/// `grad_x` accumulates because in a residual block it already holds the gradient that bypasses the norm.
/// Shapes: `x`, `grad_out`, `grad_x` [T, d]; `weight`, `grad_weight` `[d]`; `inv_rms` `[T]` as [`forward`] left it.
///
/// # Panics
/// Panics if a shape differs from these.
pub fn backward<R: Runtime>(
    device: &Device<R>,
    x: &Tensor<R>,
    weight: &Tensor<R>,
    inv_rms: &Tensor<R>,
    grad_out: &Tensor<R>,
    grad_x: &Tensor<R>,
    grad_weight: &Tensor<R>,
) {
    const OP: &str = "rms_norm::backward";
    let (rows, width) = x.matrix(OP, "x");
    weight.expect(OP, "weight", &[width]);
    inv_rms.expect(OP, "inv_rms", &[rows]);
    grad_out.expect(OP, "grad_out", &[rows, width]);
    grad_x.expect(OP, "grad_x", &[rows, width]);
    grad_weight.expect(OP, "grad_weight", &[width]);
    if x.is_empty() {
        return;
    }
    let lanes = row::lanes(width);
    let (count, dim) = row::grid(rows, lanes);
    let partial = device.empty(&[rows.div_ceil(SLAB), width]);
    // SAFETY: rows are checked against `inv_rms`, columns against `weight` and slabs against `partial`; the shapes
    // above make these cover every other buffer.
    unsafe {
        backward_kernel::launch_unchecked::<R>(
            device.client(),
            count,
            dim,
            x.arg(),
            weight.arg(),
            inv_rms.arg(),
            grad_out.arg(),
            grad_x.arg(),
            lanes,
        );
        weight_slab_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(partial.len()),
            grid::cube_dim(),
            x.arg(),
            inv_rms.arg(),
            grad_out.arg(),
            partial.arg(),
            width,
            SLAB,
        );
    }
    partial_sums::reduce(device, &partial, &grad_weight.reshape(&[width]), true);
}

/// The same operation in plain f64.
pub mod reference {
    /// Returns (y, r) for rows of `weight.len()` columns.
    pub fn forward(x: &[f64], weight: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>) {
        let width = weight.len();
        let mut inv_rms = Vec::new();
        let mut out = Vec::new();
        for row in x.chunks_exact(width) {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / width as f64;
            let r = 1.0 / (mean + eps).sqrt();
            out.extend(row.iter().zip(weight).map(|(v, w)| v * r * w));
            inv_rms.push(r);
        }
        (out, inv_rms)
    }

    /// Returns (gradient in x, gradient in the weight).
    pub fn backward(x: &[f64], weight: &[f64], eps: f64, grad_out: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let width = weight.len();
        let (_, inv_rms) = forward(x, weight, eps);
        let mut grad_x = Vec::new();
        let mut grad_weight = vec![0.0; width];
        for ((row, grad), r) in x.chunks_exact(width).zip(grad_out.chunks_exact(width)).zip(&inv_rms) {
            let products: f64 = (0..width).map(|i| row[i] * weight[i] * grad[i]).sum();
            for i in 0..width {
                grad_x.push(r * weight[i] * grad[i] - row[i] * r.powi(3) * products / width as f64);
                grad_weight[i] += grad[i] * row[i] * r;
            }
        }
        (grad_x, grad_weight)
    }
}

#[cfg(test)]
mod tests;
