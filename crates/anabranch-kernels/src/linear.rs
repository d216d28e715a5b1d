//! Products with a weight `[out, in]` in the layout of Hugging Face's linear layers, through cubek-matmul.
//!
//! | function | product | shapes |
//! |---|---|---|
//! | [`forward`] | y = x · Wᵀ | [T, in] · [in, out] |
//! | [`grad_input`] | dx = dy · W | [T, out] · [out, in] |
//! | [`grad_weight`] | dW = dyᵀ · x | [out, T] · [T, in] |
//!
//! One tiling serves every shape, every row count and every runtime: cubek's register-tile matmul with its blueprint
//! given rather than inferred. The inferred one depends on the number of rows, so that a row could change its bits with
//! its batch, and every new size would compile another kernel. No autotuning, no tensor cores (f32 there means TF32).
//! An output element is one chain of multiply-adds along the inner dimension, whatever else the launch computes.
//!
//! Floor: 2·T·in·out operations over the runtime's matmul rate. Measured on two shared cores of lavapipe at the demo's
//! shapes (5120 rows, 64 × 64 to 64 × 320), with cubek's own choice of tiling for each strategy: `SimpleUnit`, the
//! routine used here, and `Auto` take about as long as one another; `DoubleUnit` 1.1 to 2 times as long; a register
//! tile of our own without barriers 2 to 4 times; `Naive` 7 to 16 times. The tiling below was fixed for its short
//! compilation and was not tuned further.

use cubecl::prelude::*;
use cubek_matmul::components::stage::PartitionBuffering;
use cubek_matmul::components::tile::TileMatmulKind;
use cubek_matmul::definition::{MatmulElems, MatmulProblem, TilingBlueprint, TilingScheme};
use cubek_matmul::launch::launch_tiling::launch_ref;
use cubek_matmul::routines::BlueprintStrategy;
use cubek_matmul::routines::simple_unit::SimpleUnitAlgorithm;
use cubek_std::{InputBinding, MatrixLayout};

use crate::device::Device;
use crate::elementwise;
use crate::tensor::Tensor;

/// How a product treats the values that its output already holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// Replaces them.
    Overwrite,
    /// Adds to them (one launch more).
    Add,
}

/// The register tile of one unit step, the tiles of one unit and the units of one cube, along (m, n, k). Inner
/// dimensions are walked 8 at a time between barriers. Larger partitions take many seconds to compile and gain nothing
/// at small sizes.
const TILE: (u32, u32, u32) = (4, 4, 4);
const PARTITION: (u32, u32, u32) = (2, 2, 2);
const STAGE: (u32, u32, u32) = (8, 8, 1);

/// A matrix as stored, or read along its columns.
struct Operand<'a, R: Runtime> {
    tensor: &'a Tensor<R>,
    transposed: bool,
}

impl<R: Runtime> Operand<'_, R> {
    /// (rows, columns) as the product sees them.
    fn sizes(&self) -> (usize, usize) {
        let (rows, columns) = self.tensor.matrix("linear", "operand");
        if self.transposed { (columns, rows) } else { (rows, columns) }
    }

    fn layout(&self) -> MatrixLayout {
        if self.transposed { MatrixLayout::ColMajor } else { MatrixLayout::RowMajor }
    }

    fn binding(&self) -> TensorBinding<R> {
        let (rows, columns) = self.sizes();
        let strides = if self.transposed { [1, rows] } else { [columns, 1] };
        // SAFETY: shape and strides describe the tensor's own contiguous elements, along rows or along columns.
        unsafe { TensorBinding::from_raw_parts(self.tensor.handle().clone(), strides.into(), [rows, columns].into()) }
    }
}

/// out = a · b
fn product<R: Runtime>(device: &Device<R>, op: &str, a: &Operand<R>, b: &Operand<R>, out: &Tensor<R>) {
    let element = f32::as_type_native_unchecked().storage_type();
    let mut elements = MatmulElems::from_single_dtype(f32::as_type_native_unchecked());
    let ((m, k), (_, n)) = (a.sizes(), b.sizes());
    let problem = MatmulProblem::from_parameters(
        m,
        n,
        k,
        [1usize; 0].into(),
        [1usize; 0].into(),
        a.layout(),
        b.layout(),
        MatrixLayout::RowMajor,
        None,
        None,
        elements.as_global_elems(),
        AddressType::U32,
    );
    let plane = device.client().properties().hardware.plane_size_min;
    let scheme = TilingScheme::builder()
        .with_tile_size(TILE.into())
        .with_partition_size(PARTITION.into())
        .with_stage_size(STAGE.into())
        .build()
        .expect("all sizes are given");
    let mut blueprint = TilingBlueprint::builder(TileMatmulKind::Register, scheme, plane, &problem)
        .partition_buffering(PartitionBuffering::Single)
        .build();
    // Checked whether or not the sizes divide, so that they compile to one kernel.
    blueprint.check_m_bounds = true;
    blueprint.check_n_bounds = true;
    blueprint.check_k_bounds = true;
    // The routine itself rather than cubek's `Strategy`, which would compile every algorithm it knows.
    launch_ref::<R, SimpleUnitAlgorithm>(
        device.client(),
        InputBinding::new(a.binding(), element),
        InputBinding::new(b.binding(), element),
        Operand { tensor: out, transposed: false }.binding(),
        &BlueprintStrategy::Forced(blueprint),
        &mut elements,
    )
    .unwrap_or_else(|error| panic!("{op}: cubek refuses [{m}, {k}] x [{k}, {n}]: {error:?}"));
}

fn write<R: Runtime>(device: &Device<R>, op: &str, a: &Operand<R>, b: &Operand<R>, out: &Tensor<R>, mode: Write) {
    if out.is_empty() {
        return;
    }
    if a.tensor.is_empty() {
        if mode == Write::Overwrite {
            elementwise::fill(device, 0.0, out);
        }
        return;
    }
    match mode {
        Write::Overwrite => product(device, op, a, b, out),
        Write::Add => {
            let result = device.empty(out.shape());
            product(device, op, a, b, &result);
            elementwise::add(device, &result, out);
        }
    }
}

/// y = x · Wᵀ for `x` [T, in], `weight` [out, in], `y` [T, out]. A row of `y` has the same bits whatever T is.
///
/// # Panics
/// Panics if a shape differs from these.
pub fn forward<R: Runtime>(device: &Device<R>, x: &Tensor<R>, weight: &Tensor<R>, y: &Tensor<R>, mode: Write) {
    const OP: &str = "linear::forward";
    let (rows, inner) = x.matrix(OP, "x");
    let (columns, _) = weight.matrix(OP, "weight");
    weight.expect(OP, "weight", &[columns, inner]);
    y.expect(OP, "y", &[rows, columns]);
    let (a, b) = (Operand { tensor: x, transposed: false }, Operand { tensor: weight, transposed: true });
    write(device, OP, &a, &b, y, mode);
}

/// dx = dy · W for `grad_y` [T, out], `weight` [out, in], `grad_x` [T, in].
///
/// # Panics
/// Panics if a shape differs from these.
pub fn grad_input<R: Runtime>(
    device: &Device<R>,
    grad_y: &Tensor<R>,
    weight: &Tensor<R>,
    grad_x: &Tensor<R>,
    mode: Write,
) {
    const OP: &str = "linear::grad_input";
    let (rows, inner) = grad_y.matrix(OP, "grad_y");
    let (_, columns) = weight.matrix(OP, "weight");
    weight.expect(OP, "weight", &[inner, columns]);
    grad_x.expect(OP, "grad_x", &[rows, columns]);
    let (a, b) = (Operand { tensor: grad_y, transposed: false }, Operand { tensor: weight, transposed: false });
    write(device, OP, &a, &b, grad_x, mode);
}

/// dW = dyᵀ · x for `grad_y` [T, out], `x` [T, in], `grad_weight` [out, in].
///
/// # Panics
/// Panics if a shape differs from these.
pub fn grad_weight<R: Runtime>(
    device: &Device<R>,
    grad_y: &Tensor<R>,
    x: &Tensor<R>,
    grad_weight: &Tensor<R>,
    mode: Write,
) {
    const OP: &str = "linear::grad_weight";
    let (tokens, rows) = grad_y.matrix(OP, "grad_y");
    let (_, columns) = x.matrix(OP, "x");
    x.expect(OP, "x", &[tokens, columns]);
    grad_weight.expect(OP, "grad_weight", &[rows, columns]);
    let (a, b) = (Operand { tensor: grad_y, transposed: true }, Operand { tensor: x, transposed: false });
    write(device, OP, &a, &b, grad_weight, mode);
}

#[cfg(test)]
mod tests;
