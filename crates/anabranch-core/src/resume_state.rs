//! The state of a run after its earlier sessions: everything that resuming needs. [`resume`](crate::resume) computes
//! it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use crate::{Cursor, Digest, Fields, GroupId, Seq, TakenGroup, TrainingStep, Version, VersionClock};

/// How often a lease may be issued again after restarts. A lease that was in flight in more sessions is excluded as
/// aborted, so that a prompt that kills the process cannot block every resume.
pub const MAX_REISSUES: u32 = 3;

/// A prompt queued to be leased again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The lease that the prompt will get.
    pub lease: GroupId,
    /// The `Excluded` record that queued the prompt.
    pub excluded: Seq,
    /// When the prompt was queued, in nanoseconds since the session's start; 0 for earlier sessions.
    pub at: u64,
}

/// A lease that was in flight when the last session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenLease {
    /// The name.
    pub id: GroupId,
    /// The last `Leased` or `Reissued` record.
    pub leased: Seq,
    /// How often the lease was re-issued.
    pub reissues: u32,
}

/// A group that was completed and neither consumed nor excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedGroup {
    /// The name.
    pub id: GroupId,
    /// The last `Leased` or `Reissued` record.
    pub leased: Seq,
    /// The `Completed` record.
    pub completed: Seq,
    /// The `Admitted` record, if the group was admitted.
    pub admitted: Option<Seq>,
}

/// A batch that was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedBatch {
    /// The `BatchTaken` record.
    pub taken: Seq,
    /// The training step of the batch.
    pub step: TrainingStep,
    /// The version against which the gaps were judged.
    pub version: Option<Version>,
    /// The groups, in order.
    pub groups: Vec<TakenGroup>,
    /// The digest of the batch.
    pub digest: Digest,
    /// Digest of the weights after the step, if the step was recorded.
    pub stepped: Option<Digest>,
}

/// A checkpoint found on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name.
    pub name: String,
    /// The directory of the checkpoint.
    pub path: PathBuf,
    /// The point of the run that the checkpoint belongs to.
    pub cursor: Cursor,
}

/// The state of a run after its earlier sessions. Empty for a new run.
#[derive(Clone, Debug, Default)]
pub struct ResumeState {
    /// The number of the session that begins now: 0 for a new run.
    pub session: u32,
    /// The `seq` of the next event.
    pub next_seq: Seq,
    /// The dataset cursor: one past the highest position leased.
    pub position: u64,
    /// The queued retries, first in, first out.
    pub retries: VecDeque<Retry>,
    /// The leases in flight, in the order in which they were issued.
    pub open: Vec<OpenLease>,
    /// The groups for the buffer: first the admitted ones in order, then the completed ones in order.
    pub queued: Vec<QueuedGroup>,
    /// The versions and steps.
    pub clock: VersionClock,
    /// The version published last, its training step and the digest of its weights.
    pub published: Option<(Version, TrainingStep, Digest)>,
    /// All batches taken, in order.
    pub batches: Vec<RecordedBatch>,
    /// The checkpoints on disk, newest first. The code that opened the directory fills them in.
    pub checkpoints: Vec<Checkpoint>,
    /// The settings of each operator.
    pub settings: BTreeMap<String, Fields>,
    /// The number of acknowledged events that a power loss took.
    pub lost: u64,
    /// Whether the pipeline ended and closed the run.
    pub closed: bool,
}
