//! The parameters on the host: one flat buffer of 32-bit floats, initialised by a counter, hashed by name.

use std::sync::Arc;

use anabranch_core::Digest;

use crate::config::Config;
use crate::error::PolicyError;
use crate::layout::{Layout, Role, Slot};

/// Standard deviation of freshly drawn matrices.
const INIT_STD: f64 = 0.02;

/// All parameters of one model, on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    layout: Arc<Layout>,
    data: Vec<f32>,
}

impl Parameters {
    /// Fresh parameters: matrices from N(0, 0.02), those that write to the residual stream scaled by 1/√(2·layers),
    /// norms one. Each value is a function of (seed, tensor, index) alone.
    ///
    /// # Errors
    /// Returns [`PolicyError::Config`] when the configuration is not valid.
    pub fn init(config: &Config, seed: u64) -> Result<Self, PolicyError> {
        config.validate()?;
        let layout = Arc::new(Layout::new(config));
        let mut data = vec![0.0; layout.len()];
        let residual = INIT_STD / (2.0 * config.layers as f64).sqrt();
        for (stream, slot) in layout.slots().iter().enumerate() {
            let values = &mut data[slot.range()];
            match slot.role {
                Role::Norm => values.fill(1.0),
                Role::Matrix => fill_normal(values, INIT_STD, seed, stream as u64),
                Role::Residual => fill_normal(values, residual, seed, stream as u64),
            }
        }
        Ok(Self { layout, data })
    }

    /// Takes a flat buffer, as read back from a device.
    ///
    /// # Errors
    /// Returns [`PolicyError::Tensor`] when its length is not the layout's.
    pub fn from_flat(layout: Arc<Layout>, data: Vec<f32>) -> Result<Self, PolicyError> {
        if data.len() != layout.len() {
            return Err(PolicyError::Tensor {
                name: "(all parameters)".into(),
                problem: format!("{} floats, expected {}", data.len(), layout.len()),
            });
        }
        Ok(Self { layout, data })
    }

    /// Where each tensor lies.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The flat buffer, gaps included.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// The flat buffer, for tests and for loading.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// Each tensor with its values.
    pub fn tensors(&self) -> impl Iterator<Item = (&Slot, &[f32])> {
        self.layout.slots().iter().map(|slot| (slot, &self.data[slot.range()]))
    }

    /// Digest of all parameters; see [`weights_digest`].
    pub fn digest(&self) -> Digest {
        weights_digest(&self.layout, &self.data)
    }
}

/// BLAKE3 over names, types, shapes and little-endian bytes of all tensors, in the order of their names.
///
/// Learner, engine, checkpoint and log all state this digest; it does not depend on offsets or gaps of the buffer.
/// `data` is a flat buffer of `layout.len()` floats.
pub fn weights_digest(layout: &Layout, data: &[f32]) -> Digest {
    let mut slots: Vec<&Slot> = layout.slots().iter().collect();
    slots.sort_by(|a, b| a.name.cmp(&b.name));
    let mut hasher = blake3::Hasher::new();
    let mut bytes = Vec::new();
    for slot in slots {
        hasher.update(&(slot.name.len() as u64).to_le_bytes());
        hasher.update(slot.name.as_bytes());
        hasher.update(b"F32");
        hasher.update(&(slot.shape.len() as u64).to_le_bytes());
        for size in &slot.shape {
            hasher.update(&(*size as u64).to_le_bytes());
        }
        bytes.clear();
        bytes.extend(data[slot.range()].iter().flat_map(|value| value.to_le_bytes()));
        hasher.update(&bytes);
    }
    Digest(*hasher.finalize().as_bytes())
}

/// Two values at a time by Box–Muller, from the counter (seed, stream, pair).
fn fill_normal(values: &mut [f32], std: f64, seed: u64, stream: u64) {
    for (pair, chunk) in values.chunks_mut(2).enumerate() {
        let key = mix(mix(seed) ^ mix(stream.wrapping_add(0x5eed)));
        let first = uniform(mix(key ^ (2 * pair as u64)));
        let second = uniform(mix(key ^ (2 * pair as u64 + 1)));
        let radius = (-2.0 * first.ln()).sqrt() * std;
        let angle = std::f64::consts::TAU * second;
        chunk[0] = (radius * angle.cos()) as f32;
        if let Some(value) = chunk.get_mut(1) {
            *value = (radius * angle.sin()) as f32;
        }
    }
}

/// The finaliser of `SplitMix64`: a bijection on 64 bits that scatters neighbouring counters.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// In (0, 1]: the logarithm of it is finite.
fn uniform(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_is_normal_scaled_and_seeded() {
        let config = Config::tiny(16);
        let parameters = Parameters::init(&config, 7).unwrap();
        for (slot, values) in parameters.tensors() {
            let n = values.len() as f64;
            let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
            let std = (values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n).sqrt();
            let expected = match slot.role {
                Role::Norm => {
                    assert!(values.iter().all(|v| v.to_bits() == 1.0_f32.to_bits()));
                    continue;
                }
                Role::Matrix => 0.02,
                Role::Residual => 0.01,
            };
            // Five standard errors of each estimate.
            assert!(mean.abs() < 5.0 * expected / n.sqrt(), "{}: mean {mean}", slot.name);
            let tolerance = 5.0 * expected / (2.0 * n).sqrt();
            assert!((std - expected).abs() < tolerance, "{}: std {std}", slot.name);
        }
        assert_eq!(parameters, Parameters::init(&config, 7).unwrap());
        assert_ne!(parameters.digest(), Parameters::init(&config, 8).unwrap().digest());
    }

    #[test]
    fn digest_sees_every_tensor_and_no_gap() {
        let mut config = Config::tiny(16);
        config.hidden = 20;
        config.head_dim = 4;
        let parameters = Parameters::init(&config, 1).unwrap();
        let before = parameters.digest();
        let mut covered = vec![false; parameters.data().len()];
        for slot in parameters.layout().slots() {
            covered[slot.range()].fill(true);
            let mut changed = parameters.clone();
            changed.data_mut()[slot.range().end - 1] += 1.0;
            assert_ne!(before, changed.digest(), "{}", slot.name);
        }
        let gap = covered.iter().position(|covered| !covered).expect("this shape leaves gaps");
        let mut changed = parameters.clone();
        changed.data_mut()[gap] = 1.0;
        assert_eq!(before, changed.digest());
    }

    /// A stored run names this digest: it may not change with a refactoring.
    #[test]
    fn digest_is_stable() {
        let config =
            Config { vocab: 3, hidden: 2, ffn: 2, layers: 1, heads: 1, kv_heads: 1, head_dim: 2, ..Config::tiny(3) };
        let mut parameters = Parameters::init(&config, 0).unwrap();
        for slot in parameters.layout().clone().slots() {
            let values = &mut parameters.data_mut()[slot.range()];
            for (index, value) in values.iter_mut().enumerate() {
                *value = index as f32 - slot.name.len() as f32;
            }
        }
        assert_eq!(parameters.digest().to_string(), "d46d563cb779a01551d111cbc55e83d47627766c129f4e95d183521e2c138401");
    }
}
