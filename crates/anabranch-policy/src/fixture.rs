//! The committed fixture of `fixtures/make_gradients.py`: weights, log-probabilities and gradients from `PyTorch`.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use crate::checkpoint::{NamedTensor, read_tensors};
use crate::config::Config;
use crate::layout::Layout;
use crate::packed::Packed;
use crate::parameters::Parameters;

pub(crate) struct Fixture {
    pub config: Config,
    pub temperature: f64,
    pub packed: Packed,
    pub weights: Parameters,
    /// ∂loss/∂ℓ of each scored token.
    pub factors: Vec<f32>,
    log_probs: Vec<f32>,
    loss: f32,
    gradients: Parameters,
}

#[derive(Deserialize)]
struct Cases {
    config: serde_json::Map<String, serde_json::Value>,
    temperature: f64,
    sequences: Vec<Sequence>,
}

#[derive(Deserialize)]
struct Sequence {
    tokens: Vec<u32>,
    first_scored: usize,
}

impl Fixture {
    pub fn read() -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
        let text = std::fs::read_to_string(directory.join("gradients.json")).unwrap();
        let cases: Cases = serde_json::from_str(&text).unwrap();
        let tensors = read_tensors(&directory.join("gradients.safetensors")).unwrap();
        let config = Config::from_json(&cases.config).unwrap();
        let layout = Arc::new(Layout::new(&config));
        let vector = |name: &str| find(&tensors, name).values.clone();
        let collect = |prefix: &str| {
            let mut data = vec![0.0; layout.len()];
            for slot in layout.slots() {
                let tensor = find(&tensors, &format!("{prefix}.{}", slot.name));
                assert_eq!(tensor.shape, slot.shape, "{}", slot.name);
                data[slot.range()].copy_from_slice(&tensor.values);
            }
            Parameters::from_flat(layout.clone(), data).unwrap()
        };
        let mut packed = Packed::new();
        for sequence in &cases.sequences {
            packed.push(&sequence.tokens, |index| index >= sequence.first_scored);
        }
        Self {
            temperature: cases.temperature,
            packed,
            weights: collect("weights"),
            gradients: collect("gradients"),
            factors: vector("factors"),
            log_probs: vector("log_probs"),
            loss: vector("loss")[0],
            config,
        }
    }

    /// Panics unless every log-probability, and the loss, agree within `tolerance`, relative.
    pub fn check_log_probs(&self, log_probs: &[f32], tolerance: f64) {
        assert_eq!(log_probs.len(), self.log_probs.len());
        for (index, (ours, theirs)) in log_probs.iter().zip(&self.log_probs).enumerate() {
            let error = f64::from((ours - theirs).abs()) / f64::from(theirs.abs());
            assert!(error < tolerance, "log-prob {index}: {ours}, PyTorch {theirs}");
        }
        let terms = log_probs.iter().zip(&self.factors).map(|(l, f)| f64::from(*l) * f64::from(*f));
        let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, m), t| (s + t, m + t.abs()));
        let error = (sum - f64::from(self.loss)).abs() / magnitude;
        assert!(error < tolerance, "loss {sum}, PyTorch {}", self.loss);
    }

    /// Panics unless every entry of every gradient agrees within `tolerance` of its tensor's largest entry.
    pub fn check_gradients(&self, gradient: &[f32], tolerance: f64) {
        for (slot, theirs) in self.gradients.tensors() {
            let largest = theirs.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
            assert!(largest > 0.0, "{}", slot.name);
            for (index, (ours, theirs)) in gradient[slot.range()].iter().zip(theirs).enumerate() {
                let error = f64::from((ours - theirs).abs()) / f64::from(largest);
                let name = &slot.name;
                assert!(error < tolerance, "{name}[{index}]: {ours}, PyTorch {theirs}");
            }
        }
    }
}

fn find<'a>(tensors: &'a [NamedTensor], name: &str) -> &'a NamedTensor {
    tensors.iter().find(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
}
