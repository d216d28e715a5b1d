//! Advantages within a group of samples of one prompt.
//!
//! Rewards of all groups lie end to end in `rewards` `[N]`; group g holds elements `offsets[g]..offsets[g + 1]`. One
//! unit computes one group in a fixed order, so a group's advantages do not depend on the groups around it. Rewards are
//! taken relative to the group's first, so equal rewards give exactly 0. Floor: 8·N bytes; a reward is read three
//! times, from cache after the first.

use cubecl::prelude::*;

use crate::device::Device;
use crate::grid;
use crate::tensor::{Ids, Tensor};

/// How rewards R₁…Rₙ become advantages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// (R − mean) / (std + ε) with the sample standard deviation, divisor n − 1 (Shao 2024).
    Grpo {
        /// ε.
        eps: f32,
    },
    /// R − mean (Dr.GRPO, Liu 2025).
    MeanOnly,
    /// n/(n−1) · (R − mean): each sample against the mean of the others (Ahmadian 2024).
    Rloo,
}

#[cube(launch_unchecked)]
fn group_kernel(
    rewards: &Array<f32>,
    offsets: &Array<u32>,
    out: &mut Array<f32>,
    eps: f32,
    #[comptime] standardise: bool,
    #[comptime] leave_one_out: bool,
) {
    if ABSOLUTE_POS + 1 < offsets.len() {
        let first = offsets[ABSOLUTE_POS] as usize;
        let end = min(offsets[ABSOLUTE_POS + 1] as usize, rewards.len());
        if first < end {
            let origin = rewards[first];
            let count = f32::cast_from(end - first);
            let mut sum = 0.0f32;
            for i in first..end {
                sum += rewards[i] - origin;
            }
            let mean = sum / count;
            // A lone sample has no spread: its factor stays 1 and its deviation is 0 (or NaN, which must show).
            let mut factor = 1.0f32;
            if end - first > 1 {
                if comptime!(leave_one_out) {
                    factor = count / (count - 1.0);
                }
                if comptime!(standardise) {
                    let mut squares = 0.0f32;
                    for i in first..end {
                        let deviation = rewards[i] - origin - mean;
                        squares = fma(deviation, deviation, squares);
                    }
                    let std = f32::sqrt(squares / (count - 1.0));
                    if std > 0.0 {
                        factor = 1.0 / (std + eps);
                    }
                }
            }
            for i in first..end {
                out[i] = (rewards[i] - origin - mean) * factor;
            }
        }
    }
}

/// Writes the advantage of every sample of every group.
///
/// Shapes: `rewards` and `out` `[N]`; `offsets` [G + 1], ascending from 0 to N. A group of one sample has advantage 0.
/// A group with a reward that is not finite has no finite advantage.
///
/// # Panics
/// Panics if a shape differs from these.
pub fn group<R: Runtime>(device: &Device<R>, kind: Kind, rewards: &Tensor<R>, offsets: &Ids<R>, out: &Tensor<R>) {
    const OP: &str = "advantage::group";
    rewards.expect(OP, "rewards", &[rewards.len()]);
    out.expect(OP, "out", &[rewards.len()]);
    assert!(
        offsets.shape().len() == 1 && !offsets.is_empty(),
        "{OP}: `offsets` must have shape [groups + 1], it has {:?}",
        offsets.shape()
    );
    if rewards.is_empty() || offsets.len() == 1 {
        return;
    }
    let (eps, standardise, leave_one_out) = match kind {
        Kind::Grpo { eps } => (eps, true, false),
        Kind::MeanOnly => (0.0, false, false),
        Kind::Rloo => (0.0, false, true),
    };
    // SAFETY: groups are checked against `offsets` and their ends against `rewards`, whose length is that of `out`.
    unsafe {
        group_kernel::launch_unchecked::<R>(
            device.client(),
            grid::units(offsets.len() - 1),
            grid::cube_dim(),
            rewards.arg(),
            offsets.arg(),
            out.arg(),
            eps,
            standardise,
            leave_one_out,
        );
    }
}

/// The advantages of one group in plain f64.
pub fn reference(kind: Kind, rewards: &[f64]) -> Vec<f64> {
    let Some(origin) = rewards.first() else {
        return Vec::new();
    };
    let n = rewards.len() as f64;
    let mean = rewards.iter().map(|r| r - origin).sum::<f64>() / n;
    let deviations = rewards.iter().map(|r| r - origin - mean);
    let std = (deviations.clone().map(|d| d * d).sum::<f64>() / (n - 1.0)).sqrt();
    let factor = match kind {
        Kind::Grpo { eps } if std > 0.0 => 1.0 / (std + f64::from(eps)),
        Kind::Rloo if rewards.len() > 1 => n / (n - 1.0),
        _ => 1.0,
    };
    deviations.map(|d| d * factor).collect()
}

#[cfg(test)]
mod tests;
