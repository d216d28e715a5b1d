//! The model in plain Rust, not optimised for speed, as the reference for every device path.
//!
//! Generic over `f32` and `f64`; the backward pass is written by hand and proved by finite differences in `f64` and by
//! a fixture from `PyTorch`.

mod backward;
mod forward;
mod linear;
mod real;

pub use backward::backward;
pub use forward::{LayerTrace, Trace, forward};
pub use real::Real;

#[cfg(test)]
mod tests;
