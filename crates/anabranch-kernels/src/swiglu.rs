//! The gated activation of Llama's feed-forward block (Shazeer 2020): y = silu(g) · u, silu(g) = g / (1 + e^(−g)).
//!
//! `gate_up` [T, 2F] holds the gate in the first F columns and the up projection in the last F, as one product with the
//! stacked weight leaves them. Floors: forward 12·T·F bytes, backward 20·T·F.

use cubecl::prelude::*;

use crate::device::Device;
use crate::grid;
use crate::tensor::Tensor;

#[cube(launch_unchecked)]
fn forward_kernel(gate_up: &Array<f32>, out: &mut Array<f32>, width: usize) {
    if ABSOLUTE_POS < out.len() {
        let at = (ABSOLUTE_POS / width) * 2 * width + ABSOLUTE_POS % width;
        let gate = gate_up[at];
        out[ABSOLUTE_POS] = gate / (1.0 + f32::exp(-gate)) * gate_up[at + width];
    }
}

#[cube(launch_unchecked)]
fn backward_kernel(gate_up: &Array<f32>, grad_out: &Array<f32>, grad_gate_up: &mut Array<f32>, width: usize) {
    if ABSOLUTE_POS < grad_out.len() {
        let at = (ABSOLUTE_POS / width) * 2 * width + ABSOLUTE_POS % width;
        let gate = gate_up[at];
        let grad = grad_out[ABSOLUTE_POS];
        let sigmoid = 1.0 / (1.0 + f32::exp(-gate));
        grad_gate_up[at] = grad * gate_up[at + width] * sigmoid * (1.0 + gate * (1.0 - sigmoid));
        grad_gate_up[at + width] = grad * gate * sigmoid;
    }
}

/// out[t, i] = silu(gate_up[t, i]) · gate_up[t, F + i].
///
/// # Panics
/// Panics if the shapes are not [T, 2F] and [T, F].
pub fn forward<R: Runtime>(device: &Device<R>, gate_up: &Tensor<R>, out: &Tensor<R>) {
    const OP: &str = "swiglu::forward";
    let (rows, width) = out.matrix(OP, "out");
    gate_up.expect(OP, "gate_up", &[rows, 2 * width]);
    if out.is_empty() {
        return;
    }
    // SAFETY: elements are checked against `out`; `gate_up` holds two for each, as checked above.
    unsafe {
        forward_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(out.len()),
            grid::cube_dim(),
            gate_up.arg(),
            out.arg(),
            width,
        );
    }
}

/// Writes the gradient in both halves of `gate_up`, given the gradient in [`forward`]'s output.
///
/// # Panics
/// Panics if the shapes are not [T, 2F], [T, F] and [T, 2F].
pub fn backward<R: Runtime>(device: &Device<R>, gate_up: &Tensor<R>, grad_out: &Tensor<R>, grad_gate_up: &Tensor<R>) {
    const OP: &str = "swiglu::backward";
    let (rows, width) = grad_out.matrix(OP, "grad_out");
    gate_up.expect(OP, "gate_up", &[rows, 2 * width]);
    grad_gate_up.expect(OP, "grad_gate_up", &[rows, 2 * width]);
    if grad_out.is_empty() {
        return;
    }
    // SAFETY: elements are checked against `grad_out`; the other buffers hold two for each, as checked above.
    unsafe {
        backward_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(grad_out.len()),
            grid::cube_dim(),
            gate_up.arg(),
            grad_out.arg(),
            grad_gate_up.arg(),
            width,
        );
    }
}

/// The same operation in plain f64.
pub mod reference {
    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    /// y for rows of 2·`width` columns.
    pub fn forward(gate_up: &[f64], width: usize) -> Vec<f64> {
        gate_up
            .chunks_exact(2 * width)
            .flat_map(|row| (0..width).map(|i| row[i] * sigmoid(row[i]) * row[width + i]))
            .collect()
    }

    /// The gradient in `gate_up`.
    pub fn backward(gate_up: &[f64], width: usize, grad_out: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; gate_up.len()];
        for (t, row) in gate_up.chunks_exact(2 * width).enumerate() {
            for i in 0..width {
                let (gate, up, grad) = (row[i], row[width + i], grad_out[t * width + i]);
                let s = sigmoid(gate);
                out[t * 2 * width + i] = grad * up * s * (1.0 + gate * (1.0 - s));
                out[t * 2 * width + width + i] = grad * gate * s;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
