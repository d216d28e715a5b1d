//! A policy: configuration and parameters on a device, from which learners and engines are made.

use std::path::Path;
use std::sync::Arc;

use crate::checkpoint;
use crate::config::Config;
use crate::device::Device;
use crate::engine::{EngineOptions, PolicyEngine};
use crate::error::PolicyError;
use crate::learner::PolicyLearner;
use crate::optimizer::AdamW;
use crate::parameters::Parameters;

/// A configuration and its starting parameters, bound to a device.
#[derive(Clone, Debug)]
pub struct Policy {
    config: Arc<Config>,
    parameters: Arc<Parameters>,
    device: Device,
}

impl Policy {
    /// A policy of freshly drawn parameters, a function of configuration and seed alone.
    ///
    /// # Errors
    /// Returns [`PolicyError::Config`] when the configuration is not valid.
    pub fn init(config: Config, seed: u64, device: &Device) -> Result<Self, PolicyError> {
        let parameters = Parameters::init(&config, seed)?;
        Ok(Self::assemble(config, parameters, *device))
    }

    /// Reads a Hugging Face directory.
    ///
    /// # Errors
    /// As [`checkpoint::read_directory`].
    pub fn read(directory: &Path, device: &Device) -> Result<Self, PolicyError> {
        let (config, parameters) = checkpoint::read_directory(directory)?;
        Ok(Self::assemble(config, parameters, *device))
    }

    fn assemble(config: Config, parameters: Parameters, device: Device) -> Self {
        Self { config: Arc::new(config), parameters: Arc::new(parameters), device }
    }

    /// The configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The starting parameters.
    pub fn parameters(&self) -> &Arc<Parameters> {
        &self.parameters
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// A learner that starts from these parameters, with the default [`Grpo`](crate::learner::Grpo) objective.
    ///
    /// # Errors
    /// Returns [`PolicyError::Config`] when the optimizer's settings make no sense, [`PolicyError::Runtime`] when the
    /// device fails.
    pub fn learner(&self, optimizer: AdamW) -> Result<PolicyLearner, PolicyError> {
        PolicyLearner::new(self, optimizer)
    }

    /// An engine for this model, on its own thread. It generates once weights have been installed.
    ///
    /// # Errors
    /// Returns [`PolicyError::Config`] when an option makes no sense, [`PolicyError::Runtime`] when the thread does not
    /// start.
    pub fn engine(&self, options: EngineOptions) -> Result<PolicyEngine, PolicyError> {
        PolicyEngine::new(self, options)
    }
}
