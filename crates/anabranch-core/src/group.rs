//! Samples and groups: the result of a lease.

mod digest;

use serde::{Deserialize, Serialize};

use crate::error::MalformedGroup;
use crate::span;
use crate::{Digest, Fields, GroupId, GroupSummary, OldestVersion, Prompt, SampleSummary, VersionSpan};

/// How a sample ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// The sample reached a stop token or its natural end.
    Completed,
    /// The sample reached the token limit.
    Truncated,
    /// The sample was given up because of a publication, a timeout, an engine fault after all retries, or a failed
    /// reward.
    Aborted,
    /// The environment of the sample failed. The sample can be trained on if it has a reward.
    Failed,
}

/// The times of a sample, in nanoseconds since the session's start. A time is `None` if the sample did not reach that
/// point.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleTimes {
    /// When the sample was submitted to the engine.
    pub submitted: Option<u64>,
    /// When the first generated token arrived.
    pub first_token: Option<u64>,
    /// When the sample ended.
    pub ended: Option<u64>,
    /// When the reward was known or given up.
    pub scored: Option<u64>,
}

/// One response (a trajectory).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Prompt tokens, then generated and environment tokens.
    pub tokens: Vec<u32>,
    /// How many of `tokens` belong to the prompt.
    pub prompt_len: u32,
    /// For each token after the prompt, whether the policy generated it (environment and tool tokens: `false`).
    pub loss_mask: Vec<bool>,
    /// Log-prob (nats) of each *generated* token at the sampling temperature, before top-k and top-p.
    pub logprobs: Vec<f32>,
    /// Log-prob of each generated token under the truncated distribution, if top-k or top-p was set.
    pub truncated_logprobs: Option<Vec<f32>>,
    /// Which weights produced which generated tokens.
    pub spans: Vec<VersionSpan>,
    /// The reward, once scored.
    pub reward: Option<f64>,
    /// How the sample ended.
    pub status: Status,
    /// Why the sample was aborted or failed, or has no reward.
    pub cause: Option<String>,
    /// The times of the sample.
    pub times: SampleTimes,
}

impl Sample {
    /// The tokens after the prompt.
    pub fn response(&self) -> &[u32] {
        self.tokens.get(self.prompt_len as usize..).unwrap_or_default()
    }

    /// The number of tokens that the policy generated.
    pub fn generated(&self) -> u32 {
        // Adds eight bytes at a time. A boolean is 0 or 1, so each byte of the sum can count up to 255 words.
        let (words, rest) = bytemuck::cast_slice::<bool, u8>(&self.loss_mask).as_chunks::<8>();
        let lanes = |words: &[[u8; 8]]| words.iter().map(|word| u64::from_ne_bytes(*word)).sum::<u64>();
        let count = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        words.chunks(255).map(|words| count(&lanes(words).to_ne_bytes())).sum::<u32>() + count(rest)
    }

    /// The oldest version in any span, or `None` for a sample without generated tokens.
    pub fn oldest(&self) -> Option<OldestVersion> {
        OldestVersion::of(&self.spans)
    }

    /// Whether the sample counts as aborted: it was aborted, or failed without a reward.
    pub fn is_aborted(&self) -> bool {
        self.status == Status::Aborted || (self.status == Status::Failed && self.reward.is_none())
    }

    fn fault(&self) -> Option<String> {
        let (response, generated) = (self.response().len(), self.generated());
        if self.prompt_len as usize > self.tokens.len() {
            return Some(format!(
                "expected a prompt length of at most {1}, found {0}",
                self.prompt_len,
                self.tokens.len()
            ));
        }
        if self.loss_mask.len() != response {
            return Some(format!(
                "expected a loss mask for {response} response tokens, found {} entries",
                self.loss_mask.len()
            ));
        }
        if self.logprobs.len() != generated as usize {
            return Some(format!(
                "expected {generated} log-probs, one per generated token, found {}",
                self.logprobs.len()
            ));
        }
        if let Some(truncated) = &self.truncated_logprobs
            && truncated.len() != generated as usize
        {
            return Some(format!(
                "expected {generated} truncated log-probs, one per generated token, found {}",
                truncated.len()
            ));
        }
        if self.logprobs.iter().any(|logprob| logprob.is_nan()) {
            return Some("expected numbers as log-probs, found NaN".to_owned());
        }
        if self.reward.is_some_and(f64::is_nan) {
            return Some("expected a number as reward, found NaN".to_owned());
        }
        span::check(&self.spans, generated).err().map(|fault| fault.to_string())
    }
}

/// The samples of one lease. A group is admitted, consumed, excluded or retried as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The name of the group, which is the name of its lease.
    pub id: GroupId,
    /// The prompt.
    pub prompt: Prompt,
    /// How many samples the pipeline asked for.
    pub expected: u32,
    /// The samples.
    pub samples: Vec<Sample>,
    /// Values that the user attaches; they are stored with the group.
    pub extra: Fields,
}

impl Group {
    /// The oldest version in any span of any sample, or `None` if no sample has a generated token.
    pub fn oldest(&self) -> Option<OldestVersion> {
        self.samples.iter().filter_map(Sample::oldest).reduce(OldestVersion::older)
    }

    /// The largest reward minus the smallest; 0 if fewer than two samples have one.
    pub fn reward_spread(&self) -> f64 {
        let rewards = || self.samples.iter().filter_map(|sample| sample.reward);
        let spread = rewards().fold(f64::NEG_INFINITY, f64::max) - rewards().fold(f64::INFINITY, f64::min);
        spread.max(0.0)
    }

    /// The mean reward of the samples that have one.
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

    /// Entry check 2: sample count, lengths, rewards and spans must agree.
    ///
    /// # Errors
    /// Returns an error that names the fault and the sample.
    pub fn check(&self) -> Result<(), MalformedGroup> {
        let malformed = |fault: String| MalformedGroup { group: self.id.clone(), fault };
        if self.samples.len() != self.expected as usize {
            return Err(malformed(format!("expected {} samples, found {}", self.expected, self.samples.len())));
        }
        if let Some((index, fault)) =
            self.samples.iter().enumerate().find_map(|(index, sample)| Some((index, sample.fault()?)))
        {
            return Err(malformed(format!("sample {index}: {fault}")));
        }
        if self.oldest().is_none() {
            return Err(malformed("expected at least one generated token, found none in any sample".to_owned()));
        }
        Ok(())
    }

    /// The digest of everything that is stored of the group. It does not depend on the encoding.
    pub fn digest(&self) -> Digest {
        digest::of(self)
    }

    /// The summary that the log keeps in the group's event, so that audits do not need the payload.
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

/// The mean of the values, if there are any.
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
