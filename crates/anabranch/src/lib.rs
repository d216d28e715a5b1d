#![doc = include_str!("../README.md")]
// docs.rs builds with nightly, and then says beside each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod jsonl;
mod run_log;
mod table;

pub use anabranch_core::*;
pub use anabranch_log::{
    Durability, Found, Missing, OpenError, ReadError, RunLogOptions, SalvageError, Salvaged, SealError,
};
pub use anabranch_stream::*;
pub use anabranch_tensorboard::{STEP_TAGS, StepTag, TensorBoard, TensorBoardError};

pub use jsonl::{Jsonl, JsonlError};
pub use run_log::{ReadLog, RunLog, salvage};

/// Parquet segments.
pub use anabranch_parquet as parquet;
/// The version of Arrow whose record batches [`RunLog::table`] gives.
pub use anabranch_parquet::arrow;
pub use anabranch_parquet::{Table, TableError, TableRows};
/// The Llama-family policy on CubeCL.
#[cfg(feature = "policy")]
pub use anabranch_policy as policy;
/// Verifying, auditing and predicting runs: pure functions over events.
pub use anabranch_replay as replay;
/// A scripted engine and learner in virtual time.
pub use anabranch_sim as sim;

/// The names that a pipeline needs.
pub mod prelude {
    pub use anabranch_core::{Dataset, Engine, Learner, Run, Sampling, Unused, WeightSync};
    pub use anabranch_log::Durability;
    pub use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Samples, Session, Step, Stopped};
    pub use futures::{StreamExt, TryStreamExt};

    pub use crate::{Jsonl, RunLog};
}
