//! A batch of groups as packed passes through the model.

use anabranch_core::{Group, Sample};
use anabranch_kernels::advantage;

use super::objective::Grpo;
use crate::error::PolicyError;
use crate::packed::Packed;

/// The sequences of one pass through the model, with the advantage and log-prob of each scored token.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pass {
    /// The samples, end to end.
    pub packed: Packed,
    /// Advantage of each scored token.
    pub advantages: Vec<f32>,
    /// Recorded log-prob of each scored token.
    pub behaviour: Vec<f32>,
}

/// A batch, ready to be trained on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PackedBatch {
    /// The passes, in the batch's order.
    pub passes: Vec<Pass>,
    /// Generated tokens in all: the divisor of the token mean.
    pub tokens: usize,
    /// Mean reward over all samples.
    pub reward_mean: f64,
    /// Share of the groups whose advantages are all zero.
    pub flat_groups: f64,
}

impl PackedBatch {
    /// Packs the samples in order, and begins a new pass when the next sample would exceed `rows_per_pass`.
    ///
    /// # Errors
    /// Returns [`PolicyError::Batch`] for a sample without a reward or a prompt, with a token outside the vocabulary,
    /// or with more rows than positions, and for a batch without a generated token.
    pub fn new(groups: &[Group], grpo: &Grpo, limits: Limits) -> Result<Self, PolicyError> {
        let mut passes = Vec::new();
        let mut current = Pass { packed: Packed::new(), ..Pass::default() };
        let (mut reward_sum, mut samples, mut flat) = (0.0, 0_usize, 0_usize);
        for group in groups {
            let rewards = rewards(group)?;
            reward_sum += rewards.iter().sum::<f64>();
            samples += rewards.len();
            let advantages = advantage::reference(grpo.advantage.kind(), &rewards);
            flat += usize::from(advantages.iter().all(|advantage| *advantage == 0.0));
            for (index, (sample, advantage)) in group.samples.iter().zip(&advantages).enumerate() {
                let Some(last) = sample.loss_mask.iter().rposition(|generated| *generated) else {
                    continue;
                };
                let tokens = check(group, index, sample, last, limits)?;
                let rows = tokens.len() - 1;
                if current.packed.rows() > 0 && current.packed.rows() + rows > grpo.rows_per_pass {
                    let full = Pass { packed: Packed::new(), ..Pass::default() };
                    passes.push(std::mem::replace(&mut current, full));
                }
                current.push(sample, tokens, *advantage as f32);
            }
        }
        if current.packed.rows() > 0 {
            passes.push(current);
        }
        let tokens = passes.iter().map(|pass| pass.behaviour.len()).sum();
        if tokens == 0 {
            let problem = format!("expected at least one generated token in its {} groups, found none", groups.len());
            return Err(PolicyError::Batch { problem });
        }
        Ok(Self {
            passes,
            tokens,
            reward_mean: reward_sum / samples as f64,
            flat_groups: flat as f64 / groups.len() as f64,
        })
    }
}

/// The limits of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Number of token ids.
    pub vocab: usize,
    /// Longest sequence, in rows.
    pub positions: usize,
}

impl Pass {
    fn push(&mut self, sample: &Sample, tokens: &[u32], advantage: f32) {
        let prompt = sample.prompt_len as usize;
        let generated = |index: usize| index >= prompt && sample.loss_mask[index - prompt];
        self.packed.push(tokens, generated);
        self.behaviour.extend(&sample.logprobs);
        self.advantages.extend(sample.logprobs.iter().map(|_| advantage));
    }
}

fn rewards(group: &Group) -> Result<Vec<f64>, PolicyError> {
    let reward = |(index, sample): (usize, &Sample)| {
        let reward = sample.reward.filter(|reward| reward.is_finite());
        reward.ok_or_else(|| PolicyError::Batch {
            problem: format!("group {}, sample {index}: expected a finite reward, found {:?}", group.id, sample.reward),
        })
    };
    group.samples.iter().enumerate().map(reward).collect()
}

/// Returns the tokens up to the last generated one. Nothing is learned from the tokens after it.
fn check<'a>(
    group: &Group,
    index: usize,
    sample: &'a Sample,
    last: usize,
    limits: Limits,
) -> Result<&'a [u32], PolicyError> {
    let refuse =
        |problem: String| Err(PolicyError::Batch { problem: format!("group {}, sample {index}: {problem}", group.id) });
    let end = sample.prompt_len as usize + last + 1;
    let Some(tokens) = sample.tokens.get(..end) else {
        return refuse(format!(
            "expected a loss mask within its {} tokens, found one beyond them",
            sample.tokens.len()
        ));
    };
    if sample.prompt_len == 0 {
        return refuse("expected at least one prompt token, found none".into());
    }
    if sample.logprobs.len() != sample.generated() as usize {
        let (logprobs, generated) = (sample.logprobs.len(), sample.generated());
        return refuse(format!("expected a log-prob for each of {generated} generated tokens, found {logprobs}"));
    }
    if let Some(token) = tokens.iter().find(|token| **token as usize >= limits.vocab) {
        return refuse(format!("expected tokens below the vocabulary size {}, found {token}", limits.vocab));
    }
    if tokens.len() > limits.positions + 1 {
        let positions = limits.positions;
        return refuse(format!("expected at most {positions} tokens, the model's positions, found {}", tokens.len()));
    }
    Ok(tokens)
}
