//! CubeCL kernels of a Llama-family policy and its training, generic over the runtime, each beside its plain-Rust
//! reference.
//!
//! Every operation is a function that takes a [`Device`], its inputs and its outputs (allocated by the caller), checks
//! shapes and submits one or a few launches; nothing waits for the device but `read` and [`Device::sync`]. A wrong shape is a
//! programming error: the function panics and names the argument.
//!
//! # Numerics
//! - **Deterministic**: every sum has one order, given by the problem's sizes; there are no atomics and no autotuning.
//! - **Batch-invariant** in the forward direction: a row's result depends on that row, its sequence and the weights alone.
//!   Log-probabilities of sampled tokens are the bits the learner computes again.
//! - f32 storage and arithmetic, against f64 references: forward within 1e-5, gradients within 1e-4 (norm-wise).
//!
//! # Kernels and their floors
//! | module | what | floor |
//! |---|---|---|
//! | [`embedding`] | rows by id, scatter, gradient of the table | 8·T·d bytes; gradient 4·T·d |
//! | [`rms_norm`] | forward, backward | 8·T·d bytes; 20·T·d |
//! | [`rope`] | rotation in place and back | 8·T·(Hq+Hkv)·D bytes |
//! | [`attention`] | packed causal forward and backward, decode over the cache | 2·D and 5·D multiply-adds a (query, key, head) |
//! | [`cache`] | append keys and values | 16·n·Hkv·D bytes |
//! | [`swiglu`] | forward, backward | 12·T·F bytes; 20·T·F |
//! | [`linear`] | x·Wᵀ, dy·W, dyᵀ·x through cubek | 2·T·in·out operations each |
//! | [`head`] | log-probability and entropy in vocabulary chunks, backward | 2·n·d·V operations; 6·n·d·V |
//! | [`sample`] | temperature, top-k, top-p, greedy | 4·n·V bytes |
//! | [`advantage`] | segmented mean and deviation of rewards | 8·N bytes |
//! | [`policy_loss`] | clipped losses, their gradient and metrics | 28·n bytes |
//! | [`optimizer`] | gradient norm, AdamW | 4·N bytes; 28·N |
//! | [`elementwise`] | fill, copy, scaled addition | 4, 8, 12 bytes an element |
//!
//! A kernel crate links no runtime: binaries choose one.
#![allow(unsafe_code, reason = "kernel launches take raw buffers; each wrapper checks shapes first")]

pub mod advantage;
pub mod attention;
pub mod cache;
pub mod device;
pub mod elementwise;
pub mod embedding;
mod grid;
pub mod head;
pub mod linear;
pub mod optimizer;
pub mod packing;
mod partial_sums;
pub mod philox;
pub mod policy_loss;
pub mod rms_norm;
pub mod rope;
mod rounding_barrier;
mod row;
pub mod sample;
mod softmax;
pub mod swiglu;
pub mod tensor;

#[cfg(test)]
mod testing;

pub use device::Device;
pub use packing::Packing;
pub use tensor::{Ids, Tensor, VIEW_ALIGNMENT};
