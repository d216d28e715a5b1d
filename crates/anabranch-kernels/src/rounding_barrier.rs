//! A barrier that keeps a compiler from changing how a number is rounded.
//!
//! Two kernels that inline the same function do not always compute the same bits. Mesa's algebraic pass turns
//! (a·b)·log₂e into a·(b·log₂e) if the inner product has no other use, so dropping an unused result elsewhere changes
//! the exponential. CUDA's compiler may fuse a product with a later addition. Prefill and decode, and learner and
//! sampler, must agree bit for bit, so the numbers between such steps are pinned.

use cubecl::prelude::*;

/// The `guard` of every kernel. The compiler must not know that it is 0.
pub(crate) const GUARD: u32 = 0;

/// Returns `value` after an exclusive or of its bits with 0. A compiler cannot optimise across it, because it does not
/// know the 0.
#[cube]
pub(crate) fn pinned(value: f32, guard: u32) -> f32 {
    f32::reinterpret(u32::reinterpret(value) ^ guard)
}
