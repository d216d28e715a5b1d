//! The products through cubek-matmul.

use cubecl::prelude::*;
use cubek_matmul::definition::MatmulElems;
use cubek_matmul::launch::{Strategy, launch_ref};
use cubek_std::InputBinding;

use crate::device::Device;
use crate::tensor::Tensor;

fn binding<R: Runtime>(tensor: &Tensor<R>, rows: usize, columns: usize, transposed: bool) -> TensorBinding<R> {
    let (shape, strides) = if transposed {
        ([columns, rows], [1, columns])
    } else {
        ([rows, columns], [columns, 1])
    };
    // SAFETY: shape and strides describe the same contiguous elements, read along rows or along columns.
    unsafe { TensorBinding::from_raw_parts(tensor.handle().clone(), strides.into(), shape.into()) }
}

/// out = op(a) · op(b)
pub fn product<R: Runtime>(device: &Device<R>, strategy: &Strategy, a: &Tensor<R>, a_transposed: bool, b: &Tensor<R>, b_transposed: bool, out: &Tensor<R>) {
    let (ar, ac) = a.matrix("linear", "a");
    let (br, bc) = b.matrix("linear", "b");
    let (or, oc) = out.matrix("linear", "out");
    let f32_type = f32::as_type_native_unchecked();
    let mut dtypes = MatmulElems::from_single_dtype(f32_type);
    launch_ref(
        strategy,
        device.client(),
        InputBinding::new(binding(a, ar, ac, a_transposed), f32_type.storage_type()),
        InputBinding::new(binding(b, br, bc, b_transposed), f32_type.storage_type()),
        binding(out, or, oc, false),
        &mut dtypes,
    )
    .expect("matmul");
}
