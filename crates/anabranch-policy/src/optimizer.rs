//! Settings of the optimizer and its learning-rate schedule.

use crate::error::PolicyError;

/// `AdamW` (Loshchilov & Hutter 2019) with gradient clipping and a learning-rate schedule. Norms do not decay.
///
/// The schedule counts optimizer updates from 1: linear warm-up to the full rate at update `warmup`, constant, and, if
/// `decay` is set, linear down to a floor that is then held.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// The full learning rate.
    pub learning_rate: f64,
    /// Updates until the full rate is reached; 0 for none.
    pub warmup: u64,
    /// How the rate falls; `None` if it stays constant.
    pub decay: Option<LinearDecay>,
    /// Decay rate of the first moment.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, multiplied by the learning rate.
    pub weight_decay: f64,
    /// Largest norm of the whole gradient; longer ones are scaled down to it.
    pub max_norm: Option<f64>,
}

/// A linear fall of the learning rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearDecay {
    /// The last update at the full rate.
    pub from: u64,
    /// The first update at the floor.
    pub to: u64,
    /// The floor, as a fraction of the full rate.
    pub floor: f64,
}

impl Default for AdamW {
    /// The demo's settings without the fall at the end: 7e-4 after 10 updates, β (0.9, 0.95), decay 0.01, clip 1.
    fn default() -> Self {
        Self {
            learning_rate: 7e-4,
            warmup: 10,
            decay: None,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.01,
            max_norm: Some(1.0),
        }
    }
}

impl AdamW {
    /// Returns the learning rate of update `update`, from 1.
    pub fn rate(&self, update: u64) -> f64 {
        let warmup = (update as f64 / self.warmup.max(1) as f64).min(1.0);
        let decay = self.decay.map_or(1.0, |decay| {
            let done = update.saturating_sub(decay.from) as f64;
            let share = (done / decay.to.saturating_sub(decay.from).max(1) as f64).min(1.0);
            1.0 - share * (1.0 - decay.floor)
        });
        self.learning_rate * warmup * decay
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Returns [`PolicyError::Config`] with the first setting that is out of range.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let refuse = |field, found: f64, expected: &str| {
            Err(PolicyError::Config { field, found: found.to_string(), expected: expected.into() })
        };
        for (field, value) in [("learning_rate", self.learning_rate), ("eps", self.eps)] {
            if !(value.is_finite() && value > 0.0) {
                return refuse(field, value, "a positive and finite number");
            }
        }
        for (field, value) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(0.0..1.0).contains(&value) {
                return refuse(field, value, "a number in [0, 1)");
            }
        }
        if !(self.weight_decay.is_finite() && self.weight_decay >= 0.0) {
            return refuse("weight_decay", self.weight_decay, "a number of at least 0");
        }
        if let Some(norm) = self.max_norm.filter(|norm| norm.is_nan() || *norm <= 0.0) {
            return refuse("max_norm", norm, "a positive number");
        }
        if let Some(decay) = self.decay {
            if decay.to < decay.from {
                return refuse("decay.to", decay.to as f64, "an update not before decay.from");
            }
            if !(0.0..=1.0).contains(&decay.floor) {
                return refuse("decay.floor", decay.floor, "a number in [0, 1]");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_holds_and_falls() {
        let decay = Some(LinearDecay { from: 150, to: 240, floor: 0.1 });
        let adamw = AdamW { decay, ..AdamW::default() };
        for (update, share) in [(1, 0.1), (5, 0.5), (10, 1.0), (150, 1.0), (195, 0.55), (240, 0.1), (1000, 0.1)] {
            assert!((adamw.rate(update) / 7e-4 - share).abs() < 1e-12, "update {update}");
        }
        assert!((AdamW { warmup: 0, ..AdamW::default() }.rate(1) / 7e-4 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn senseless_settings_are_named() {
        let wrong = |change: fn(&mut AdamW)| {
            let mut adamw = AdamW::default();
            change(&mut adamw);
            adamw.validate().unwrap_err().to_string()
        };
        AdamW::default().validate().unwrap();
        assert!(wrong(|a| a.learning_rate = f64::NAN).contains("learning_rate"));
        assert!(wrong(|a| a.beta2 = 1.0).contains("beta2"));
        assert!(wrong(|a| a.weight_decay = -1.0).contains("weight_decay"));
        assert!(wrong(|a| a.max_norm = Some(0.0)).contains("max_norm"));
        assert!(wrong(|a| a.decay = Some(LinearDecay { from: 9, to: 3, floor: 0.1 })).contains("to"));
    }
}
