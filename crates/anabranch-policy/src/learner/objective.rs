//! The objective that the learner maximises.

use anabranch_kernels::{advantage, policy_loss};

use crate::error::PolicyError;

/// How a group's rewards become advantages; every token of a sample has its sample's advantage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advantage {
    /// (R − mean) / (std + ε), sample standard deviation (Shao 2024).
    Grpo {
        /// ε.
        eps: f64,
    },
    /// R − mean (Liu 2025).
    DrGrpo,
    /// n/(n−1) · (R − mean), the leave-one-out baseline (Ahmadian 2024).
    Rloo,
}

impl Advantage {
    pub(crate) fn kind(self) -> advantage::Kind {
        match self {
            Self::Grpo { eps } => advantage::Kind::Grpo { eps: eps as f32 },
            Self::DrGrpo => advantage::Kind::MeanOnly,
            Self::Rloo => advantage::Kind::Rloo,
        }
    }
}

/// The log-probs against which the ratio of the clipped loss is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ratio {
    /// The log-probs that the engine recorded: e^(ℓ−b).
    Recorded,
    /// The weights at the start of the step, e^(ℓ−p), the loss weighted by e^(p−b) (Hilton 2021; `AReaL` 2025).
    Decoupled,
    /// As `Decoupled`, with a largest weight: truncated importance sampling.
    Truncated {
        /// The cap.
        cap: f64,
    },
}

/// Group-relative policy optimisation with the PPO clip, averaged over all generated tokens of the batch.
///
/// The token mean divides by every generated token of the batch, tokens of groups whose advantages are all zero
/// included: such a group adds nothing to the gradient and shrinks the others' share. If you do not want that, filter
/// such groups out.
#[derive(Clone, Debug, PartialEq)]
pub struct Grpo {
    /// How rewards become advantages.
    pub advantage: Advantage,
    /// How far below 1 the ratio counts.
    pub clip_low: f64,
    /// How far above 1 the ratio counts.
    pub clip_high: f64,
    /// Dual clip: for negative advantages the loss is at most this times |A|; `None` for no dual clip.
    pub dual_clip: Option<f64>,
    /// The log-probs against which the ratio is taken.
    pub ratio: Ratio,
    /// The sampling temperature at which the engine recorded its log-probs.
    pub temperature: f64,
    /// Optimizer updates a step, each over the whole batch.
    pub updates: u64,
    /// Rows (tokens that are read) that go through the model at once. More samples make more passes, whose gradients
    /// are added up. A longer sample has a pass of its own.
    pub rows_per_pass: usize,
}

impl Default for Grpo {
    fn default() -> Self {
        Self {
            advantage: Advantage::Grpo { eps: 1e-4 },
            clip_low: 0.2,
            clip_high: 0.2,
            dual_clip: None,
            ratio: Ratio::Recorded,
            temperature: 1.0,
            updates: 1,
            rows_per_pass: 16_384,
        }
    }
}

impl Grpo {
    /// Checks the settings.
    ///
    /// # Errors
    /// Returns [`PolicyError::Config`] with the first setting that is out of range.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let refuse = |field, found: &dyn ToString, expected: &str| {
            Err(PolicyError::Config { field, found: found.to_string(), expected: expected.into() })
        };
        if self.updates == 0 {
            return refuse("updates", &self.updates, "at least 1");
        }
        if self.rows_per_pass == 0 {
            return refuse("rows_per_pass", &self.rows_per_pass, "at least 1");
        }
        if !(self.temperature.is_finite() && self.temperature > 0.0) {
            return refuse(
                "temperature",
                &self.temperature,
                "a positive temperature, because greedy samples have no ratio",
            );
        }
        if !(0.0..1.0).contains(&self.clip_low) {
            return refuse("clip_low", &self.clip_low, "a number in [0, 1)");
        }
        if self.clip_high.is_nan() || self.clip_high < 0.0 {
            return refuse("clip_high", &self.clip_high, "a number of at least 0");
        }
        if let Some(dual) = self.dual_clip.filter(|dual| dual.is_nan() || *dual <= 1.0) {
            return refuse("dual_clip", &dual, "a number above 1");
        }
        if let Ratio::Truncated { cap } = self.ratio
            && (cap.is_nan() || cap <= 0.0)
        {
            return refuse("ratio.cap", &cap, "a positive number");
        }
        if let Advantage::Grpo { eps } = self.advantage
            && !(eps.is_finite() && eps > 0.0)
        {
            return refuse("advantage.eps", &eps, "a positive number");
        }
        Ok(())
    }

    pub(crate) fn clip(&self) -> policy_loss::Clip {
        policy_loss::Clip {
            low: self.clip_low as f32,
            high: self.clip_high as f32,
            dual: self.dual_clip.map(|dual| dual as f32),
        }
    }

    pub(crate) fn correction(&self) -> policy_loss::Correction {
        match self.ratio {
            Ratio::Recorded => policy_loss::Correction::None,
            Ratio::Decoupled => policy_loss::Correction::Decoupled,
            Ratio::Truncated { cap } => policy_loss::Correction::Truncated { cap: cap as f32 },
        }
    }
}
