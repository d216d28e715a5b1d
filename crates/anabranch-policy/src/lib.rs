//! A Llama-family policy on `CubeCL`: model, in-process engine, learner.

pub mod checkpoint;
pub mod config;
pub mod error;
#[cfg(test)]
mod fixture;
pub mod layout;
pub mod packed;
pub mod parameters;
pub mod reference;
pub mod vocabulary;

pub use config::Config;
pub use error::PolicyError;
pub use parameters::Parameters;
pub use vocabulary::Vocabulary;
