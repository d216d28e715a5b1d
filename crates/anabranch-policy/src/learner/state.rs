//! A learner's checkpoint: a Hugging Face directory of the weights, the optimizer's moments, and counters.
//!
//! `config.json`, `model.safetensors` (weights), `optimizer.safetensors` (`first.*`, `second.*`),
//! `published.safetensors` (the weights handed out last, only where they differ), and `learner.json`, which names the
//! digest of each set of weights.

use std::path::Path;

use anabranch_core::{Batch, Digest, StepReport};
use anabranch_kernels::Tensor;
use cubecl::Runtime;
use serde::{Deserialize, Serialize};

use super::trainer::{State, Trainer};
use super::{Backend, Grpo};
use crate::checkpoint::{NamedTensor, read_directory, read_tensors, write_directory, write_tensors};
use crate::error::PolicyError;
use crate::parameters::Parameters;
use crate::weights::Weights;

const STATE: &str = "learner.json";
const OPTIMIZER: &str = "optimizer.safetensors";
const PUBLISHED: &str = "published.safetensors";
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Counters {
    format: u32,
    updates: u64,
    weights: Digest,
    published: Option<Digest>,
}

impl<R: Runtime> Backend for Trainer<R> {
    fn set_objective(&mut self, grpo: Grpo) -> Result<(), PolicyError> {
        grpo.validate()?;
        self.grpo = grpo;
        Ok(())
    }

    fn step(&mut self, batch: &Batch) -> Result<StepReport, PolicyError> {
        Trainer::step(self, batch)
    }

    fn weights(&mut self) -> Weights {
        Trainer::weights(self)
    }

    fn published(&self) -> Option<Weights> {
        self.state.published.clone()
    }

    fn digest(&self) -> Digest {
        self.state.digest
    }

    fn parameters(&self) -> Result<Parameters, PolicyError> {
        self.host(&self.state.parameters)
    }

    fn save(&self, dir: &Path) -> Result<(), PolicyError> {
        write_directory(dir, self.model.config(), &self.host(&self.state.parameters)?)?;
        let mut moments = Vec::new();
        for (prefix, tensor) in [("first", &self.state.first), ("second", &self.state.second)] {
            moments.extend(named(prefix, &self.host(tensor)?));
        }
        write_tensors(&dir.join(OPTIMIZER), &moments)?;
        let published = self.state.published.as_ref();
        if let Some(weights) = published.filter(|weights| weights.digest() != self.state.digest) {
            let tensor = weights.tensor::<R>().expect("this trainer made these weights");
            write_tensors(&dir.join(PUBLISHED), &named("published", &self.host(tensor)?))?;
        }
        let counters = Counters {
            format: FORMAT,
            updates: self.state.updates,
            weights: self.state.digest,
            published: published.map(Weights::digest),
        };
        let path = dir.join(STATE);
        let text = serde_json::to_string_pretty(&counters).map_err(|error| PolicyError::malformed(&path, &error))?;
        std::fs::write(&path, text + "\n").map_err(PolicyError::io("writing", &path))
    }

    fn load(&mut self, dir: &Path) -> Result<(), PolicyError> {
        let path = dir.join(STATE);
        let text = std::fs::read_to_string(&path).map_err(PolicyError::io("reading", &path))?;
        let counters: Counters = serde_json::from_str(&text).map_err(|error| PolicyError::malformed(&path, &error))?;
        if counters.format != FORMAT {
            let problem = format!("expected format {FORMAT}, found {}", counters.format);
            return Err(PolicyError::malformed(&path, &problem));
        }
        let (config, parameters) = read_directory(dir)?;
        if &config != self.model.config().as_ref() {
            let problem = "expected a model of this learner's shape, found another shape".to_string();
            return Err(PolicyError::malformed(dir.join("config.json"), &problem));
        }
        expect_digest(&dir.join("model.safetensors"), &parameters, counters.weights)?;
        let moments = read_tensors(&dir.join(OPTIMIZER))?;
        let layout = self.model.layout();
        let collect = |prefix: &str, tensors: &[NamedTensor], file: &str| {
            let mut data = vec![0.0; layout.len()];
            for slot in layout.slots() {
                let name = format!("{prefix}.{}", slot.name);
                let found = tensors.iter().find(|tensor| tensor.name == name);
                let Some(tensor) = found.filter(|tensor| tensor.shape == slot.shape) else {
                    let problem = format!("expected a tensor `{name}` of shape {:?}, found none", slot.shape);
                    return Err(PolicyError::malformed(dir.join(file), &problem));
                };
                data[slot.range()].copy_from_slice(&tensor.values);
            }
            Parameters::from_flat(layout.clone(), data)
        };
        let first = collect("first", &moments, OPTIMIZER)?;
        let second = collect("second", &moments, OPTIMIZER)?;
        let published = match counters.published {
            None => None,
            Some(digest) if digest == counters.weights => Some(Weights::new(self.device(&parameters), digest)),
            Some(digest) => {
                let tensors = read_tensors(&dir.join(PUBLISHED))?;
                let published = collect("published", &tensors, PUBLISHED)?;
                expect_digest(&dir.join(PUBLISHED), &published, digest)?;
                Some(Weights::new(self.device(&published), digest))
            }
        };
        self.state = State {
            parameters: self.device(&parameters),
            first: self.device(&first),
            second: self.device(&second),
            updates: counters.updates,
            digest: counters.weights,
            published,
        };
        Ok(())
    }
}

impl<R: Runtime> Trainer<R> {
    fn host(&self, flat: &Tensor<R>) -> Result<Parameters, PolicyError> {
        Parameters::from_flat(self.model.layout().clone(), flat.read(self.model.device()))
    }

    fn device(&self, parameters: &Parameters) -> Tensor<R> {
        self.model.device().tensor(parameters.data(), &[parameters.data().len()])
    }
}

fn named(prefix: &str, parameters: &Parameters) -> Vec<NamedTensor> {
    let tensor = |(slot, values): (&crate::layout::Slot, &[f32])| NamedTensor {
        name: format!("{prefix}.{}", slot.name),
        shape: slot.shape.clone(),
        values: values.to_vec(),
    };
    parameters.tensors().map(tensor).collect()
}

fn expect_digest(path: &Path, parameters: &Parameters, digest: Digest) -> Result<(), PolicyError> {
    let found = parameters.digest();
    if found == digest {
        return Ok(());
    }
    let problem = format!("expected digest {} from {STATE}, found {}", digest.short(), found.short());
    Err(PolicyError::malformed(path, &problem))
}
