#![doc = include_str!("../README.md")]
// docs.rs builds with nightly, and then says beside each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod jsonl;
#[cfg(feature = "log")]
mod read_log;
#[cfg(feature = "log")]
mod run_log;
#[cfg(feature = "log")]
mod salvage;
#[cfg(all(feature = "log", feature = "parquet"))]
mod segments;
#[cfg(all(feature = "log", feature = "parquet"))]
mod table;

// What flows through a pipeline, and what is recorded about it.
pub use anabranch_core::{
    AppendReceipt, Batch, BoxError, Cause, Checkpoint, Chunk, Cursor, Dataset, DatasetError, Digest, Enabler, Engine,
    EngineError, EngineErrorKind, Error, Event, EventKind, FORMAT, Fields, Finish, Group, GroupId, GroupSummary,
    Journal, JournalError, Learner, LearnerError, LeaseId, MAX_REISSUES, MalformedGroup, MapWeights, MemoryJournal,
    Moment, OldestVersion, OpenLease, Order, ParseGroupIdError, ParseOrderError, ParseWeightSyncError, Prompt,
    PromptId, QueuedGroup, RUN_SETTINGS, Reason, RecordedBatch, Request, Resume, ResumeError, ResumeState, Retry,
    Sample, SampleSummary, SampleTimes, Sampling, SamplingKey, Seq, SessionClock, SpanFault, SpanVersion, Spans, Stamp,
    Status, Step, StepReport, TakenGroup, Then, TrainingStep, Value, Version, VersionClock, VersionSpan, WeightSync,
    resume,
};
// What a run counts and measures.
pub use anabranch_metrics::{
    COUNT_BOUNDS, Counters, GapHistograms, Gauges, Histogram, Histograms, METRICS, Meter, Metric, MetricKind,
    MetricSpan, MetricValue, Metrics, NANOSECOND_BOUNDS, Reading, second_bounds,
};
#[cfg(feature = "tensorboard")]
pub use anabranch_metrics::{STEP_TAGS, StepTag, TensorBoard, TensorBoardError};
// The operators, and the run that they share.
pub use anabranch_stream::{
    Admit, Batches, Buffer, Capacity, Evaluation, Fresh, Generate, Granularity, Hold, InFlight, Lease, Log,
    MaxStaleness, OwnedResponse, Pace, Prompts, Publication, Replay, Replayed, Response, Restored, Retrained, Rollout,
    RolloutExt, Run, RunBuilder, Samples, Score, ScoreAsync, Session, Stopped, Train, Turn, Unused, filters, publish,
    replay_log, retrain, tokio_clock,
};
// The durable log.
#[cfg(feature = "log")]
pub use anabranch_log::{
    Counts, Durability, Events, Found, LiveLog, Missing, OpenError, ReadError, SalvageError, Salvaged, SealError,
    Sealer, Segment,
};

pub use jsonl::{Jsonl, JsonlError};
#[cfg(feature = "log")]
pub use read_log::ReadLog;
#[cfg(feature = "log")]
pub use run_log::{RunLog, RunLogOptions};
#[cfg(feature = "log")]
pub use salvage::salvage;

/// Parquet segments.
#[cfg(feature = "parquet")]
pub use anabranch_parquet as parquet;
/// The version of Arrow of the record batches that [`TableRows`] gives.
#[cfg(feature = "parquet")]
pub use anabranch_parquet::arrow;
#[cfg(feature = "parquet")]
pub use anabranch_parquet::{Table, TableError, TableRows};
/// The Llama-family policy on CubeCL.
#[cfg(feature = "policy")]
pub use anabranch_policy as policy;
/// Verifying, auditing and predicting runs: pure functions over events.
pub use anabranch_replay as replay;
/// A scripted engine and learner in virtual time.
#[cfg(feature = "sim")]
pub use anabranch_sim as sim;

/// The names that a pipeline needs.
pub mod prelude {
    pub use anabranch_core::{Dataset, Engine, Error, Group, Learner, Order, Sampling, Step, Version, WeightSync};
    #[cfg(feature = "log")]
    pub use anabranch_log::Durability;
    pub use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Run, Samples, Session, Stopped, Unused};
    pub use futures::{StreamExt, TryStreamExt};

    pub use crate::Jsonl;
    #[cfg(feature = "log")]
    pub use crate::RunLog;
}
