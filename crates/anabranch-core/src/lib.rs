//! The core types of anabranch: the data that flows through a pipeline, the events that record it, and the traits that
//! users implement: [`Engine`], [`Learner`] and [`Journal`].
//!
//! The crate starts no task and does no I/O; [`MemoryJournal`] keeps a log in memory. The terms are defined in
//! `docs/semantics.md`: a [`Group`] holds the samples of one prompt, a [`VersionSpan`] says which weights wrote which
//! tokens, and an [`Event`] records what happened. The operators of a pipeline and the run that they share are in
//! `anabranch-stream`.

mod dataset;
mod engine;
mod error;
mod event;
mod group;
mod group_id;
mod journal;
mod learner;
mod memory;
mod order;
mod prompt;
mod resume;
mod resume_state;
mod span;
mod stamp;
mod step;
mod value;
mod version;
mod version_clock;

pub use dataset::{Dataset, DatasetError};
pub use engine::{Chunk, Engine, Finish, ParseWeightSyncError, Request, Sampling, SamplingKey, WeightSync};
pub use error::{BoxError, EngineError, EngineErrorKind, Error, JournalError, LearnerError, MalformedGroup};
pub use event::{Event, EventKind, FORMAT, GroupSummary, Reason, SampleSummary, TakenGroup, Then};
pub use group::{Group, Sample, SampleTimes, Status};
pub use group_id::{GroupId, LeaseId, ParseGroupIdError};
pub use journal::{AppendReceipt, Cursor, Journal};
pub use learner::{Batch, Learner, MapWeights, StepReport};
pub use memory::MemoryJournal;
pub use order::{Order, ParseOrderError};
pub use prompt::{Prompt, PromptId};
pub use resume::{RUN_SETTINGS, Resume, ResumeError, resume};
pub use resume_state::{Checkpoint, MAX_REISSUES, OpenLease, QueuedGroup, RecordedBatch, ResumeState, Retry};
pub use span::{OldestVersion, SpanFault, SpanVersion, Spans, VersionSpan};
pub use stamp::{Cause, Enabler, Moment, Seq, SessionClock, Stamp};
pub use step::Step;
pub use value::{Fields, Value};
pub use version::{Digest, TrainingStep, Version};
pub use version_clock::VersionClock;
