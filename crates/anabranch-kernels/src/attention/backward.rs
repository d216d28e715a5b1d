//! The backward pass over packed sequences (Dao 2022, without tiles): scores are computed again from the saved log
//! sums.
//!
//! For each query: p_j = e^(s_j − log sum), δ = dO·O, ds_j = p_j·(dO·v_j − δ)/√D; then dq = Σ_j ds_j·k_j, dk_j = Σ
//! ds_j·q and dv_j = Σ p_j·dO, the last two over the queries at or after j and the query heads that share the key head.
//! The first kernel gives each query segment to a unit, the second each key segment: no unit adds to another's output.

use cubecl::prelude::*;

use super::{AttentionShape, Quad, scaled_dot};
use crate::device::Device;
use crate::grid;
use crate::packing::Packing;
use crate::rounding_barrier::GUARD;
use crate::tensor::Tensor;

#[cube(launch_unchecked)]
fn query_kernel(
    qkv: &Array<Quad>,
    out: &Array<Quad>,
    log_sums: &Array<f32>,
    grad_out: &Array<Quad>,
    starts: &Array<u32>,
    grad_qkv: &mut Array<Quad>,
    deltas: &mut Array<f32>,
    scale: f32,
    guard: u32,
    #[comptime] query_heads: usize,
    #[comptime] kv_heads: usize,
    #[comptime] head: usize,
    #[comptime] segment: usize,
) {
    let segments = comptime!(head / segment);
    let part = ABSOLUTE_POS % segments;
    let query_head = (ABSOLUTE_POS / segments) % query_heads;
    let token = ABSOLUTE_POS / (segments * query_heads);
    if token < starts.len() {
        let row = comptime!((query_heads + 2 * kv_heads) * head);
        let kv_head = query_head / comptime!(query_heads / kv_heads);
        let key = (query_heads + kv_head) * head;
        let value = key + comptime!(kv_heads * head);
        let query_at = token * row + query_head * head;
        let out_at = (token * query_heads + query_head) * head;
        let delta = scaled_dot(out, out_at, grad_out, out_at, 1.0f32.runtime(), guard, head, segment);
        let log_sum = log_sums[token * query_heads + query_head];
        let mut sums = Array::<Quad>::new(segment);
        #[unroll]
        for i in 0..segment {
            sums[i] = Quad::new(0.0);
        }
        for s in starts[token] as usize..token + 1 {
            let score = scaled_dot(qkv, query_at, qkv, s * row + key, scale, guard, head, segment);
            let pull = scaled_dot(grad_out, out_at, qkv, s * row + value, 1.0f32.runtime(), guard, head, segment);
            let grad_score = f32::exp(score - log_sum) * (pull - delta) * scale;
            #[unroll]
            for i in 0..segment {
                sums[i] = fma(qkv[s * row + key + part * segment + i], Quad::new(grad_score), sums[i]);
            }
        }
        #[unroll]
        for i in 0..segment {
            grad_qkv[query_at + part * segment + i] = sums[i];
        }
        if part == 0 {
            deltas[token * query_heads + query_head] = delta;
        }
    }
}

#[cube(launch_unchecked)]
fn key_value_kernel(
    qkv: &Array<Quad>,
    log_sums: &Array<f32>,
    deltas: &Array<f32>,
    grad_out: &Array<Quad>,
    ends: &Array<u32>,
    grad_qkv: &mut Array<Quad>,
    scale: f32,
    guard: u32,
    #[comptime] query_heads: usize,
    #[comptime] kv_heads: usize,
    #[comptime] head: usize,
    #[comptime] segment: usize,
) {
    let segments = comptime!(head / segment);
    let part = ABSOLUTE_POS % segments;
    let kv_head = (ABSOLUTE_POS / segments) % kv_heads;
    let token = ABSOLUTE_POS / (segments * kv_heads);
    if token < ends.len() {
        let row = comptime!((query_heads + 2 * kv_heads) * head);
        let group = comptime!(query_heads / kv_heads);
        let key_at = token * row + (query_heads + kv_head) * head;
        let value_at = key_at + comptime!(kv_heads * head);
        let mut key_sums = Array::<Quad>::new(segment);
        let mut value_sums = Array::<Quad>::new(segment);
        #[unroll]
        for i in 0..segment {
            key_sums[i] = Quad::new(0.0);
            value_sums[i] = Quad::new(0.0);
        }
        for query_head in kv_head * group..(kv_head + 1) * group {
            for t in token..ends[token] as usize {
                let query_at = t * row + query_head * head;
                let out_at = (t * query_heads + query_head) * head;
                let score = scaled_dot(qkv, query_at, qkv, key_at, scale, guard, head, segment);
                let pull = scaled_dot(grad_out, out_at, qkv, value_at, 1.0f32.runtime(), guard, head, segment);
                let weight = f32::exp(score - log_sums[t * query_heads + query_head]);
                let grad_score = weight * (pull - deltas[t * query_heads + query_head]) * scale;
                #[unroll]
                for i in 0..segment {
                    key_sums[i] = fma(qkv[query_at + part * segment + i], Quad::new(grad_score), key_sums[i]);
                    value_sums[i] = fma(grad_out[out_at + part * segment + i], Quad::new(weight), value_sums[i]);
                }
            }
        }
        #[unroll]
        for i in 0..segment {
            grad_qkv[key_at + part * segment + i] = key_sums[i];
            grad_qkv[value_at + part * segment + i] = value_sums[i];
        }
    }
}

/// Writes the gradient in every head of `qkv`, given the gradient in [`forward`](super::forward())'s output.
///
/// Shapes: `qkv` and `grad_qkv` [T, (Hq + 2·Hkv)·D], `out` and `grad_out` [T, Hq·D], `log_sums` [T, Hq], `out` and
/// `log_sums` as the forward pass left them. `grad_qkv` is overwritten whole. The order of every sum is fixed.
///
/// # Panics
/// Panics if a shape differs from these or `shape` is unusable.
#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub fn backward<R: Runtime>(
    device: &Device<R>,
    shape: &AttentionShape,
    qkv: &Tensor<R>,
    out: &Tensor<R>,
    log_sums: &Tensor<R>,
    grad_out: &Tensor<R>,
    packing: &Packing<R>,
    grad_qkv: &Tensor<R>,
) {
    const OP: &str = "attention::backward";
    let layout = shape.layout(OP);
    let tokens = packing.tokens();
    qkv.expect(OP, "qkv", &[tokens, shape.row()]);
    out.expect(OP, "out", &[tokens, shape.out_row()]);
    log_sums.expect(OP, "log_sums", &[tokens, shape.query_heads]);
    grad_out.expect(OP, "grad_out", &[tokens, shape.out_row()]);
    grad_qkv.expect(OP, "grad_qkv", &[tokens, shape.row()]);
    if tokens == 0 {
        return;
    }
    let deltas = device.empty(&[tokens, shape.query_heads]);
    // SAFETY: tokens are checked against the packing, whose starts and ends lie within it; shapes are checked above.
    unsafe {
        query_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(tokens * layout.query_heads * layout.segments()),
            grid::cube_dim(),
            qkv.arg(),
            out.arg(),
            log_sums.arg(),
            grad_out.arg(),
            packing.starts.arg(),
            grad_qkv.arg(),
            deltas.arg(),
            shape.scale(),
            GUARD,
            layout.query_heads,
            layout.kv_heads,
            layout.head,
            layout.segment,
        );
        key_value_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(tokens * layout.kv_heads * layout.segments()),
            grid::cube_dim(),
            qkv.arg(),
            log_sums.arg(),
            deltas.arg(),
            grad_out.arg(),
            packing.ends.arg(),
            grad_qkv.arg(),
            shape.scale(),
            GUARD,
            layout.query_heads,
            layout.kv_heads,
            layout.head,
            layout.segment,
        );
    }
}
