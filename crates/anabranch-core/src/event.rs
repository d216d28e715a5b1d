//! The events of a run: its log, and the only truth about it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::WeightSync;
use crate::group;
use crate::{Digest, Enabler, Fields, GroupId, OldestVersion, SampleTimes, Seq, Status, TrainingStep, Version};

/// The version of the event format that this library writes.
pub const FORMAT: u32 = 1;

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the log.
    pub seq: Seq,
    /// Which opening of the run wrote it, from 0.
    pub session: u32,
    /// Nanoseconds since that session's start.
    pub at: u64,
    /// Wall time, milliseconds since the Unix epoch.
    pub wall_ms: u64,
    /// What let it happen.
    pub enablers: Vec<Enabler>,
    /// Nanoseconds between the last of its enablers and it.
    pub delay: u64,
    /// What happened.
    pub kind: EventKind,
}

/// What the log keeps of a sample beside its payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleSummary {
    /// How it ended.
    pub status: Status,
    /// Tokens the policy generated.
    pub generated: u32,
    /// Its reward.
    pub reward: Option<f64>,
    /// The oldest version in any of its spans.
    pub oldest: Option<OldestVersion>,
    /// The newest version in its last span.
    pub newest: Option<Version>,
    /// When it went through its life.
    pub times: SampleTimes,
}

/// What the log keeps of a group beside its payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// How many samples the pipeline asked for.
    pub expected: u32,
    /// One entry a sample.
    pub samples: Vec<SampleSummary>,
}

impl GroupSummary {
    /// The oldest version in any span of any sample.
    pub fn oldest(&self) -> Option<OldestVersion> {
        self.samples.iter().filter_map(|sample| sample.oldest).reduce(OldestVersion::older)
    }

    /// Tokens the policy generated, over all samples.
    pub fn generated(&self) -> u64 {
        self.samples.iter().map(|sample| u64::from(sample.generated)).sum()
    }

    /// Mean reward of the samples that have one.
    pub fn reward_mean(&self) -> Option<f64> {
        group::mean(self.samples.iter().filter_map(|sample| sample.reward))
    }
}

/// Why a group was excluded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reason {
    /// A sample was aborted, or failed without a reward.
    Aborted,
    /// A user filter refused it.
    Filtered {
        /// The filter's name.
        name: String,
    },
    /// Its parts disagree.
    Malformed,
    /// A token carries a version that the clock has not reached.
    FutureVersion,
    /// A limit is set and nobody can bound its version.
    UnknownVersion,
    /// Its gap was over the limit when it was to be trained on.
    Stale {
        /// The gap.
        gap: u64,
    },
}

impl Reason {
    /// The reason without its details, as tables and metrics name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Aborted => "aborted",
            Self::Filtered { .. } => "filtered",
            Self::Malformed => "malformed",
            Self::FutureVersion => "future_version",
            Self::UnknownVersion => "unknown_version",
            Self::Stale { .. } => "stale",
        }
    }
}

/// What becomes of an excluded group's prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// Nothing.
    Drop,
    /// It is queued to be leased again under this name.
    Retry(GroupId),
    /// Nothing: its attempts are used up.
    Exhausted,
}

/// A group as it was taken for training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakenGroup {
    /// Which group.
    pub id: GroupId,
    /// When it left the buffer: nanoseconds since the session's start; absent without a buffer.
    pub dequeued: Option<u64>,
    /// Its version gap at that moment; absent where a version is unknown.
    pub gap: Option<u64>,
    /// Its step lag at that moment.
    pub step_lag: Option<u64>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EventKind {
    /// The run began.
    RunOpened {
        /// The library's version.
        library: String,
        /// The event format.
        format: u32,
        /// What the user said of the run.
        settings: Fields,
    },
    /// An operator of the pipeline met the run with these settings.
    Configured {
        /// Which operator, by name.
        operator: String,
        /// Its settings.
        settings: Fields,
    },
    /// Generation of a prompt began.
    Leased {
        /// The lease, and the group to be.
        id: GroupId,
        /// For fresh prompts: the position in the dataset's order over all epochs.
        position: Option<u64>,
    },
    /// A lease of an earlier session went out again.
    Reissued {
        /// The lease.
        id: GroupId,
        /// Which re-issue, from 1.
        reissue: u32,
    },
    /// Every sample of a group has its terminal status, and its reward or a reason for having none. The payload is
    /// stored with this record.
    Completed {
        /// Which group.
        id: GroupId,
        /// What came of it.
        summary: GroupSummary,
        /// Digest of the stored payload.
        payload: Digest,
    },
    /// A group entered the buffer.
    Admitted {
        /// Which group.
        id: GroupId,
    },
    /// A group was thrown away.
    Excluded {
        /// Which group.
        id: GroupId,
        /// Why.
        reason: Reason,
        /// What becomes of its prompt.
        then: Then,
        /// When it left the buffer, if it was in it.
        dequeued: Option<u64>,
    },
    /// A batch was taken for training: the commit point.
    BatchTaken {
        /// The training step that it is for.
        step: TrainingStep,
        /// The version against which its gaps were judged.
        version: Option<Version>,
        /// Its groups, in dequeue order.
        groups: Vec<TakenGroup>,
        /// Digest of the ordered ids and payload digests.
        digest: Digest,
    },
    /// A training step was made.
    Stepped {
        /// Which step, from 1.
        step: TrainingStep,
        /// Optimizer updates so far.
        updates: u64,
        /// The loss.
        loss: f64,
        /// Whatever else the learner measured.
        metrics: BTreeMap<String, f64>,
        /// Digest of the weights after it.
        weights: Digest,
    },
    /// A training step was made again from the log.
    Restepped {
        /// Which step.
        step: TrainingStep,
        /// Digest of the weights after it.
        weights: Digest,
        /// Whether that equals the digest recorded first.
        equal: bool,
    },
    /// A publication was begun; its version is used up.
    Publishing {
        /// The new version.
        version: Version,
        /// The training step of its weights.
        step: TrainingStep,
        /// Optimizer updates in its weights.
        updates: u64,
        /// Digest of its weights.
        weights: Digest,
        /// What became of the samples in flight.
        mode: WeightSync,
    },
    /// The new weights are installed on the engines and the clock has advanced.
    Published {
        /// The new version.
        version: Version,
        /// The training step of its weights.
        step: TrainingStep,
        /// Optimizer updates in its weights.
        updates: u64,
        /// Digest of its weights.
        weights: Digest,
        /// When the engines began to pause: nanoseconds since the session's start.
        pause_began: u64,
        /// When the engines had paused.
        paused: u64,
    },
    /// Generation went on after a publication.
    GenerationResumed {
        /// The version installed.
        version: Version,
    },
    /// The last published weights were installed again after a restart.
    Reinstalled {
        /// The version they had, and have.
        version: Version,
        /// The training step of those weights.
        step: TrainingStep,
        /// Digest of the weights installed.
        weights: Digest,
    },
    /// The learner's state was saved.
    Checkpointed {
        /// Completed training steps in it.
        step: TrainingStep,
        /// The `BatchTaken` of the last of them.
        taken: Option<Seq>,
        /// Its directory's name.
        name: String,
    },
    /// The run was opened again.
    RunResumed {
        /// The library's version.
        library: String,
        /// Acknowledged events that a power loss took.
        lost: u64,
    },
    /// The pipeline ended.
    RunClosed {
        /// Groups left in the buffer or in a partial batch.
        left: Vec<GroupId>,
    },
    /// Submissions closed, for an evaluation or by the user.
    Held,
    /// Submissions reopened after the last hold.
    Reopened,
}

impl EventKind {
    /// Its name, as the schema and the tools print it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RunOpened { .. } => "run_opened",
            Self::Configured { .. } => "configured",
            Self::Leased { .. } => "leased",
            Self::Reissued { .. } => "reissued",
            Self::Completed { .. } => "completed",
            Self::Admitted { .. } => "admitted",
            Self::Excluded { .. } => "excluded",
            Self::BatchTaken { .. } => "batch_taken",
            Self::Stepped { .. } => "stepped",
            Self::Restepped { .. } => "restepped",
            Self::Publishing { .. } => "publishing",
            Self::Published { .. } => "published",
            Self::GenerationResumed { .. } => "generation_resumed",
            Self::Reinstalled { .. } => "reinstalled",
            Self::Checkpointed { .. } => "checkpointed",
            Self::RunResumed { .. } => "run_resumed",
            Self::RunClosed { .. } => "run_closed",
            Self::Held => "held",
            Self::Reopened => "reopened",
        }
    }

    /// Whether it changes what the gaps and lags of waiting groups are measured against, or comes once a training step.
    pub fn moves_clocks(&self) -> bool {
        matches!(
            self,
            Self::BatchTaken { .. }
                | Self::Stepped { .. }
                | Self::Restepped { .. }
                | Self::Published { .. }
                | Self::Reinstalled { .. }
        )
    }

    /// The group it is about, where it is about one.
    pub fn group(&self) -> Option<&GroupId> {
        match self {
            Self::Leased { id, .. }
            | Self::Reissued { id, .. }
            | Self::Completed { id, .. }
            | Self::Admitted { id }
            | Self::Excluded { id, .. } => Some(id),
            _ => None,
        }
    }
}
