//! Engines that need no device.
//!
//! [`Sim`] is a scripted [`Engine`](anabranch_core::Engine): lengths, times and faults of every sample come from a
//! closure, and time is tokio's, so that tests and schedules run in virtual time (`start_paused`). [`HashChain`] is the
//! scripted [`Learner`](anabranch_core::Learner) that goes with it: its weights tell which groups shaped them, in which
//! order.

pub mod chain;
pub mod sim;

pub use chain::HashChain;
pub use sim::{Call, Chunking, End, Install, Reply, Sim, SimStats};
