//! The events of a run. Everything that tools say about a run is computed from them.

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
    /// The place of the event in the log.
    pub seq: Seq,
    /// The session (opening of the run) that wrote the event, from 0.
    pub session: u32,
    /// Nanoseconds since the start of that session.
    pub at: u64,
    /// Wall time, milliseconds since the Unix epoch.
    pub wall_ms: u64,
    /// The earlier events that made this event possible.
    pub enablers: Vec<Enabler>,
    /// Nanoseconds between the last of its enablers and the event.
    pub delay: u64,
    /// What happened.
    pub kind: EventKind,
}

/// A summary of a sample, which the log keeps besides the payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleSummary {
    /// How the sample ended.
    pub status: Status,
    /// The number of tokens that the policy generated.
    pub generated: u32,
    /// The reward.
    pub reward: Option<f64>,
    /// The oldest version in any span.
    pub oldest: Option<OldestVersion>,
    /// The newest version in the last span.
    pub newest: Option<Version>,
    /// When the sample was submitted, ended and was scored.
    pub times: SampleTimes,
}

/// A summary of a group, which the log keeps besides the payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupSummary {
    /// The number of samples that the pipeline asked for.
    pub expected: u32,
    /// One entry per sample.
    pub samples: Vec<SampleSummary>,
}

impl GroupSummary {
    /// The oldest version in any span of any sample.
    pub fn oldest(&self) -> Option<OldestVersion> {
        self.samples.iter().filter_map(|sample| sample.oldest).reduce(OldestVersion::older)
    }

    /// The number of tokens that the policy generated, over all samples.
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
#[non_exhaustive]
pub enum Reason {
    /// A sample was aborted, or failed without a reward.
    Aborted,
    /// A user filter rejected the group.
    Filtered {
        /// The filter's name.
        name: String,
    },
    /// The parts of the group contradict each other.
    Malformed,
    /// A token carries a version that the clock has not reached.
    FutureVersion,
    /// The version of the group is unknown, and a staleness limit is set.
    UnknownVersion,
    /// The gap of the group was over the limit when it left the buffer.
    Stale {
        /// The gap.
        gap: u64,
    },
}

impl Reason {
    /// The name of the reason, without details, for tables and metrics.
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

/// What happens to the prompt of an excluded group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// The prompt is dropped.
    Drop,
    /// The prompt is queued to be leased again under this name.
    Retry(GroupId),
    /// The prompt is dropped because its attempts are used up.
    Exhausted,
}

/// A group that was taken for training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakenGroup {
    /// Which group.
    pub id: GroupId,
    /// When the group left the buffer, in nanoseconds since the session's start; `None` without a buffer.
    pub dequeued: Option<u64>,
    /// The version gap of the group when the batch was taken; `None` if a version is unknown.
    pub gap: Option<u64>,
    /// The step lag of the group at that moment.
    pub step_lag: Option<u64>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EventKind {
    /// The run began.
    RunOpened {
        /// The library's version.
        library: String,
        /// The event format.
        format: u32,
        /// The settings that the user gave for the run.
        settings: Fields,
    },
    /// An operator of the pipeline began to work with these settings.
    Configured {
        /// The name of the operator.
        operator: String,
        /// Its settings.
        settings: Fields,
    },
    /// Generation of a prompt began.
    Leased {
        /// The lease, whose name the group will have.
        id: GroupId,
        /// For fresh prompts, the position in the dataset's order over all epochs.
        position: Option<u64>,
    },
    /// A lease of an earlier session was issued again.
    Reissued {
        /// The lease.
        id: GroupId,
        /// The number of the re-issue, from 1.
        reissue: u32,
    },
    /// Every sample of a group has ended, and has a reward or a reason for having none. The payload is stored with this
    /// record.
    Completed {
        /// Which group.
        id: GroupId,
        /// A summary of the group.
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
        /// When the group left the buffer, if it was in the buffer.
        dequeued: Option<u64>,
    },
    /// A batch was taken for training: the commit point.
    BatchTaken {
        /// The training step of the batch.
        step: TrainingStep,
        /// The version against which the gaps were judged.
        version: Option<Version>,
        /// The groups, in the order in which they left the buffer.
        groups: Vec<TakenGroup>,
        /// Digest of the ordered ids and payload digests.
        digest: Digest,
    },
    /// A training step was made.
    Stepped {
        /// The number of the step, from 1.
        step: TrainingStep,
        /// Optimizer updates so far.
        updates: u64,
        /// The loss.
        loss: f64,
        /// The learner's other metrics.
        metrics: BTreeMap<String, f64>,
        /// Digest of the weights after the step.
        weights: Digest,
    },
    /// A training step was trained again from the log.
    Restepped {
        /// The number of the step.
        step: TrainingStep,
        /// Digest of the weights after the step.
        weights: Digest,
        /// Whether the digest equals the digest of the original step.
        equal: bool,
    },
    /// A publication began. Its version number is now used up.
    Publishing {
        /// The new version.
        version: Version,
        /// The training step of the weights.
        step: TrainingStep,
        /// The number of optimizer updates in the weights.
        updates: u64,
        /// Digest of the weights.
        weights: Digest,
        /// What happened to the samples in flight.
        mode: WeightSync,
    },
    /// The new weights are installed on the engines and the clock has advanced.
    Published {
        /// The new version.
        version: Version,
        /// The training step of the weights.
        step: TrainingStep,
        /// The number of optimizer updates in the weights.
        updates: u64,
        /// Digest of the weights.
        weights: Digest,
        /// When the engines began to pause, in nanoseconds since the session's start.
        pause_began: u64,
        /// When all engines had paused.
        paused: u64,
    },
    /// Generation resumed after a publication.
    GenerationResumed {
        /// The installed version.
        version: Version,
    },
    /// The last published weights were installed again after a restart.
    Reinstalled {
        /// The version of the weights, which stays the same.
        version: Version,
        /// The training step of those weights.
        step: TrainingStep,
        /// Digest of the weights installed.
        weights: Digest,
    },
    /// A checkpoint of the learner was saved.
    Checkpointed {
        /// The number of completed training steps in the checkpoint.
        step: TrainingStep,
        /// The `BatchTaken` record of the last of these steps.
        taken: Option<Seq>,
        /// The name of the checkpoint's directory.
        name: String,
    },
    /// The run was opened again.
    RunResumed {
        /// The library's version.
        library: String,
        /// The number of acknowledged events that a power loss took.
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
    /// The name of the kind, as the schema and the tools print it.
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

    /// Whether the event changes the version or the step against which gaps and lags of waiting groups are measured, or
    /// happens once per training step.
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

    /// The group of the event, if it is about a single group.
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
