//! Rotary position embedding (Su 2021) in the half-split convention of Hugging Face's Llama: element i of a head is
//! paired with element i + D/2, and the pair is turned by position · frequency(i), frequency(i) = θ^(−2i/D).
//!
//! Angles are computed in f64 on the host, so that long positions lose nothing to a device's own sine. Floor: the q and
//! k heads read and written once, 8·T·(Hq + Hkv)·D bytes.

use cubecl::prelude::*;

use crate::attention::AttentionShape;
use crate::device::Device;
use crate::grid;
use crate::tensor::{Ids, Tensor};

/// Cosines and sines for every position and frequency.
#[derive(Clone, Debug)]
pub struct Table<R: Runtime> {
    /// [max_positions, D/2] each.
    cosines: Tensor<R>,
    sines: Tensor<R>,
    max_positions: usize,
    half: usize,
}

/// frequency(i) = θ^(−2i/D) for i < D/2.
pub fn frequencies(theta: f64, head_dim: usize) -> Vec<f64> {
    (0..head_dim / 2).map(|i| theta.powf(-2.0 * i as f64 / head_dim as f64)).collect()
}

impl<R: Runtime> Table<R> {
    /// The table for base `theta` and positions below `max_positions`.
    pub fn new(device: &Device<R>, theta: f64, head_dim: usize, max_positions: usize) -> Self {
        Self::from_frequencies(device, &frequencies(theta, head_dim), max_positions)
    }

    /// The table for given frequencies (radians a position), one for each pair of a head: scaled variants of RoPE.
    ///
    /// # Panics
    /// Panics if there is no frequency or no position.
    pub fn from_frequencies(device: &Device<R>, frequencies: &[f64], max_positions: usize) -> Self {
        assert!(!frequencies.is_empty(), "rope::Table: `frequencies` is empty");
        assert!(max_positions > 0, "rope::Table: `max_positions` is 0");
        let half = frequencies.len();
        let angles = || (0..max_positions).flat_map(|p| frequencies.iter().map(move |f| p as f64 * f));
        let cosines: Vec<f32> = angles().map(|a| a.cos() as f32).collect();
        let sines: Vec<f32> = angles().map(|a| a.sin() as f32).collect();
        Self {
            cosines: device.tensor(&cosines, &[max_positions, half]),
            sines: device.tensor(&sines, &[max_positions, half]),
            max_positions,
            half,
        }
    }
}

#[cube(launch_unchecked)]
fn rotate_kernel(
    cosines: &Array<f32>,
    sines: &Array<f32>,
    positions: &Array<u32>,
    rows: &mut Array<f32>,
    row: usize,
    heads: usize,
    direction: f32,
    #[comptime] half: usize,
) {
    let pair = ABSOLUTE_POS % half;
    let head = (ABSOLUTE_POS / half) % heads;
    let token = ABSOLUTE_POS / (half * heads);
    if token < positions.len() {
        let angle = min(positions[token] as usize, cosines.len() / half - 1) * half + pair;
        let at = token * row + head * (2 * half) + pair;
        let c = cosines[angle];
        let s = sines[angle] * direction;
        let a = rows[at];
        let b = rows[at + half];
        rows[at] = fma(a, c, -(b * s));
        rows[at + half] = fma(b, c, a * s);
    }
}

fn rotate<R: Runtime>(
    device: &Device<R>,
    table: &Table<R>,
    positions: &Ids<R>,
    shape: &AttentionShape,
    rows: &Tensor<R>,
    direction: f32,
) {
    const OP: &str = "rope";
    rows.expect(OP, "rows", &[positions.len(), shape.row()]);
    assert!(
        table.half * 2 == shape.head_dim,
        "{OP}: `table` is for heads of {} elements, `shape` has {}",
        table.half * 2,
        shape.head_dim
    );
    if rows.is_empty() {
        return;
    }
    let heads = shape.query_heads + shape.kv_heads;
    // SAFETY: tokens are checked against `positions`, which are as many as the rows; positions are clamped to the
    // table.
    unsafe {
        rotate_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(positions.len() * heads * table.half),
            grid::cube_dim(),
            table.cosines.arg(),
            table.sines.arg(),
            positions.arg(),
            rows.arg(),
            shape.row(),
            heads,
            direction,
            table.half,
        );
    }
}

/// Turns the query and key heads of fused `rows` [T, (Hq + 2·Hkv)·D] in place; value heads stay.
///
/// `positions` `[T]` must be below the table's `max_positions`; the device uses the last position for any other.
///
/// # Panics
/// Panics if a shape differs from these, or the table is for another head size.
pub fn apply<R: Runtime>(
    device: &Device<R>,
    table: &Table<R>,
    positions: &Ids<R>,
    shape: &AttentionShape,
    rows: &Tensor<R>,
) {
    rotate(device, table, positions, shape, rows, 1.0);
}

/// Turns the heads back, as the backward pass does to the gradient of the turned rows.
///
/// # Panics
/// Panics as [`apply`] does.
pub fn apply_inverse<R: Runtime>(
    device: &Device<R>,
    table: &Table<R>,
    positions: &Ids<R>,
    shape: &AttentionShape,
    rows: &Tensor<R>,
) {
    rotate(device, table, positions, shape, rows, -1.0);
}

impl<R: Runtime> Table<R> {
    /// The number of positions the table holds.
    pub fn max_positions(&self) -> usize {
        self.max_positions
    }
}

/// The same operation in plain f64.
pub mod reference {
    use crate::attention::AttentionShape;

    /// Turns the query and key heads of fused rows; `direction` 1 forward, −1 back.
    pub fn rotate(rows: &mut [f64], shape: &AttentionShape, frequencies: &[f64], positions: &[u32], direction: f64) {
        let half = shape.head_dim / 2;
        for (row, &position) in rows.chunks_exact_mut(shape.row()).zip(positions) {
            for head in row.chunks_exact_mut(shape.head_dim).take(shape.query_heads + shape.kv_heads) {
                for i in 0..half {
                    let (s, c) = (direction * f64::from(position) * frequencies[i]).sin_cos();
                    let (a, b) = (head[i], head[i + half]);
                    head[i] = a * c - b * s;
                    head[i + half] = b * c + a * s;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
