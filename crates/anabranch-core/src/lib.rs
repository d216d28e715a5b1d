//! The core types of anabranch: what flows through a pipeline, what is recorded about it, and the four traits that a
//! pipeline is made of ([`Engine`], [`Learner`], [`Journal`], and `RolloutExt` in `anabranch-stream`).
//!
//! No I/O happens here. The terms are those of `docs/semantics.md`: a [`Lease`] is the right to generate one prompt once,
//! a [`Group`] is what came of it, a [`VersionSpan`] says which weights wrote which tokens, and an [`Event`] is the record
//! of everything that happens to them.

mod dataset;
mod demand;
mod engine;
mod error;
mod event;
mod exclude;
mod flow;
mod gate;
mod group;
mod hold;
mod journal;
mod learner;
mod lease;
mod memory;
mod metrics;
mod order;
mod prompt;
mod record;
mod restore;
mod resume_state;
mod run;
mod shuffle;
mod source;
mod span;
mod stamp;
mod value;
mod version;
mod version_clock;
mod wakers;

pub use crate::metrics::{
    COUNT_BOUNDS, Counters, GapHistograms, Gauges, Histogram, Histograms, METRICS, Meter, Metric, MetricKind,
    MetricValue, Metrics, NANOSECOND_BOUNDS, Reading, Span as MetricSpan, second_bounds,
};
pub use dataset::{Dataset, DatasetError};
pub use demand::Demand;
pub use engine::{Chunk, Engine, Finish, ParseWeightSyncError, Request, Sampling, SamplingKey, WeightSync};
pub use error::{BoxError, EngineError, Error, JournalError, LearnerError, MalformedGroup};
pub use event::{Event, EventKind, FORMAT, GroupSummary, Reason, SampleSummary, TakenGroup, Then};
pub use exclude::Unused;
pub use flow::Stage;
pub use group::{Context, Group, Sample, SampleTimes, Status};
pub use hold::{Evaluation, Hold, Standstill, Submission};
pub use journal::{AppendReceipt, Cursor, Journal};
pub use learner::{Batch, Learner, MapWeights, StepReport};
pub use lease::{GroupId, Lease, LeaseId, RestoredGroup};
pub use memory::MemoryJournal;
pub use order::{Order, ParseOrderError};
pub use prompt::{Prompt, PromptId};
pub use record::{Draft, RecordReceipt};
pub use restore::Restored;
pub use resume_state::{Checkpoint, OpenLease, QueuedGroup, RecordedBatch, ResumeState, Retry};
pub use run::Run;
pub use source::{MAX_REISSUES, Prompts};
pub use span::{OldestVersion, SpanFault, SpanVersion, Spans, VersionSpan};
pub use stamp::{Cause, Enabler, Moment, Seq, SessionClock, Stamp};
pub use value::{Fields, Value};
pub use version::{Digest, TrainingStep, Version};
pub use version_clock::VersionClock;
