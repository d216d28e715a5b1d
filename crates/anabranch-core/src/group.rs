//! Samples and groups: what came of one lease.

mod digest;

use serde::{Deserialize, Serialize};

use crate::error::MalformedGroup;
use crate::span;
use crate::{Digest, Fields, GroupId, GroupSummary, OldestVersion, Prompt, SampleSummary, VersionSpan};

/// How a sample ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// It reached a stop token or its natural end.
    Completed,
    /// It reached the token limit.
    Truncated,
    /// It was given up: by a publication, a timeout, an engine fault past its retries, or a reward fault.
    Aborted,
    /// Its environment failed; with a reward it can still be trained on.
    Failed,
}

/// When a sample went through its life, in nanoseconds since the session's start; absent where it did not.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleTimes {
    /// Submitted to the engine.
    pub submitted: Option<u64>,
    /// First generated token arrived.
    pub first_token: Option<u64>,
    /// Terminal status reached.
    pub ended: Option<u64>,
    /// Reward known, or given up.
    pub scored: Option<u64>,
}

/// One response (a trajectory).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Prompt tokens, then generated and environment tokens.
    pub tokens: Vec<u32>,
    /// How many of `tokens` are the prompt's.
    pub prompt_len: u32,
    /// For each token after the prompt, whether the policy generated it (environment and tool tokens: `false`).
    pub loss_mask: Vec<bool>,
    /// Log-prob (nats) of each *generated* token at the sampling temperature, before top-k and top-p.
    pub logprobs: Vec<f32>,
    /// Log-prob under the truncated distribution, where top-k or top-p was on: as long as `logprobs`.
    pub truncated_logprobs: Option<Vec<f32>>,
    /// Which weights produced which generated tokens.
    pub spans: Vec<VersionSpan>,
    /// The reward, once scored.
    pub reward: Option<f64>,
    /// How it ended.
    pub status: Status,
    /// Why it was aborted or failed, or has no reward.
    pub cause: Option<String>,
    /// When.
    pub times: SampleTimes,
}

impl Sample {
    /// The tokens after the prompt.
    pub fn response(&self) -> &[u32] {
        self.tokens.get(self.prompt_len as usize..).unwrap_or_default()
    }

    /// How many tokens the policy generated.
    pub fn generated(&self) -> u32 {
        // Eight at a time: each byte of the sum counts up to 255 words, since a truth value is 0 or 1.
        let (words, rest) = bytemuck::cast_slice::<bool, u8>(&self.loss_mask).as_chunks::<8>();
        let lanes = |words: &[[u8; 8]]| words.iter().map(|word| u64::from_ne_bytes(*word)).sum::<u64>();
        let count = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        words.chunks(255).map(|words| count(&lanes(words).to_ne_bytes())).sum::<u32>() + count(rest)
    }

    /// The oldest version in any span; nothing for a sample without generated tokens.
    pub fn oldest(&self) -> Option<OldestVersion> {
        OldestVersion::of(&self.spans)
    }

    /// Aborted, or failed without a reward, which counts as such.
    pub fn is_aborted(&self) -> bool {
        self.status == Status::Aborted || (self.status == Status::Failed && self.reward.is_none())
    }

    fn fault(&self) -> Option<String> {
        let (response, generated) = (self.response().len(), self.generated());
        if self.prompt_len as usize > self.tokens.len() {
            return Some(format!("prompt length {} above {} tokens", self.prompt_len, self.tokens.len()));
        }
        if self.loss_mask.len() != response {
            return Some(format!("loss mask of {} for {response} response tokens", self.loss_mask.len()));
        }
        if self.logprobs.len() != generated as usize {
            return Some(format!("{} log-probs for {generated} generated tokens", self.logprobs.len()));
        }
        if let Some(truncated) = &self.truncated_logprobs
            && truncated.len() != generated as usize
        {
            return Some(format!("{} truncated log-probs for {generated} generated tokens", truncated.len()));
        }
        if self.logprobs.iter().any(|logprob| logprob.is_nan()) {
            return Some("a log-prob is NaN".to_owned());
        }
        if self.reward.is_some_and(f64::is_nan) {
            return Some("its reward is NaN".to_owned());
        }
        span::check(&self.spans, generated).err().map(|fault| fault.to_string())
    }
}

/// The samples of one lease. Admitted, consumed, excluded and retried whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its name, that of its lease.
    pub id: GroupId,
    /// What was generated from.
    pub prompt: Prompt,
    /// How many samples the pipeline asked for.
    pub expected: u32,
    /// The samples.
    pub samples: Vec<Sample>,
    /// Whatever the user attaches; stored with the group.
    pub extra: Fields,
}

impl Group {
    /// The oldest version in any span of any sample; nothing where no sample has a generated token.
    pub fn oldest(&self) -> Option<OldestVersion> {
        self.samples.iter().filter_map(Sample::oldest).reduce(OldestVersion::older)
    }

    /// Largest reward minus smallest; 0 where fewer than two samples have one.
    pub fn reward_spread(&self) -> f64 {
        let rewards = || self.samples.iter().filter_map(|sample| sample.reward);
        let spread = rewards().fold(f64::NEG_INFINITY, f64::max) - rewards().fold(f64::INFINITY, f64::min);
        spread.max(0.0)
    }

    /// Mean reward of the samples that have one.
    pub fn reward_mean(&self) -> Option<f64> {
        mean(self.samples.iter().filter_map(|sample| sample.reward))
    }

    /// Tokens the policy generated, over all samples.
    pub fn generated(&self) -> u64 {
        self.samples.iter().map(|sample| u64::from(sample.generated())).sum()
    }

    /// Whether any sample counts as aborted (entry check 1).
    pub fn is_aborted(&self) -> bool {
        self.samples.iter().any(Sample::is_aborted)
    }

    /// Entry check 2: sample count, lengths, rewards and spans agree.
    ///
    /// # Errors
    /// What is wrong, and with which sample.
    pub fn check(&self) -> Result<(), MalformedGroup> {
        let malformed = |fault: String| MalformedGroup { group: self.id.clone(), fault };
        if self.samples.len() != self.expected as usize {
            return Err(malformed(format!("{} samples, expected {}", self.samples.len(), self.expected)));
        }
        if let Some((index, fault)) =
            self.samples.iter().enumerate().find_map(|(index, sample)| Some((index, sample.fault()?)))
        {
            return Err(malformed(format!("sample {index}: {fault}")));
        }
        if self.oldest().is_none() {
            return Err(malformed("no sample has a generated token".to_owned()));
        }
        Ok(())
    }

    /// Digest of everything stored of the group, whatever the encoding.
    pub fn digest(&self) -> Digest {
        digest::of(self)
    }

    /// What the log keeps of the group in its event, so that audits need no payload.
    pub fn summary(&self) -> GroupSummary {
        let sample = |sample: &Sample| SampleSummary {
            status: sample.status,
            generated: sample.generated(),
            reward: sample.reward,
            oldest: sample.oldest(),
            newest: sample.spans.last().and_then(|span| span.version.highest()),
            times: sample.times,
        };
        GroupSummary { expected: self.expected, samples: self.samples.iter().map(sample).collect() }
    }
}

/// The mean of values, if there are any.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut count = 0_u64;
    let sum: f64 = values.inspect(|_| count += 1).sum();
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_tokens_are_those_of_the_mask_whatever_its_length() {
        let masks = (0..70).chain([2039, 2040, 2041, 5000]).flat_map(|length| {
            let every = |nth: usize| (0..length).map(|token: usize| token.is_multiple_of(nth)).collect::<Vec<bool>>();
            [every(1), every(3), vec![false; length]]
        });
        for loss_mask in masks {
            let counted = loss_mask.iter().filter(|&&generated| generated).count();
            let sample = Sample {
                tokens: Vec::new(),
                prompt_len: 0,
                loss_mask,
                logprobs: Vec::new(),
                truncated_logprobs: None,
                spans: Vec::new(),
                reward: None,
                status: Status::Completed,
                cause: None,
                times: SampleTimes::default(),
            };
            assert_eq!(sample.generated() as usize, counted, "{}", sample.loss_mask.len());
        }
    }
}
