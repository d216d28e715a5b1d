//! Adds up partial sums in a fixed order: the second half of a sum over many rows.

use cubecl::prelude::*;

use crate::device::Device;
use crate::grid;
use crate::tensor::Tensor;

#[cube(launch_unchecked)]
fn reduce_kernel(partial: &Array<f32>, out: &mut Array<f32>, slabs: usize, #[comptime] add: bool) {
    let width = out.len();
    if ABSOLUTE_POS < width {
        let mut sum = 0.0f32;
        for slab in 0..slabs {
            sum += partial[slab * width + ABSOLUTE_POS];
        }
        if comptime!(add) {
            sum += out[ABSOLUTE_POS];
        }
        out[ABSOLUTE_POS] = sum;
    }
}

/// out ← (out if `add`) + Σ over the first dimension of `partial` [slabs, out.len()].
pub(crate) fn reduce<R: Runtime>(device: &Device<R>, partial: &Tensor<R>, out: &Tensor<R>, add: bool) {
    let slabs = partial.shape()[0];
    debug_assert_eq!(partial.len(), slabs * out.len());
    if out.is_empty() {
        return;
    }
    // SAFETY: columns are checked against `out`, and `partial` holds `slabs` rows of that many columns.
    unsafe {
        reduce_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(out.len()),
            grid::cube_dim(),
            partial.arg(),
            out.arg(),
            slabs,
            add,
        );
    }
}
