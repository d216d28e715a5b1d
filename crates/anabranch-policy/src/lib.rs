//! A Llama-family policy on `CubeCL`: model, in-process engine, learner.
//!
//! [`Policy`] binds a [`Config`] and its [`Parameters`] to a [`Device`]. [`Policy::learner`] makes a
//! [`Learner`](anabranch_core::Learner), [`Policy::engine`] an [`Engine`](anabranch_core::Engine); both name the runtime
//! nowhere in their types, so that one binary chooses CUDA or wgpu when it starts.
//!
//! The log-prob that the engine records under some weights equals, bit for bit, the one that the learner computes under the
//! same weights.

#![cfg_attr(
    not(any(feature = "cuda", feature = "wgpu")),
    allow(dead_code, unused_variables, reason = "without a backend no device can be opened")
)]

pub mod checkpoint;
pub mod config;
pub mod device;
pub mod engine;
pub mod error;
#[cfg(test)]
mod fixture;
pub mod layout;
pub mod learner;
pub mod model;
pub mod optimizer;
pub mod packed;
pub mod parameters;
pub mod policy;
pub mod reference;
pub mod vocabulary;
pub mod weights;

pub use config::Config;
pub use device::{Device, DeviceChoice};
pub use engine::{EngineOptions, EngineStats, PolicyEngine};
pub use error::PolicyError;
pub use learner::{Advantage, Grpo, PolicyLearner, Ratio};
pub use optimizer::{AdamW, LinearDecay};
pub use parameters::Parameters;
pub use policy::Policy;
pub use vocabulary::Vocabulary;
pub use weights::Weights;
