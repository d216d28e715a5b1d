//! What a log says of a run's earlier sessions: everything that resuming needs. [`resume`](crate::resume) computes it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use crate::{Cursor, Digest, Fields, GroupId, Seq, TakenGroup, TrainingStep, Version, VersionClock};

/// How often a lease may be issued again after restarts. A lease that was in flight in more sessions settles as aborted,
/// so that a prompt that kills the process cannot block every resume.
pub const MAX_REISSUES: u32 = 3;

/// A prompt queued to be leased again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The lease that it will get.
    pub lease: GroupId,
    /// The `Excluded` record that queued it.
    pub excluded: Seq,
    /// When that was: nanoseconds since the session's start; 0 for earlier sessions.
    pub at: u64,
}

/// A lease that was in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenLease {
    /// Its name.
    pub id: GroupId,
    /// Its last `Leased` or `Reissued` record.
    pub leased: Seq,
    /// How often it was re-issued.
    pub reissues: u32,
}

/// A group that was completed and neither consumed nor excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedGroup {
    /// Its name.
    pub id: GroupId,
    /// Its last `Leased` or `Reissued` record.
    pub leased: Seq,
    /// Its `Completed` record.
    pub completed: Seq,
    /// Its `Admitted` record, where it was admitted.
    pub admitted: Option<Seq>,
}

/// A batch as it was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedBatch {
    /// Its `BatchTaken` record.
    pub taken: Seq,
    /// The training step it was for.
    pub step: TrainingStep,
    /// The version against which its gaps were judged.
    pub version: Option<Version>,
    /// Its groups, in order.
    pub groups: Vec<TakenGroup>,
    /// Its digest.
    pub digest: Digest,
    /// Digest of the weights after its step, where the step was recorded.
    pub stepped: Option<Digest>,
}

/// A checkpoint found on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// What it relies on.
    pub cursor: Cursor,
}

/// The past of a run. Empty for a new one.
#[derive(Clone, Debug, Default)]
pub struct ResumeState {
    /// The number of the session that begins now: 0 for a new run.
    pub session: u32,
    /// Where the log goes on.
    pub next_seq: Seq,
    /// The dataset cursor: one past the highest position leased.
    pub position: u64,
    /// Retries queued, first in first out.
    pub retries: VecDeque<Retry>,
    /// Leases in flight, in the order they were issued.
    pub open: Vec<OpenLease>,
    /// Groups for the buffer: those admitted, in order; then those completed, in order.
    pub queued: Vec<QueuedGroup>,
    /// Versions and steps.
    pub clock: VersionClock,
    /// The version last published, its training step and its weights.
    pub published: Option<(Version, TrainingStep, Digest)>,
    /// All batches taken, in order.
    pub batches: Vec<RecordedBatch>,
    /// The checkpoints on disk, newest first. Whoever opened the directory fills them in.
    pub checkpoints: Vec<Checkpoint>,
    /// What each operator was configured with.
    pub settings: BTreeMap<String, Fields>,
    /// Acknowledged events that a power loss took.
    pub lost: u64,
    /// Whether the pipeline ended and was closed.
    pub closed: bool,
}
