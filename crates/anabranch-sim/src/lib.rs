//! An engine and a learner that need no device.
//!
//! [`Sim`] is a scripted [`Engine`](anabranch_core::Engine): a closure gives the length, the times and the faults of
//! every sample. Time is tokio's, so that tests and schedules can run in virtual time (`start_paused`). [`HashChain`]
//! is the scripted [`Learner`](anabranch_core::Learner) for it: its weights depend on exactly the groups that it
//! consumed, and on their order.

pub mod chain;
pub mod sim;

pub use chain::HashChain;
pub use sim::{Call, Chunking, End, Install, Reply, Sim, SimStats};
