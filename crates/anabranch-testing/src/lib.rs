//! What the tests and benches of several packages share. It is never published: the packages depend on it by path alone,
//! as a development dependency.
//!
//! - [`scripted`]: a run played by hand, event by event, on a clock that stands still between them.
//! - [`journals`]: a journal that keeps checkpoints, and one with hooks for tests that slow, refuse or count.
//! - [`synthetic`]: sound logs of any length, made without a run.
//! - `pipeline` and `repeated` (feature `pipeline`): real pipelines on a scripted engine in virtual time, and their logs
//!   repeated to any length.
//! - `database` (feature `log`): a synthetic log in a database.

#![allow(clippy::missing_panics_doc, reason = "what a test cannot do without panics, as in the test itself")]

#[cfg(feature = "log")]
pub mod database;
pub mod journals;
#[cfg(feature = "pipeline")]
pub mod pipeline;
#[cfg(feature = "pipeline")]
pub mod repeated;
pub mod scripted;
pub mod synthetic;
