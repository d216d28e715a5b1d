//! Register-tile products without barriers.

use cubecl::prelude::*;

use crate::device::Device;
use crate::tensor::Tensor;

type V4 = Vector<f32, Const<4>>;

#[cube(launch_unchecked)]
fn forward_kernel(x: &Array<V4>, w: &Array<V4>, y: &mut Array<f32>, rows: usize, columns: usize, quads: usize, #[comptime] tile: usize, #[comptime] add: bool) {
    let column = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let first = CUBE_POS_Y as usize * tile;
    if column < columns {
        let mut sums = Array::<f32>::new(tile);
        #[unroll]
        for r in 0..tile {
            sums[r] = 0.0;
        }
        for k in 0..quads {
            let b = w[column * quads + k];
            #[unroll]
            for r in 0..tile {
                let a = x[min(first + r, rows - 1) * quads + k];
                let s = fma(a[0], b[0], sums[r]);
                let s = fma(a[1], b[1], s);
                let s = fma(a[2], b[2], s);
                sums[r] = fma(a[3], b[3], s);
            }
        }
        #[unroll]
        for r in 0..tile {
            if first + r < rows {
                let at = (first + r) * columns + column;
                if add {
                    y[at] += sums[r];
                } else {
                    y[at] = sums[r];
                }
            }
        }
    }
}

#[cube(launch_unchecked)]
fn grad_input_kernel(dy: &Array<V4>, w: &Array<f32>, dx: &mut Array<f32>, rows: usize, columns: usize, quads: usize, #[comptime] tile: usize, #[comptime] add: bool) {
    let column = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let first = CUBE_POS_Y as usize * tile;
    if column < columns {
        let mut sums = Array::<f32>::new(tile);
        #[unroll]
        for r in 0..tile {
            sums[r] = 0.0;
        }
        for k in 0..quads {
            let b0 = w[(4 * k) * columns + column];
            let b1 = w[(4 * k + 1) * columns + column];
            let b2 = w[(4 * k + 2) * columns + column];
            let b3 = w[(4 * k + 3) * columns + column];
            #[unroll]
            for r in 0..tile {
                let a = dy[min(first + r, rows - 1) * quads + k];
                let s = fma(a[0], b0, sums[r]);
                let s = fma(a[1], b1, s);
                let s = fma(a[2], b2, s);
                sums[r] = fma(a[3], b3, s);
            }
        }
        #[unroll]
        for r in 0..tile {
            if first + r < rows {
                let at = (first + r) * columns + column;
                if add {
                    dx[at] += sums[r];
                } else {
                    dx[at] = sums[r];
                }
            }
        }
    }
}

#[cube(launch_unchecked)]
fn grad_weight_kernel(dy: &Array<V4>, x: &Array<f32>, partial: &mut Array<f32>, tokens: usize, outs: usize, ins: usize, #[comptime] tile4: usize, #[comptime] slab: usize) {
    let column = (CUBE_POS_X * CUBE_DIM_X + UNIT_POS_X) as usize;
    let first = CUBE_POS_Y as usize * tile4; // in quads of outputs
    let quads = outs / 4;
    if column < ins {
        let mut sums = Array::<f32>::new(comptime!(tile4 * 4));
        #[unroll]
        for r in 0..comptime!(tile4 * 4) {
            sums[r] = 0.0;
        }
        let begin = CUBE_POS_Z as usize * slab;
        let end = min(begin + slab, tokens);
        for t in begin..end {
            let b = x[t * ins + column];
            #[unroll]
            for r in 0..tile4 {
                let a = dy[t * quads + min(first + r, quads - 1)];
                sums[comptime!(r * 4)] = fma(a[0], b, sums[comptime!(r * 4)]);
                sums[comptime!(r * 4 + 1)] = fma(a[1], b, sums[comptime!(r * 4 + 1)]);
                sums[comptime!(r * 4 + 2)] = fma(a[2], b, sums[comptime!(r * 4 + 2)]);
                sums[comptime!(r * 4 + 3)] = fma(a[3], b, sums[comptime!(r * 4 + 3)]);
            }
        }
        #[unroll]
        for r in 0..tile4 {
            if first + r < quads {
                #[unroll]
                for j in 0..4usize {
                    partial[(CUBE_POS_Z as usize * outs + (first + r) * 4 + j) * ins + column] = sums[comptime!(r * 4 + j)];
                }
            }
        }
    }
}

pub fn forward<R: Runtime>(device: &Device<R>, x: &Tensor<R>, w: &Tensor<R>, y: &Tensor<R>, tile: usize, lanes: u32) {
    let (m, k) = x.matrix("", "x");
    let (n, _) = w.matrix("", "w");
    let (cx, cy) = (n.div_ceil(lanes as usize) as u32, m.div_ceil(tile) as u32);
    unsafe { forward_kernel::launch_unchecked::<R>(device.client(), CubeCount::Static(cx, cy, 1), CubeDim::new_1d(lanes), x.arg_by(4), w.arg_by(4), y.arg(), m, n, k / 4, tile, false) };
}
pub fn grad_input<R: Runtime>(device: &Device<R>, dy: &Tensor<R>, w: &Tensor<R>, dx: &Tensor<R>, tile: usize, lanes: u32) {
    let (m, k) = dy.matrix("", "x");
    let (_, n) = w.matrix("", "w");
    let (cx, cy) = (n.div_ceil(lanes as usize) as u32, m.div_ceil(tile) as u32);
    unsafe { grad_input_kernel::launch_unchecked::<R>(device.client(), CubeCount::Static(cx, cy, 1), CubeDim::new_1d(lanes), dy.arg_by(4), w.arg(), dx.arg(), m, n, k / 4, tile, false) };
}
pub fn grad_weight<R: Runtime>(device: &Device<R>, dy: &Tensor<R>, x: &Tensor<R>, partial: &Tensor<R>, tile: usize, lanes: u32, slab: usize) {
    let (m, o) = dy.matrix("", "x");
    let (_, n) = x.matrix("", "w");
    let (cx, cy) = (n.div_ceil(lanes as usize) as u32, (o / 4).div_ceil(tile / 4) as u32);
    unsafe { grad_weight_kernel::launch_unchecked::<R>(device.client(), CubeCount::Static(cx, cy, m.div_ceil(slab) as u32), CubeDim::new_1d(lanes), dy.arg_by(4), x.arg(), partial.arg(), m, o, n, tile / 4, slab) };
}
