//! One training step on a device.

use std::sync::Arc;

use anabranch_core::{Batch, Digest, StepReport};
use anabranch_kernels::optimizer::{self, GradientNorm};
use anabranch_kernels::policy_loss::{self, LossOutput, Metrics};
use anabranch_kernels::{Device, Tensor, elementwise};
use cubecl::Runtime;

use super::objective::{Grpo, Ratio};
use super::passes::{Limits, PackedBatch, Pass};
use crate::config::Config;
use crate::error::PolicyError;
use crate::model::{DeviceBatch, Model};
use crate::optimizer::AdamW;
use crate::parameters::{Parameters, weights_digest};
use crate::weights::Weights;

/// Parameters, optimizer state and counters on one device.
pub(super) struct Trainer<R: Runtime> {
    pub(super) model: Model<R>,
    pub(super) optimizer: AdamW,
    pub(super) grpo: Grpo,
    pub(super) state: State<R>,
    gradients: Tensor<R>,
    norm: GradientNorm<R>,
}

/// What a checkpoint holds.
pub(super) struct State<R: Runtime> {
    /// Flat, as the layout says; so are both moments.
    pub parameters: Tensor<R>,
    pub first: Tensor<R>,
    pub second: Tensor<R>,
    /// Optimizer updates made.
    pub updates: u64,
    /// Digest of `parameters`.
    pub digest: Digest,
    /// The weights handed out last.
    pub published: Option<Weights>,
}

/// A pass on the device.
struct DevicePass<R: Runtime> {
    batch: DeviceBatch<R>,
    advantages: Tensor<R>,
    behaviour: Tensor<R>,
    mask: Tensor<R>,
    /// Log-probs at the weights of the step's start, once known.
    proximal: Option<Tensor<R>>,
}

impl<R: Runtime> Trainer<R> {
    pub fn new(device: &Device<R>, config: &Arc<Config>, parameters: &Parameters, optimizer: AdamW) -> Self {
        let len = [parameters.data().len()];
        Self {
            model: Model::new(device, config),
            optimizer,
            grpo: Grpo::default(),
            state: State {
                parameters: device.tensor(parameters.data(), &len),
                first: device.zeros(&len),
                second: device.zeros(&len),
                updates: 0,
                digest: parameters.digest(),
                published: None,
            },
            gradients: device.empty(&len),
            norm: GradientNorm::new(device, len[0]),
        }
    }

    pub fn step(&mut self, batch: &Batch) -> Result<StepReport, PolicyError> {
        let limits = Limits { vocab: self.model.config().vocab, positions: self.model.config().max_positions };
        let passes = PackedBatch::new(&batch.groups, &self.grpo, limits)?;
        let mut on_device: Vec<DevicePass<R>> = passes.passes.iter().map(|pass| self.upload(pass)).collect();
        let mut losses = Vec::new();
        for _ in 0..self.grpo.updates {
            losses.extend(self.update(&mut on_device, passes.tokens));
        }
        let device = self.model.device();
        let read = device.read_many(&[&self.norm.value, &self.state.parameters]);
        let norm = f64::from(read[0][0]);
        if !norm.is_finite() {
            return Err(PolicyError::Batch {
                problem: format!(
                    "the gradient of training step {} has norm {norm}; the weights are spoiled, go back to a checkpoint",
                    batch.step
                ),
            });
        }
        self.state.digest = weights_digest(self.model.layout(), &read[1]);
        let metrics = losses.iter().map(|loss| loss.read(device)).reduce(Metrics::merge);
        Ok(self.report(&passes, norm, &metrics.unwrap_or_default()))
    }

    fn upload(&self, pass: &Pass) -> DevicePass<R> {
        let device = self.model.device();
        let len = [pass.behaviour.len()];
        DevicePass {
            batch: DeviceBatch::new(device, &pass.packed),
            advantages: device.tensor(&pass.advantages, &len),
            behaviour: device.tensor(&pass.behaviour, &len),
            mask: device.tensor(&vec![1.0; len[0]], &len),
            proximal: None,
        }
    }

    /// One optimizer update over the whole batch. Only queues work.
    fn update(&mut self, passes: &mut [DevicePass<R>], tokens: usize) -> Vec<LossOutput<R>> {
        let device = self.model.device().clone();
        elementwise::fill(&device, 0.0, &self.gradients);
        let losses = passes.iter_mut().map(|pass| self.accumulate(pass, tokens)).collect();
        optimizer::gradient_norm(&device, &self.gradients, &self.norm);
        self.state.updates += 1;
        let settings = optimizer::AdamW {
            learning_rate: self.optimizer.rate(self.state.updates) as f32,
            beta1: self.optimizer.beta1 as f32,
            beta2: self.optimizer.beta2 as f32,
            eps: self.optimizer.eps as f32,
            weight_decay: self.optimizer.weight_decay as f32,
            max_norm: self.optimizer.max_norm.map(|norm| norm as f32),
        };
        optimizer::adamw(
            &device,
            &settings,
            self.state.updates as u32,
            self.model.layout().decayed,
            &self.state.parameters,
            &self.gradients,
            &self.state.first,
            &self.state.second,
            &self.norm,
        );
        losses
    }

    /// Forward, loss and backward of one pass; its gradient is added to the others'.
    fn accumulate(&self, pass: &mut DevicePass<R>, tokens: usize) -> LossOutput<R> {
        let device = self.model.device();
        let temperature = self.grpo.temperature as f32;
        let activations = self.model.forward(&self.state.parameters, &pass.batch, temperature);
        let log_prob = activations.log_probs();
        let proximal = match self.grpo.ratio {
            Ratio::Recorded => pass.behaviour.clone(),
            // The first update's forward pass runs at the weights of the step's start.
            Ratio::Decoupled | Ratio::Truncated { .. } => pass.proximal.get_or_insert_with(|| log_prob.clone()).clone(),
        };
        let inputs = policy_loss::Inputs {
            log_prob: log_prob.clone(),
            proximal,
            behaviour: pass.behaviour.clone(),
            advantages: pass.advantages.clone(),
            mask: pass.mask.clone(),
            entropy: activations.entropies().clone(),
        };
        let d_log_prob = device.empty(&[pass.batch.scored_rows()]);
        let output = LossOutput::new(device, pass.batch.scored_rows());
        policy_loss::forward_backward(
            device,
            &self.grpo.clip(),
            &self.grpo.correction(),
            &inputs,
            1.0 / tokens as f32,
            &d_log_prob,
            &output,
        );
        self.model.backward(&self.state.parameters, &pass.batch, &activations, &d_log_prob, &self.gradients);
        output
    }

    fn report(&self, passes: &PackedBatch, norm: f64, metrics: &Metrics) -> StepReport {
        let tokens = metrics.tokens.max(1.0);
        let square = metrics.weight_square_sum.max(f64::MIN_POSITIVE);
        let named = [
            ("reward_mean", passes.reward_mean),
            ("flat_groups", passes.flat_groups),
            ("tokens", passes.tokens as f64),
            ("passes", passes.passes.len() as f64),
            ("clip_fraction", metrics.clipped / tokens),
            ("ratio_max_deviation", metrics.max_ratio_deviation),
            ("ratio_mean", metrics.ratio_sum / tokens),
            ("kl", metrics.kl_k3_sum / tokens),
            ("entropy", metrics.entropy_sum / tokens),
            ("ess", metrics.weight_sum * metrics.weight_sum / (tokens * square)),
            ("grad_norm", norm),
            ("learning_rate", self.optimizer.rate(self.state.updates)),
            ("updates", self.state.updates as f64),
        ];
        StepReport {
            updates: self.grpo.updates,
            loss: metrics.loss_sum / tokens,
            metrics: named.map(|(name, value)| (name.to_string(), value)).into(),
            weights: self.state.digest,
        }
    }

    pub fn weights(&mut self) -> Weights {
        if let Some(published) = &self.state.published
            && published.digest() == self.state.digest
        {
            return published.clone();
        }
        let device = self.model.device();
        let copy = device.empty(self.state.parameters.shape());
        elementwise::copy(device, &self.state.parameters, &copy);
        let weights = Weights::new(copy, self.state.digest);
        self.state.published = Some(weights.clone());
        weights
    }
}
