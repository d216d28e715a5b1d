//! The core types of anabranch: what flows through a pipeline, what is recorded about it, and the traits that a user
//! implements: [`Engine`], [`Learner`] and [`Journal`].
//!
//! Nothing here runs and nothing here does I/O, except that [`MemoryJournal`] keeps a log in memory. The terms are those
//! of `docs/semantics.md`: a [`Group`] holds the samples of one prompt, a [`VersionSpan`] says which weights wrote which
//! tokens, and an [`Event`] is the record of everything that happens to them. The operators of a pipeline and the run-time
//! that they share are in `anabranch-stream`.

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
pub use error::{BoxError, EngineError, Error, JournalError, LearnerError, MalformedGroup};
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
