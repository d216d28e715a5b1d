//! The learner: group-relative policy optimisation of the model, on whichever device was opened.

mod objective;
mod passes;
mod state;
mod trainer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anabranch_core::{Batch, Digest, Learner, LearnerError, StepReport};
use cubecl::Runtime;

use crate::device::{OnDevice, panic_text};
use crate::error::PolicyError;
use crate::optimizer::AdamW;
use crate::parameters::Parameters;
use crate::policy::Policy;
use crate::weights::Weights;

pub use objective::{Advantage, Grpo, Ratio};
use trainer::Trainer;

/// Trains the policy with [`Grpo`] and [`AdamW`].
///
/// Results depend on the batch, not on how it is packed into passes, within 32-bit rounding; a step after
/// [`save`](Learner::save) and [`load`](Learner::load) equals the uninterrupted one bit for bit.
pub struct PolicyLearner {
    trainer: Box<dyn Backend>,
}

/// A [`Trainer`] of any runtime.
trait Backend: Send {
    fn set_objective(&mut self, grpo: Grpo) -> Result<(), PolicyError>;
    fn step(&mut self, batch: &Batch) -> Result<StepReport, PolicyError>;
    fn weights(&mut self) -> Weights;
    fn published(&self) -> Option<Weights>;
    fn digest(&self) -> Digest;
    fn parameters(&self) -> Result<Parameters, PolicyError>;
    fn save(&self, dir: &Path) -> Result<(), PolicyError>;
    fn load(&mut self, dir: &Path) -> Result<(), PolicyError>;
}

impl PolicyLearner {
    pub(crate) fn new(policy: &Policy, optimizer: AdamW) -> Result<Self, PolicyError> {
        struct Open<'a>(&'a Policy, AdamW);
        impl OnDevice for Open<'_> {
            type Output = Box<dyn Backend>;
            fn run<R: Runtime>(self, device: anabranch_kernels::Device<R>) -> Self::Output {
                Box::new(Trainer::new(&device, self.0.config(), self.0.parameters(), self.1))
            }
        }
        optimizer.validate()?;
        let trainer = guarded("opening the learner", || Ok(policy.device().run(Open(policy, optimizer))))?;
        Ok(Self { trainer })
    }

    /// The same learner with another objective than the default [`Grpo`].
    ///
    /// # Errors
    /// Returns [`PolicyError::Config`] with the setting that is out of range.
    pub fn objective(mut self, grpo: Grpo) -> Result<Self, PolicyError> {
        self.trainer.set_objective(grpo)?;
        Ok(self)
    }

    /// Reads the current parameters back from the device.
    ///
    /// # Errors
    /// Returns [`PolicyError::Runtime`] if the device fails.
    pub fn parameters(&self) -> Result<Parameters, PolicyError> {
        guarded("reading the parameters", || self.trainer.parameters())
    }
}

impl Learner for PolicyLearner {
    type Weights = Weights;

    fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError> {
        Ok(guarded("training", || self.trainer.step(batch))?)
    }

    fn weights(&mut self) -> Result<Weights, LearnerError> {
        Ok(guarded("copying the weights", || Ok(self.trainer.weights()))?)
    }

    fn published(&mut self) -> Result<Option<Weights>, LearnerError> {
        Ok(self.trainer.published())
    }

    fn digest(&mut self) -> Result<Digest, LearnerError> {
        Ok(self.trainer.digest())
    }

    fn save(&mut self, dir: &Path) -> Result<(), LearnerError> {
        Ok(guarded("saving", || self.trainer.save(dir))?)
    }

    fn load(&mut self, dir: &Path) -> Result<(), LearnerError> {
        Ok(guarded("loading", || self.trainer.load(dir))?)
    }
}

/// Turns the panic of a kernel's wrapper into an error. The wrappers panic if the device fails.
fn guarded<T>(action: &'static str, work: impl FnOnce() -> Result<T, PolicyError>) -> Result<T, PolicyError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let reason = panic_text(panic.as_ref()).to_string();
        Err(PolicyError::Runtime { action, reason })
    })
}

impl From<PolicyError> for LearnerError {
    fn from(error: PolicyError) -> Self {
        Self::new(error.to_string())
    }
}
