//! The sampling kernels: one row to a unit, or to a cube when the vocabulary is long. The first sums up each row, the second
//! draws. (In one kernel the sums' registers stay taken during the draw, and CUDA's assembler spills.)

use cubecl::prelude::*;

use super::WORDS;
use crate::device::Device;
use crate::rounding_barrier::GUARD;
use crate::softmax::{self, Running};
use crate::tensor::{Ids, Tensor};
use crate::{philox, row};

/// The bits of a float in an order that agrees with `<` on floats.
#[cube]
fn ordered(value: f32) -> u32 {
    let bits = u32::reinterpret(value);
    let mut key = bits | 0x8000_0000u32;
    if bits >= 0x8000_0000u32 {
        key = !bits;
    }
    key
}

/// How many logits of the row are at or above the threshold.
#[cube]
fn count_from(
    logits: &Array<f32>,
    at: usize,
    vocab: usize,
    lane: usize,
    threshold: u32,
    #[comptime] lanes: u32,
) -> f32 {
    let mut count = 0.0f32;
    for i in range_stepped(lane, vocab, comptime!(lanes as usize)) {
        if ordered(logits[at + i]) >= threshold {
            count += 1.0f32;
        }
    }
    row::sum(count, lanes)
}

/// The unnormalised probability of the logits at or above the threshold.
#[cube]
#[allow(clippy::too_many_arguments)]
fn mass_from(
    logits: &Array<f32>,
    at: usize,
    vocab: usize,
    lane: usize,
    threshold: u32,
    largest: f32,
    inverse: f32,
    guard: u32,
    #[comptime] lanes: u32,
) -> f32 {
    let mut mass = 0.0f32;
    for i in range_stepped(lane, vocab, comptime!(lanes as usize)) {
        let logit = logits[at + i];
        if ordered(logit) >= threshold {
            mass += f32::exp(softmax::centred(logit, largest, inverse, guard));
        }
    }
    row::sum(mass, lanes)
}

/// The whole row, chunk by chunk, as the head sees it.
#[cube]
fn whole(
    logits: &Array<f32>,
    at: usize,
    vocab: usize,
    size: usize,
    lane: usize,
    inverse: f32,
    guard: u32,
    #[comptime] lanes: u32,
) -> Running {
    let mut seen = softmax::chunk(logits, at, size, lane, inverse, guard, lanes);
    for first in range_stepped(size, vocab, size) {
        let part = softmax::chunk(logits, at + first, min(size, vocab - first), lane, inverse, guard, lanes);
        let merged = softmax::merge(seen, part, inverse, guard);
        seen.largest = merged.largest;
        seen.sum = merged.sum;
        seen.weighted = merged.weighted;
    }
    seen
}

/// Writes largest logit and sum of each row, once at the row's temperature and once at 1. [n, 2, 2]
#[cube(launch_unchecked)]
fn row_kernel(
    logits: &Array<f32>,
    choices: &Array<u32>,
    sums: &mut Array<f32>,
    vocab: usize,
    size: usize,
    guard: u32,
    #[comptime] lanes: u32,
) {
    let index = row::index(lanes);
    let lane = row::lane(lanes);
    if index < sums.len() / 2 {
        let mut inverse = 1.0f32;
        // Even entries are the rows' own temperatures.
        if index & 1usize == 0 {
            inverse = f32::reinterpret(choices[(index / 2) * comptime!(WORDS)]);
        }
        let seen = whole(logits, (index / 2) * vocab, vocab, size, lane, inverse, guard, lanes);
        if lane == 0 {
            sums[index * 2] = seen.largest;
            sums[index * 2 + 1] = seen.sum;
        }
    }
}

#[cube(launch_unchecked)]
#[allow(clippy::too_many_lines, reason = "one pass over a row, whose parts share their registers")]
#[allow(clippy::manual_div_ceil, reason = "the kernel language has no `div_ceil`")]
fn draw_kernel(
    logits: &Array<f32>,
    choices: &Array<u32>,
    sums: &Array<f32>,
    out: &mut Array<u32>,
    vocab: usize,
    guard: u32,
    #[comptime] truncate: bool,
    #[comptime] lanes: u32,
) {
    let index = row::index(lanes);
    let lane = row::lane(lanes);
    if index < out.len() / 4 {
        let at = index * vocab;
        let s = index * comptime!(WORDS);
        let inverse = f32::reinterpret(choices[s]);
        let largest = sums[index * 4];
        let greedy = choices[s + 2] == 1;

        // The least ordered bits that stay; 0 keeps everything.
        let mut threshold = 0u32;
        if comptime!(truncate) {
            let top_p = f32::reinterpret(choices[s + 1]);
            let top_k = choices[s + 3];
            let wanted = f32::cast_from(top_k);
            for step in 0..32u32 {
                let candidate = threshold | (1u32 << (31u32 - step));
                if count_from(logits, at, vocab, lane, candidate, lanes) >= wanted {
                    threshold = candidate;
                }
            }
            if top_k == 0 || top_k as usize >= vocab {
                threshold = 0u32;
            }
            let kept = threshold;
            threshold = 0u32;
            let total = mass_from(logits, at, vocab, lane, kept, largest, inverse, guard, lanes);
            for step in 0..32u32 {
                let candidate = threshold | (1u32 << (31u32 - step));
                let mass = mass_from(logits, at, vocab, lane, candidate, largest, inverse, guard, lanes);
                if mass >= top_p * total {
                    threshold = candidate;
                }
            }
            if top_p >= 1.0f32 {
                threshold = kept;
            }
        }
        if greedy {
            threshold = ordered(largest);
        }

        // What stays when no logit can be drawn, which takes a NaN among them: an id no vocabulary has, and NaN.
        if lane == 0 {
            out[index * 4] = 0xFFFF_FFFFu32;
            out[index * 4 + 1] = 0x7FC0_0000u32;
            out[index * 4 + 2] = 0x7FC0_0000u32;
            out[index * 4 + 3] = 0x7FC0_0000u32;
        }

        // Each lane adds up its own stretch of the row, so that the walk below goes in token order.
        let stretch = (vocab + comptime!(lanes as usize) - 1) / comptime!(lanes as usize);
        let first = min(lane * stretch, vocab);
        let last = min(first + stretch, vocab);
        let mut own = 0.0f32;
        for i in first..last {
            if ordered(logits[at + i]) >= threshold {
                own += f32::exp(softmax::centred(logits[at + i], largest, inverse, guard));
            }
        }
        let mut before = 0.0f32;
        let mut total = own;
        if comptime!(lanes > 1) {
            let mut own_sums = SharedMemory::<f32>::new(comptime!(lanes as usize));
            own_sums[UNIT_POS as usize] = own;
            sync_cube();
            total = 0.0f32;
            for other in 0..comptime!(lanes as usize) {
                if other == lane {
                    before = total;
                }
                total += own_sums[other];
            }
        }

        let word = philox::first_word(
            choices[s + 4],
            choices[s + 5],
            choices[s + 6],
            choices[s + 7],
            choices[s + 8],
            choices[s + 9],
        );
        let mut point = philox::uniform(word) * total;
        if greedy {
            point = 0.0f32;
        }

        // Exactly one stretch holds the point: prefixes are the same numbers in every lane, and point < total.
        if point >= before && point < before + own {
            let mut token = last;
            let mut reached = before;
            let mut passed = false;
            for i in first..last {
                if !passed && ordered(logits[at + i]) >= threshold {
                    reached += f32::exp(softmax::centred(logits[at + i], largest, inverse, guard));
                    // Rounding may leave the sum of the walk just short of the point: then the last kept token stays.
                    token = i;
                    passed = reached > point;
                }
            }
            let logit = logits[at + token];
            let tempered = Running { largest, sum: sums[index * 4 + 1], weighted: 0.0f32.runtime() };
            let log_prob = softmax::log_prob(tempered, logit, inverse, guard);
            let mut truncated = log_prob;
            let top_k = choices[s + 3];
            if (top_k > 0 && (top_k as usize) < vocab) || f32::reinterpret(choices[s + 1]) < 1.0f32 {
                truncated = softmax::centred(logit, largest, inverse, guard) - f32::ln(total);
            }
            if greedy {
                truncated = 0.0f32;
            }
            let untempered =
                Running { largest: sums[index * 4 + 2], sum: sums[index * 4 + 3], weighted: 0.0f32.runtime() };
            let plain = softmax::log_prob(untempered, logit, 1.0f32.runtime(), guard);
            out[index * 4] = token as u32;
            out[index * 4 + 1] = u32::reinterpret(log_prob);
            out[index * 4 + 2] = u32::reinterpret(truncated);
            out[index * 4 + 3] = u32::reinterpret(plain);
        }
    }
}

pub(super) fn launch<R: Runtime>(
    device: &Device<R>,
    logits: &Tensor<R>,
    choices: &Ids<R>,
    out: &Ids<R>,
    chunk: usize,
    truncate: bool,
    lanes: u32,
) {
    let (rows, vocab) = (logits.shape()[0], logits.shape()[1]);
    let sums = device.empty(&[rows, 2, 2]);
    let (row_count, _) = row::grid(2 * rows, lanes);
    let (count, dim) = row::grid(rows, lanes);
    // SAFETY: rows are checked against `sums` and `out` (four numbers each); `logits` holds `vocab` columns and `choices` ten
    // words a row; the token lies within the row whichever branch was taken.
    unsafe {
        row_kernel::launch_unchecked::<R>(
            device.client(),
            row_count,
            dim,
            logits.arg(),
            choices.arg(),
            sums.arg(),
            vocab,
            chunk,
            GUARD,
            lanes,
        );
        draw_kernel::launch_unchecked::<R>(
            device.client(),
            count,
            dim,
            logits.arg(),
            choices.arg(),
            sums.arg(),
            out.arg(),
            vocab,
            GUARD,
            truncate,
            lanes,
        );
    }
}
