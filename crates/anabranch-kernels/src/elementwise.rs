//! Fill, copy and scaled addition over flat buffers. Each reads its inputs once and writes its output once; the floor
//! is 4 bytes an element for [`fill`], 8 for [`copy`], 12 for [`add()`] and [`axpy`].

use cubecl::prelude::*;

use crate::device::Device;
use crate::grid;
use crate::tensor::Tensor;

#[cube(launch_unchecked)]
fn fill_kernel(out: &mut Array<f32>, value: f32) {
    if ABSOLUTE_POS < out.len() {
        out[ABSOLUTE_POS] = value;
    }
}

#[cube(launch_unchecked)]
fn copy_kernel(source: &Array<f32>, target: &mut Array<f32>) {
    if ABSOLUTE_POS < target.len() {
        target[ABSOLUTE_POS] = source[ABSOLUTE_POS];
    }
}

#[cube(launch_unchecked)]
fn axpy_kernel(x: &Array<f32>, y: &mut Array<f32>, factor: f32) {
    if ABSOLUTE_POS < y.len() {
        y[ABSOLUTE_POS] = fma(x[ABSOLUTE_POS], factor, y[ABSOLUTE_POS]);
    }
}

/// Sets every element of `out` to `value`.
pub fn fill<R: Runtime>(device: &Device<R>, value: f32, out: &Tensor<R>) {
    if out.is_empty() {
        return;
    }
    // SAFETY: the kernel checks its index against the length of `out`.
    unsafe {
        fill_kernel::launch_unchecked::<R>(device.client(), grid::units(out.len()), grid::cube_dim(), out.arg(), value);
    }
}

/// Copies `source` into `target`, device to device, as a publication of weights does.
///
/// # Panics
/// Panics if the shapes differ.
pub fn copy<R: Runtime>(device: &Device<R>, source: &Tensor<R>, target: &Tensor<R>) {
    target.expect("elementwise::copy", "target", source.shape());
    if target.is_empty() {
        return;
    }
    // SAFETY: the kernel checks its index against the length of `target`, which is that of `source`.
    unsafe {
        copy_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(target.len()),
            grid::cube_dim(),
            source.arg(),
            target.arg(),
        );
    }
}

/// y ← y + x.
///
/// # Panics
/// Panics if the shapes differ.
pub fn add<R: Runtime>(device: &Device<R>, x: &Tensor<R>, y: &Tensor<R>) {
    axpy(device, 1.0, x, y);
}

/// y ← y + factor · x.
///
/// # Panics
/// Panics if the shapes differ.
pub fn axpy<R: Runtime>(device: &Device<R>, factor: f32, x: &Tensor<R>, y: &Tensor<R>) {
    y.expect("elementwise::axpy", "y", x.shape());
    if y.is_empty() {
        return;
    }
    // SAFETY: the kernel checks its index against the length of `y`, which is that of `x`.
    unsafe {
        axpy_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(y.len()),
            grid::cube_dim(),
            x.arg(),
            y.arg(),
            factor,
        );
    }
}

#[cfg(test)]
mod tests;
