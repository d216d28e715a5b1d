//! Keys and values of sequences being generated: a fixed number of slots, each as long as the longest sequence.
//!
//! Floor of [`append`]: 16·n·Hkv·D bytes (each key and value read and written once).

use cubecl::prelude::*;

use crate::attention::{AttentionShape, Quad};
use crate::device::Device;
use crate::grid;
use crate::tensor::{Ids, Tensor};

/// The cache of one layer.
#[derive(Clone, Debug)]
pub struct KvCache<R: Runtime> {
    /// [slots, max_length, Hkv, D], after RoPE.
    pub keys: Tensor<R>,
    /// [slots, max_length, Hkv, D].
    pub values: Tensor<R>,
}

impl<R: Runtime> KvCache<R> {
    /// Room for `slots` sequences of at most `max_length` tokens. The contents are undefined until appended.
    ///
    /// # Panics
    /// Panics if `slots` or `max_length` is 0.
    pub fn new(device: &Device<R>, shape: &AttentionShape, slots: usize, max_length: usize) -> Self {
        assert!(slots > 0, "KvCache::new: `slots` is 0");
        assert!(max_length > 0, "KvCache::new: `max_length` is 0");
        let dims = [slots, max_length, shape.kv_heads, shape.head_dim];
        Self { keys: device.empty(&dims), values: device.empty(&dims) }
    }

    /// The number of sequences it holds.
    pub fn slots(&self) -> usize {
        self.keys.shape()[0]
    }

    /// The most tokens a sequence may have.
    pub fn max_length(&self) -> usize {
        self.keys.shape()[1]
    }

    pub(crate) fn expect(&self, op: &str, shape: &AttentionShape) {
        assert!(
            self.keys.shape()[2..] == [shape.kv_heads, shape.head_dim],
            "{op}: `cache` holds {} heads of {}, `shape` asks for {} of {}",
            self.keys.shape()[2],
            self.keys.shape()[3],
            shape.kv_heads,
            shape.head_dim
        );
    }
}

#[cube(launch_unchecked)]
fn append_kernel(
    qkv: &Array<Quad>,
    slots: &Array<u32>,
    positions: &Array<u32>,
    keys: &mut Array<Quad>,
    values: &mut Array<Quad>,
    max_length: usize,
    #[comptime] query: usize,
    #[comptime] cached: usize,
) {
    let at = ABSOLUTE_POS / cached;
    if at < slots.len() {
        let i = ABSOLUTE_POS % cached;
        let slot = min(slots[at] as usize, keys.len() / (max_length * cached) - 1);
        let position = min(positions[at] as usize, max_length - 1);
        let source = at * comptime!(query + 2 * cached) + query + i;
        let target = (slot * max_length + position) * cached + i;
        keys[target] = qkv[source];
        values[target] = qkv[source + cached];
    }
}

/// Copies the key and value heads of each row to its (slot, position).
///
/// Shapes: `qkv` [n, (Hq + 2·Hkv)·D] after RoPE, `slots` and `positions` `[n]`, which must lie within the cache (the
/// device clamps them) and name each place once.
///
/// # Panics
/// Panics if a shape differs from these or the cache was made for another `shape`.
pub fn append<R: Runtime>(
    device: &Device<R>,
    shape: &AttentionShape,
    qkv: &Tensor<R>,
    slots: &Ids<R>,
    positions: &Ids<R>,
    cache: &KvCache<R>,
) {
    const OP: &str = "cache::append";
    let layout = shape.layout(OP);
    let rows = shape.expect_rows(OP, "qkv", qkv);
    slots.expect(OP, "slots", &[rows]);
    positions.expect(OP, "positions", &[rows]);
    cache.expect(OP, shape);
    if rows == 0 {
        return;
    }
    let cached = layout.kv_heads * layout.head;
    // SAFETY: rows are checked against `slots`; slots and positions are clamped to the cache; shapes checked above.
    unsafe {
        append_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(rows * cached),
            grid::cube_dim(),
            qkv.arg(),
            slots.arg(),
            positions.arg(),
            cache.keys.arg(),
            cache.values.arg(),
            cache.max_length(),
            layout.query_heads * layout.head,
            cached,
        );
    }
}
