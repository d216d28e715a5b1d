//! Attention over cached keys and values: one row for each sequence being generated.

use cubecl::prelude::*;

use super::{AttentionShape, Quad, attend};
use crate::cache::KvCache;
use crate::device::Device;
use crate::grid;
use crate::rounding_barrier::GUARD;
use crate::tensor::{Ids, Tensor};

#[cube(launch_unchecked)]
fn decode_kernel(
    qkv: &Array<Quad>,
    slots: &Array<u32>,
    lengths: &Array<u32>,
    keys: &Array<Quad>,
    values: &Array<Quad>,
    out: &mut Array<Quad>,
    max_length: usize,
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
    let at = ABSOLUTE_POS / (segments * query_heads);
    if at < slots.len() {
        let row = comptime!((query_heads + 2 * kv_heads) * head);
        let cached = comptime!(kv_heads * head);
        let kv_head = query_head / comptime!(query_heads / kv_heads);
        let slot = min(slots[at] as usize, keys.len() / (max_length * cached) - 1);
        let first = slot * max_length * cached + kv_head * head;
        attend(
            qkv,
            at * row + query_head * head,
            keys,
            first,
            values,
            first + part * segment,
            cached.runtime(),
            min(lengths[at] as usize, max_length),
            scale,
            guard,
            out,
            (at * query_heads + query_head) * head + part * segment,
            head,
            segment,
        );
    }
}

/// Attention of each row's query heads over the first `lengths` entries of its slot.
///
/// Shapes: `qkv` [n, (Hq + 2·Hkv)·D] of which only the query heads are read, `slots` and `lengths` `[n]`, `out` [n,
/// Hq·D]. A row's own key and value must have been appended before, so that its length counts itself. Rows may be
/// prompt tokens as well: give each its own length. Equal, bit for bit, to [`forward`](super::forward()) on the same
/// queries and keys. Slots and lengths must lie within the cache; the device clamps them.
///
/// # Panics
/// Panics if a shape differs from these or the cache was made for another `shape`.
pub fn decode<R: Runtime>(
    device: &Device<R>,
    shape: &AttentionShape,
    qkv: &Tensor<R>,
    slots: &Ids<R>,
    lengths: &Ids<R>,
    cache: &KvCache<R>,
    out: &Tensor<R>,
) {
    const OP: &str = "attention::decode";
    let layout = shape.layout(OP);
    let rows = shape.expect_rows(OP, "qkv", qkv);
    slots.expect(OP, "slots", &[rows]);
    lengths.expect(OP, "lengths", &[rows]);
    out.expect(OP, "out", &[rows, shape.out_row()]);
    cache.expect(OP, shape);
    if rows == 0 {
        return;
    }
    // SAFETY: rows are checked against `slots`; slots and lengths are clamped to the cache; shapes checked above.
    unsafe {
        decode_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(rows * layout.query_heads * layout.segments()),
            grid::cube_dim(),
            qkv.arg(),
            slots.arg(),
            lengths.arg(),
            cache.keys.arg(),
            cache.values.arg(),
            out.arg(),
            cache.max_length(),
            shape.scale(),
            GUARD,
            layout.query_heads,
            layout.kv_heads,
            layout.head,
            layout.segment,
        );
    }
}
