//! The forward pass over packed sequences: training and prefill.

use cubecl::prelude::*;

use super::{AttentionShape, Quad, attend};
use crate::device::Device;
use crate::grid;
use crate::packing::Packing;
use crate::rounding_barrier::GUARD;
use crate::tensor::Tensor;

#[cube(launch_unchecked)]
fn forward_kernel(
    qkv: &Array<Quad>,
    starts: &Array<u32>,
    out: &mut Array<Quad>,
    log_sums: &mut Array<f32>,
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
        let start = starts[token] as usize;
        let kv_head = query_head / comptime!(query_heads / kv_heads);
        let log_sum = attend(
            qkv,
            token * row + query_head * head,
            qkv,
            start * row + (query_heads + kv_head) * head,
            qkv,
            start * row + (comptime!(query_heads + kv_heads) + kv_head) * head + part * segment,
            row.runtime(),
            token - start + 1,
            scale,
            guard,
            out,
            (token * query_heads + query_head) * head + part * segment,
            head,
            segment,
        );
        if part == 0 {
            log_sums[token * query_heads + query_head] = log_sum;
        }
    }
}

/// Causal attention within each packed sequence.
///
/// Shapes: `qkv` [T, (Hq + 2·Hkv)·D] (after RoPE), `out` [T, Hq·D], `log_sums` [T, Hq] (the log of each query's summed
/// exponentiated scores, which [`backward`](super::backward()) needs). A token's result depends on its own sequence
/// alone, bit for bit.
///
/// # Panics
/// Panics if a shape differs from these or `shape` is unusable.
pub fn forward<R: Runtime>(
    device: &Device<R>,
    shape: &AttentionShape,
    qkv: &Tensor<R>,
    packing: &Packing<R>,
    out: &Tensor<R>,
    log_sums: &Tensor<R>,
) {
    const OP: &str = "attention::forward";
    let layout = shape.layout(OP);
    let tokens = packing.tokens();
    qkv.expect(OP, "qkv", &[tokens, shape.row()]);
    out.expect(OP, "out", &[tokens, shape.out_row()]);
    log_sums.expect(OP, "log_sums", &[tokens, shape.query_heads]);
    if tokens == 0 {
        return;
    }
    // SAFETY: tokens are checked against `starts`; a packing's starts are never after their token; shapes checked
    // above.
    unsafe {
        forward_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(tokens * layout.query_heads * layout.segments()),
            grid::cube_dim(),
            qkv.arg(),
            packing.starts.arg(),
            out.arg(),
            log_sums.arg(),
            shape.scale(),
            GUARD,
            layout.query_heads,
            layout.kv_heads,
            layout.head,
            layout.segment,
        );
    }
}
