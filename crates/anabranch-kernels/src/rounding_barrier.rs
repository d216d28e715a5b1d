//! Keeping a compiler from changing how a number is rounded.
//!
//! Two kernels that inline the same function do not always compute the same bits. Mesa's algebraic pass turns
//! (a·b)·log₂e into a·(b·log₂e) where the inner product has no other use, so dropping an unused result elsewhere changes the
//! exponential; CUDA's compiler fuses a product with a later addition as it likes. Where prefill and decode, or learner and
//! sampler, must agree bit for bit, the numbers between such steps are pinned.

use cubecl::prelude::*;

/// What every kernel is given for its `guard`. Only the compiler must not know that it is 0.
pub(crate) const GUARD: u32 = 0;

/// `value`, through an exclusive or of its bits with 0: no compiler can look past it, since it cannot know the 0.
#[cube]
pub(crate) fn pinned(value: f32, guard: u32) -> f32 {
    f32::reinterpret(u32::reinterpret(value) ^ guard)
}
