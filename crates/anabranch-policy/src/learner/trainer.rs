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
}

/// The state in a checkpoint.
pub(super) struct State<R: Runtime> {
    /// The parameters in the layout's flat order, as are both moments.
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

/// An update whose results have not been read yet.
struct Queued<R: Runtime> {
    losses: Vec<LossOutput<R>>,
    norm: GradientNorm<R>,
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
        }
    }

    pub fn step(&mut self, batch: &Batch) -> Result<StepReport, PolicyError> {
        let limits = Limits { vocab: self.model.config().vocab, positions: self.model.config().max_positions };
        let passes = PackedBatch::new(&batch.groups, &self.grpo, limits)?;
        let mut on_device: Vec<DevicePass<R>> = passes.passes.iter().map(|pass| self.upload(pass)).collect();
        let mut queued = Vec::new();
        for _ in 0..self.grpo.updates {
            queued.push(self.update(&mut on_device, passes.tokens));
        }
        let device = self.model.device();
        let proximal = on_device.iter().filter_map(|pass| pass.proximal.as_ref());
        let norms = queued.iter().map(|update| &update.norm.value);
        let wanted: Vec<&Tensor<R>> = std::iter::once(&self.state.parameters).chain(norms).chain(proximal).collect();
        let read = device.read_many(&wanted);
        self.state.digest = weights_digest(self.model.layout(), &read[0]);
        let (norms, proximal) = read[1..].split_at(queued.len());
        let norms: Vec<f64> = norms.iter().map(|norm| f64::from(norm[0])).collect();
        if let Some(norm) = norms.iter().find(|norm| !norm.is_finite()) {
            return Err(PolicyError::Batch {
                problem: format!(
                    "the gradient of training step {} has norm {norm}, so the update was left out; look for log-probs or \
                     rewards that are not finite, or lower the learning rate, and go back to a checkpoint",
                    batch.step
                ),
            });
        }
        let losses = queued.iter().flat_map(|update| &update.losses);
        let metrics = losses.map(|loss| loss.read(device)).reduce(Metrics::merge);
        let norm = norms.into_iter().fold(0.0, f64::max);
        let mut report = self.report(&passes, norm, &metrics.unwrap_or_default());
        report.metrics.insert("ess".into(), effective_sample_size(&passes, proximal));
        Ok(report)
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
    fn update(&mut self, passes: &mut [DevicePass<R>], tokens: usize) -> Queued<R> {
        let device = self.model.device().clone();
        elementwise::fill(&device, 0.0, &self.gradients);
        let losses = passes.iter_mut().map(|pass| self.accumulate(pass, tokens)).collect();
        let norm = GradientNorm::new(&device, self.gradients.len());
        optimizer::gradient_norm(&device, &self.gradients, &norm);
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
            &norm,
        );
        Queued { losses, norm }
    }

    /// Forward, loss and backward of one pass; its gradient is added to the others'.
    fn accumulate(&self, pass: &mut DevicePass<R>, tokens: usize) -> LossOutput<R> {
        let device = self.model.device();
        let temperature = self.grpo.temperature as f32;
        let activations = self.model.forward(&self.state.parameters, &pass.batch, temperature);
        let log_prob = activations.log_probs();
        // The first update's forward pass runs at the weights of the step's start.
        let at_start = pass.proximal.get_or_insert_with(|| log_prob.clone()).clone();
        let proximal = match self.grpo.ratio {
            Ratio::Recorded => pass.behaviour.clone(),
            Ratio::Decoupled | Ratio::Truncated { .. } => at_start,
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

/// (Σw)² / (n·Σw²) of the weights w = e^(p−b), p at the step's start: the share of the tokens that their importance
/// leaves. Log ratios are clamped to ±20, as in the loss.
fn effective_sample_size(batch: &PackedBatch, proximal: &[Vec<f32>]) -> f64 {
    let recorded = batch.passes.iter().flat_map(|pass| &pass.behaviour);
    let weights = proximal.iter().flatten().zip(recorded).map(|(p, b)| f64::from(p - b).clamp(-20.0, 20.0).exp());
    let (sum, squares) = weights.fold((0.0, 0.0), |(sum, squares), w| (sum + w, squares + w * w));
    sum * sum / (batch.tokens as f64 * squares)
}
