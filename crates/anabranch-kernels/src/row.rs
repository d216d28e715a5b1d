//! The division of one row of a matrix among units, and the sums over it.
//!
//! A short row belongs to one unit, which needs no barrier (barriers are dear on a software rasteriser); a long row to
//! a cube of [`WIDE`] units. The choice depends on the row's length alone, never on how many rows there are: that is
//! what keeps a row's result the same in every batch.

use cubecl::prelude::*;

use crate::grid;

/// Units that share a long row. A power of two.
const WIDE: u32 = 64;

/// Rows up to this length belong to one unit.
const SHORT: usize = 512;

/// Units that share a row of `length` elements.
pub(crate) fn lanes(length: usize) -> u32 {
    if length <= SHORT { 1 } else { WIDE }
}

/// The launch grid for `rows` rows of `lanes` units each.
pub(crate) fn grid(rows: usize, lanes: u32) -> (CubeCount, CubeDim) {
    if lanes == 1 { (grid::units(rows), grid::cube_dim()) } else { (grid::cubes(rows), CubeDim::new_1d(lanes)) }
}

/// The row of this unit (may lie beyond the last row: the caller checks).
#[cube]
pub(crate) fn index(#[comptime] lanes: u32) -> usize {
    if comptime!(lanes == 1) { ABSOLUTE_POS } else { CUBE_POS }
}

/// This unit's place among those sharing the row.
#[cube]
pub(crate) fn lane(#[comptime] lanes: u32) -> usize {
    if comptime!(lanes == 1) { 0usize.runtime() } else { UNIT_POS as usize }
}

/// The sum of `value` over the units of the row, in a fixed tree order. Every unit of the cube must call it.
#[cube]
pub(crate) fn sum(value: f32, #[comptime] lanes: u32) -> f32 {
    let mut total = value;
    if comptime!(lanes > 1) {
        let mut shared = SharedMemory::<f32>::new(comptime!(lanes as usize));
        shared[UNIT_POS as usize] = value;
        sync_cube();
        let mut stride = comptime!(lanes / 2).runtime();
        while stride > 0 {
            if UNIT_POS < stride {
                shared[UNIT_POS as usize] += shared[(UNIT_POS + stride) as usize];
            }
            sync_cube();
            stride /= 2;
        }
        total = shared[0];
        sync_cube();
    }
    total
}

/// The largest `value` over the units of the row. Every unit of the cube must call it.
#[cube]
pub(crate) fn max(value: f32, #[comptime] lanes: u32) -> f32 {
    let mut largest = value;
    if comptime!(lanes > 1) {
        let mut shared = SharedMemory::<f32>::new(comptime!(lanes as usize));
        shared[UNIT_POS as usize] = value;
        sync_cube();
        let mut stride = comptime!(lanes / 2).runtime();
        while stride > 0 {
            if UNIT_POS < stride {
                shared[UNIT_POS as usize] = f32::max(shared[UNIT_POS as usize], shared[(UNIT_POS + stride) as usize]);
            }
            sync_cube();
            stride /= 2;
        }
        largest = shared[0];
        sync_cube();
    }
    largest
}
