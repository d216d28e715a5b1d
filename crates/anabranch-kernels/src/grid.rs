//! How many cubes a launch needs.

use cubecl::prelude::*;

/// Units in a cube of every kernel that gives one unit to one row or element.
pub(crate) const CUBE: u32 = 64;

/// The widest grid dimension every backend accepts is 65535; a round number below it keeps the arithmetic exact.
const MAX_WIDTH: usize = 32_768;

/// A grid of `cubes` cubes, folded into two dimensions when one is not enough. Kernels number cubes by `CUBE_POS` and
/// units by `ABSOLUTE_POS`, and skip what lies beyond their problem.
pub(crate) fn cubes(cubes: usize) -> CubeCount {
    let width = cubes.clamp(1, MAX_WIDTH);
    CubeCount::Static(width as u32, cubes.div_ceil(width).max(1) as u32, 1)
}

/// A grid with at least `units` units in cubes of [`CUBE`].
pub(crate) fn units(units: usize) -> CubeCount {
    cubes(units.div_ceil(CUBE as usize))
}

/// The shape of those cubes.
pub(crate) fn cube_dim() -> CubeDim {
    CubeDim::new_1d(CUBE)
}
