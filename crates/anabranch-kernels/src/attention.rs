//! Causal scaled dot-product attention with grouped-query heads (Vaswani 2017; Ainslie 2023).
//!
//! Activations are fused rows `[T, (Hq + 2·Hkv)·D]`: query heads, then key heads, then value heads, as one product with
//! the stacked q/k/v weight leaves them. Query head h reads key/value head h / (Hq / Hkv). Scores are scaled by
//! D^(−1/2).
//!
//! One unit owns one query, one head and a segment of at most 32 output elements, and walks over the keys in order with
//! a running maximum and sum (Milakov and Gimelshein 2018). The walk is one function for packed prefill and for decode
//! over a cache, so that both give the same bits; its order depends on the head's size alone. If a head has several
//! segments, each repeats the scores: more arithmetic, but no exchange between units.
//!
//! Floors: forward 2·D multiply-adds a (query, key, head) and the rows read once; backward 5·D.

use cubecl::prelude::*;

use crate::rounding_barrier::pinned;
use crate::tensor::Tensor;

pub mod backward;
pub mod decode;
pub mod packed;
pub mod reference;

pub use backward::backward;
pub use decode::decode;
pub use packed::forward;

pub(crate) type Quad = Vector<f32, Const<4>>;

/// The heads of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Query heads Hq, a multiple of `kv_heads`.
    pub query_heads: usize,
    /// Key and value heads Hkv.
    pub kv_heads: usize,
    /// Elements of a head, D, a multiple of 4.
    pub head_dim: usize,
}

impl AttentionShape {
    /// The length of a fused row: (Hq + 2·Hkv)·D.
    pub fn row(&self) -> usize {
        (self.query_heads + 2 * self.kv_heads) * self.head_dim
    }

    /// The length of an output row: Hq·D.
    pub fn out_row(&self) -> usize {
        self.query_heads * self.head_dim
    }

    /// The factor on scores, D^(−1/2).
    pub fn scale(&self) -> f32 {
        (1.0 / (self.head_dim as f64).sqrt()) as f32
    }

    pub(crate) fn layout(&self, op: &str) -> Layout {
        assert!(
            self.head_dim > 0 && self.head_dim.is_multiple_of(4),
            "{op}: `shape.head_dim` must be a positive multiple of 4, it is {}",
            self.head_dim
        );
        assert!(
            self.kv_heads > 0 && self.query_heads > 0 && self.query_heads.is_multiple_of(self.kv_heads),
            "{op}: `shape.query_heads` ({}) must be a positive multiple of `shape.kv_heads` ({})",
            self.query_heads,
            self.kv_heads
        );
        let head = self.head_dim / 4;
        let segment = (1..=8).rev().find(|s| head.is_multiple_of(*s)).expect("1 divides every number");
        Layout { query_heads: self.query_heads, kv_heads: self.kv_heads, head, segment }
    }

    pub(crate) fn expect_rows<R: Runtime>(&self, op: &str, name: &str, rows: &Tensor<R>) -> usize {
        let (count, _) = rows.matrix(op, name);
        rows.expect(op, name, &[count, self.row()]);
        count
    }
}

/// The compile-time sizes of a kernel, in quads (four elements).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
    pub query_heads: usize,
    pub kv_heads: usize,
    /// Quads of a head.
    pub head: usize,
    /// Quads of a head that one unit owns.
    pub segment: usize,
}

impl Layout {
    /// Segments of a head.
    pub fn segments(&self) -> usize {
        self.head / self.segment
    }
}

/// a · b over a head of `head` quads, times `factor`, [pinned](crate::pin): the same bits whatever is made of it.
///
/// A head of several segments is walked one at a time, in a loop whose length the compiler does not know (`guard` is
/// 0): else it would keep the whole query in registers, which for a head of 128 there are not.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(crate) fn scaled_dot(
    a: &Array<Quad>,
    a_at: usize,
    b: &Array<Quad>,
    b_at: usize,
    factor: f32,
    guard: u32,
    #[comptime] head: usize,
    #[comptime] segment: usize,
) -> f32 {
    let mut sum = Quad::new(0.0);
    if comptime!(head == segment) {
        #[unroll]
        for i in 0..segment {
            sum = fma(a[a_at + i], b[b_at + i], sum);
        }
    } else {
        let segments = comptime!(head / segment) + guard as usize;
        for part in 0..segments {
            let first = part * segment;
            #[unroll]
            for i in 0..segment {
                sum = fma(a[a_at + first + i], b[b_at + first + i], sum);
            }
        }
    }
    pinned(((sum[0] + sum[1]) + (sum[2] + sum[3])) * factor, guard)
}

/// Attends from one query head over `count` keys and values, writes one segment of the output and returns the log of
/// the sum of exponentiated scores. Offsets and strides are in quads; `value_at` and `out_at` point at the segment.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(crate) fn attend(
    query: &Array<Quad>,
    query_at: usize,
    keys: &Array<Quad>,
    key_at: usize,
    values: &Array<Quad>,
    value_at: usize,
    stride: usize,
    count: usize,
    scale: f32,
    guard: u32,
    out: &mut Array<Quad>,
    out_at: usize,
    #[comptime] head: usize,
    #[comptime] segment: usize,
) -> f32 {
    let mut sums = Array::<Quad>::new(segment);
    #[unroll]
    for i in 0..segment {
        sums[i] = Quad::new(0.0);
    }
    let mut largest = scaled_dot(query, query_at, keys, key_at, scale, guard, head, segment);
    let mut total = 0.0f32;
    for j in 0..count {
        let score = scaled_dot(query, query_at, keys, key_at + j * stride, scale, guard, head, segment);
        let raised = f32::max(largest, score);
        let keep = f32::exp(largest - raised);
        let weight = f32::exp(score - raised);
        total = fma(total, keep, weight);
        #[unroll]
        for i in 0..segment {
            sums[i] = fma(values[value_at + j * stride + i], Quad::new(weight), sums[i] * Quad::new(keep));
        }
        largest = raised;
    }
    let share = Quad::new(1.0 / total);
    #[unroll]
    for i in 0..segment {
        out[out_at + i] = sums[i] * share;
    }
    largest + f32::ln(total)
}

#[cfg(test)]
mod tests;
