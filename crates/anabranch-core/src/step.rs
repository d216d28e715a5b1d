//! A completed training step.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::{Batch, Digest, TrainingStep, Version};

/// A completed training step: the item of `.train`. It displays as one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// The number of the step, from 1.
    pub step: TrainingStep,
    /// Optimizer updates so far, including those of this step.
    pub updates: u64,
    /// The loss.
    pub loss: f64,
    /// The learner's other metrics.
    pub metrics: BTreeMap<String, f64>,
    /// Digest of the weights after the step.
    pub weights: Digest,
    /// Groups in its batch.
    pub groups: usize,
    /// Samples in its batch.
    pub samples: usize,
    /// Tokens generated in its batch.
    pub tokens: u64,
    /// Mean reward over the samples that have one.
    pub reward_mean: Option<f64>,
    /// Mean version gap of the groups when the batch was taken; `None` if no version is known.
    pub gap_mean: Option<f64>,
    /// Largest version gap of the groups when the batch was taken.
    pub gap_max: Option<u64>,
    /// The version installed on the engines now.
    pub version: Option<Version>,
    /// The version that this step published, if any.
    pub published: Option<Version>,
    /// The checkpoint that this step wrote, if any.
    pub checkpoint: Option<String>,
    /// How long the learner waited for the batch.
    pub waited: Duration,
    /// How long the learner trained.
    pub trained: Duration,
    /// How long generation paused for the publication, if there was one.
    pub paused: Duration,
    /// Whether an earlier session took the batch, so that this step was trained again from the log.
    pub replayed: bool,
    /// Whether the weights equal those of the earlier session bit for bit, for a step that an earlier session made.
    pub equal: Option<bool>,
}

impl Step {
    /// Creates a step on `batch`, with the facts about the batch. The trainer fills in the rest.
    pub fn on(batch: &Batch) -> Self {
        let rewards = || batch.groups.iter().flat_map(|group| &group.samples).filter_map(|sample| sample.reward);
        let rewarded = rewards().count();
        Self {
            step: batch.step,
            updates: 0,
            loss: 0.0,
            metrics: BTreeMap::new(),
            weights: Digest::default(),
            groups: batch.groups.len(),
            samples: batch.groups.iter().map(|group| group.samples.len()).sum(),
            tokens: batch.groups.iter().map(crate::Group::generated).sum(),
            reward_mean: (rewarded > 0).then(|| rewards().sum::<f64>() / rewarded as f64),
            gap_mean: batch.gap_mean,
            gap_max: batch.gap_max,
            version: batch.version,
            published: None,
            checkpoint: None,
            waited: Duration::ZERO,
            trained: Duration::ZERO,
            paused: Duration::ZERO,
            replayed: false,
            equal: None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {:>4}", self.step.0)?;
        match self.reward_mean {
            Some(reward) => write!(f, "  reward {reward:.3}")?,
            None => write!(f, "  reward     -")?,
        }
        write!(f, "  loss {:+.4}", self.loss)?;
        match (self.gap_mean, self.gap_max) {
            (Some(mean), Some(max)) => write!(f, "  gap {mean:.2} (max {max})")?,
            _ => write!(f, "  gap - (max -)")?,
        }
        match self.version {
            Some(version) => write!(f, "  {version}")?,
            None => write!(f, "  v-")?,
        }
        let [waited, trained, paused] = [self.waited, self.trained, self.paused].map(|time| time.as_secs_f64());
        write!(f, "  waited {waited:.2}s  trained {trained:.2}s  paused {paused:.3}s")?;
        match (self.replayed, self.equal) {
            (true, Some(false)) => write!(f, "  replayed, weights differ"),
            (true, _) => write!(f, "  replayed"),
            (false, _) => Ok(()),
        }
    }
}
