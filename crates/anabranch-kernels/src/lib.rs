//! CubeCL kernels, each beside its plain-Rust reference.
#![allow(unsafe_code, reason = "kernel launches take raw buffer lengths; each wrapper checks shapes first")]

mod grid;

pub mod device;
pub mod elementwise;
pub mod linear;
pub mod tensor;

pub use device::Device;
pub use tensor::{Ids, Tensor, VIEW_ALIGNMENT};
