//! Rows of a table by id, and back.
//!
//! [`gather`] looks up token embeddings; it also picks the rows of a hidden state that have a target, and [`scatter`]
//! puts their gradients back. Floors: gather and scatter 8·T·d bytes, gradient 4·T·d plus 8 a written element.

use std::collections::BTreeMap;

use cubecl::prelude::*;

use crate::device::Device;
use crate::grid;
use crate::tensor::{Ids, Tensor};

#[cube(launch_unchecked)]
fn gather_kernel(table: &Array<f32>, ids: &Array<u32>, out: &mut Array<f32>, width: usize) {
    if ABSOLUTE_POS < out.len() {
        let row = min(ids[ABSOLUTE_POS / width] as usize, table.len() / width - 1);
        out[ABSOLUTE_POS] = table[row * width + ABSOLUTE_POS % width];
    }
}

#[cube(launch_unchecked)]
fn scatter_kernel(rows: &Array<f32>, ids: &Array<u32>, out: &mut Array<f32>, width: usize) {
    if ABSOLUTE_POS < rows.len() {
        let row = min(ids[ABSOLUTE_POS / width] as usize, out.len() / width - 1);
        out[row * width + ABSOLUTE_POS % width] = rows[ABSOLUTE_POS];
    }
}

#[cube(launch_unchecked)]
fn gradient_kernel(
    unique: &Array<u32>,
    offsets: &Array<u32>,
    order: &Array<u32>,
    grad_out: &Array<f32>,
    grad_table: &mut Array<f32>,
    width: usize,
) {
    let entry = ABSOLUTE_POS / width;
    if entry < unique.len() {
        let column = ABSOLUTE_POS % width;
        let row = min(unique[entry] as usize, grad_table.len() / width - 1);
        let mut sum = 0.0f32;
        for i in offsets[entry]..offsets[entry + 1] {
            sum += grad_out[order[i as usize] as usize * width + column];
        }
        grad_table[row * width + column] += sum;
    }
}

/// `out[t] = table[ids[t]]` for `table` [V, d], `ids` `[T]`, `out` [T, d].
///
/// Ids must be below V; the device reads the last row for any other, so check them on the host.
///
/// # Panics
/// Panics if a shape differs from these, or the table is empty.
pub fn gather<R: Runtime>(device: &Device<R>, table: &Tensor<R>, ids: &Ids<R>, out: &Tensor<R>) {
    const OP: &str = "embedding::gather";
    let (_, width) = table.matrix(OP, "table");
    out.expect(OP, "out", &[ids.len(), width]);
    if out.is_empty() {
        return;
    }
    assert!(!table.is_empty(), "{OP}: `table` is empty");
    // SAFETY: elements are checked against `out`, whose rows are as many as `ids`; table rows are clamped.
    unsafe {
        gather_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(out.len()),
            grid::cube_dim(),
            table.arg(),
            ids.arg(),
            out.arg(),
            width,
        );
    }
}

/// `out[ids[i]] = rows[i]` for `rows` [n, d], `ids` `[n]`, `out` [T, d]; the other rows of `out` keep what they hold.
///
/// Ids must be distinct and below T: with equal ids it is undefined which row stays.
///
/// # Panics
/// Panics if a shape differs from these, or `out` is empty.
pub fn scatter<R: Runtime>(device: &Device<R>, rows: &Tensor<R>, ids: &Ids<R>, out: &Tensor<R>) {
    const OP: &str = "embedding::scatter";
    let (_, width) = out.matrix(OP, "out");
    rows.expect(OP, "rows", &[ids.len(), width]);
    if rows.is_empty() {
        return;
    }
    assert!(!out.is_empty(), "{OP}: `out` is empty");
    // SAFETY: elements are checked against `rows`, which are as many as `ids`; target rows are clamped.
    unsafe {
        scatter_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(rows.len()),
            grid::cube_dim(),
            rows.arg(),
            ids.arg(),
            out.arg(),
            width,
        );
    }
}

/// The tokens of a batch grouped by id, so that the table's gradient needs no atomic addition.
#[derive(Clone, Debug)]
pub struct Occurrences<R: Runtime> {
    tokens: usize,
    unique: Ids<R>,
    offsets: Ids<R>,
    order: Ids<R>,
}

impl<R: Runtime> Occurrences<R> {
    /// Groups the ids of a batch: within one id, in the order of the batch.
    pub fn new(device: &Device<R>, ids: &[u32]) -> Self {
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (token, &id) in ids.iter().enumerate() {
            groups.entry(id).or_default().push(token as u32);
        }
        let unique: Vec<u32> = groups.keys().copied().collect();
        let mut offsets = vec![0u32];
        let mut order = Vec::with_capacity(ids.len());
        for tokens in groups.values() {
            order.extend(tokens);
            offsets.push(order.len() as u32);
        }
        Self {
            tokens: ids.len(),
            unique: device.ids(&unique),
            offsets: device.ids(&offsets),
            order: device.ids(&order),
        }
    }
}

/// `grad_table[v] += Σ grad_out[t]` over the tokens t with id v, in the order of the batch.
///
/// Shapes: `grad_out` [T, d] for the T ids the [`Occurrences`] were made of, `grad_table` [V, d]. Ids must be below V.
///
/// # Panics
/// Panics if a shape differs from these, or the table is empty.
pub fn gradient<R: Runtime>(
    device: &Device<R>,
    occurrences: &Occurrences<R>,
    grad_out: &Tensor<R>,
    grad_table: &Tensor<R>,
) {
    const OP: &str = "embedding::gradient";
    let (_, width) = grad_table.matrix(OP, "grad_table");
    grad_out.expect(OP, "grad_out", &[occurrences.tokens, width]);
    if grad_out.is_empty() {
        return;
    }
    assert!(!grad_table.is_empty(), "{OP}: `grad_table` is empty");
    // SAFETY: entries are checked against `unique`, `order` holds token numbers below T, table rows are clamped.
    unsafe {
        gradient_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(occurrences.unique.len() * width),
            grid::cube_dim(),
            occurrences.unique.arg(),
            occurrences.offsets.arg(),
            occurrences.order.arg(),
            grad_out.arg(),
            grad_table.arg(),
            width,
        );
    }
}

/// The same operations in plain f64.
pub mod reference {
    /// The rows of `table` named by `ids`.
    pub fn gather(table: &[f64], width: usize, ids: &[u32]) -> Vec<f64> {
        ids.iter().flat_map(|&id| &table[id as usize * width..][..width]).copied().collect()
    }

    /// The gradient in a table of `rows` rows.
    pub fn gradient(rows: usize, width: usize, ids: &[u32], grad_out: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; rows * width];
        for (&id, grad) in ids.iter().zip(grad_out.chunks_exact(width)) {
            for (sum, g) in out[id as usize * width..][..width].iter_mut().zip(grad) {
                *sum += g;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
