//! The reduction of a row of logits that the head and the sampler share, so that both report the same log-probability
//! bits.
//!
//! A row is walked in chunks of the vocabulary. For each chunk, and then for the whole so far, it keeps
//! M = the largest logit, S = Σ e^((z − M)/τ) and W = Σ e^((z − M)/τ)·(z − M)/τ. From these
//! log p(y) = (z_y − M)/τ − ln S and the entropy is ln S − W/S.
//! Two kernels inline these functions, so quotients by τ are [pinned](crate::pin): each compiler rounds them alike.

use cubecl::prelude::*;

use crate::rounding_barrier::pinned;
use crate::row;

/// The value that means "no logit yet". It is far below any f32 a model makes, and finite so that differences are never
/// NaN.
pub(crate) const NOTHING: f32 = -3.0e38;

/// The reduction of the part of a row that was read so far.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Running {
    /// The largest logit, before the temperature.
    pub largest: f32,
    /// Σ e^((z − largest)/τ).
    pub sum: f32,
    /// Σ e^((z − largest)/τ)·(z − largest)/τ.
    pub weighted: f32,
}

/// The reduction of an empty part of a row.
#[cube]
pub(crate) fn nothing() -> Running {
    Running { largest: f32::new(NOTHING), sum: 0.0f32.runtime(), weighted: 0.0f32.runtime() }
}

/// (z − largest)/τ.
#[cube]
pub(crate) fn centred(logit: f32, largest: f32, inverse: f32, guard: u32) -> f32 {
    pinned((logit - largest) * inverse, guard)
}

/// One chunk of a row: `width` logits from `at` on. Every unit sharing the row gets the result.
#[cube]
pub(crate) fn chunk(
    logits: &Array<f32>,
    at: usize,
    width: usize,
    lane: usize,
    inverse: f32,
    guard: u32,
    #[comptime] lanes: u32,
) -> Running {
    let mut largest = f32::new(NOTHING);
    for i in range_stepped(lane, width, comptime!(lanes as usize)) {
        largest = f32::max(largest, logits[at + i]);
    }
    let largest = row::max(largest, lanes);
    let mut sum = 0.0f32;
    let mut weighted = 0.0f32;
    for i in range_stepped(lane, width, comptime!(lanes as usize)) {
        let d = centred(logits[at + i], largest, inverse, guard);
        let e = f32::exp(d);
        sum += e;
        weighted = fma(e, d, weighted);
    }
    Running { largest, sum: row::sum(sum, lanes), weighted: row::sum(weighted, lanes) }
}

/// Returns the reduction of two parts of a row together.
#[cube]
pub(crate) fn merge(a: Running, b: Running, inverse: f32, guard: u32) -> Running {
    let largest = f32::max(a.largest, b.largest);
    let a_shift = centred(a.largest, largest, inverse, guard);
    let b_shift = centred(b.largest, largest, inverse, guard);
    let a_keep = f32::exp(a_shift);
    let b_keep = f32::exp(b_shift);
    // If a part is empty, its shift is huge and its sum 0. The product is 0, because the shift is finite.
    Running {
        largest,
        sum: fma(a.sum, a_keep, b.sum * b_keep),
        weighted: fma(fma(a.sum, a_shift, a.weighted), a_keep, fma(b.sum, b_shift, b.weighted) * b_keep),
    }
}

/// log p of a logit in the finished row.
#[cube]
pub(crate) fn log_prob(row: Running, logit: f32, inverse: f32, guard: u32) -> f32 {
    centred(logit, row.largest, inverse, guard) - f32::ln(row.sum)
}

/// The entropy of the finished row, in nats.
#[cube]
pub(crate) fn entropy(row: Running) -> f32 {
    f32::ln(row.sum) - row.weighted / row.sum
}
