//! The rules of the contract that a log can break.

use anabranch_core::{Cause, Digest, GroupId, Order, Seq, TrainingStep, Version};
use serde::Serialize;

/// A rule of the contract that a log breaks, with the event and the group. Its `Display` is a sentence.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "violation", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the sentence of each variant documents its fields")]
pub enum Violation {
    // The sequence of events.
    #[error("expected event {expected}, found {found}: events are missing, doubled or out of place")]
    NotDense { expected: Seq, found: Seq },
    #[error("expected `run_opened` as the first event, found {seq} (`{event}`)")]
    NotOpened { seq: Seq, event: &'static str },
    #[error("{seq}: expected session {expected}, found session {found}: a session begins with `run_resumed`")]
    Session { seq: Seq, expected: u32, found: u32 },
    #[error("{seq} is {by} ns earlier than the event before it in its session")]
    TimeBackwards { seq: Seq, by: u64 },

    // Leases and their settlement.
    #[error("{seq}: {group} is leased although {first} leased it")]
    LeasedTwice { seq: Seq, group: GroupId, first: Seq },
    #[error("{seq}: {group} is {event} without ever having been leased")]
    NotLeased { seq: Seq, group: GroupId, event: &'static str },
    #[error("{seq}: {group} is re-issued although it is {place}")]
    ReissuedSettled { seq: Seq, group: GroupId, place: &'static str },
    #[error("{seq}: expected re-issue {expected} of {group}, found {found}")]
    ReissueCount { seq: Seq, group: GroupId, expected: u32, found: u32 },
    #[error("{seq}: {group} is completed although {first} completed it")]
    CompletedTwice { seq: Seq, group: GroupId, first: Seq },
    #[error("{seq}: {group} is {event} without having been completed")]
    NotCompleted { seq: Seq, group: GroupId, event: &'static str },
    #[error("{seq}: {group} is admitted although {first} admitted it")]
    AdmittedTwice { seq: Seq, group: GroupId, first: Seq },
    #[error("{seq}: {group} is {event} although {first} settled it: a lease is settled by exactly one event")]
    SettledTwice { seq: Seq, group: GroupId, event: &'static str, first: Seq },
    #[error("{seq}: {group} is {event} although it was settled long before: a lease is settled by exactly one event")]
    SettledLongBefore { seq: Seq, group: GroupId, event: &'static str },
    #[error(
        "{seq}: {leased} leased, but {consumed} consumed + {excluded} excluded + {in_flight} in flight + {waiting} \
         waiting + {buffered} buffered: the conservation law fails"
    )]
    Unbalanced { seq: Seq, leased: u64, consumed: u64, excluded: u64, in_flight: u64, waiting: u64, buffered: u64 },
    #[error("{seq}: {group} is left open by the closed run although {first} settled it")]
    LeftSettled { seq: Seq, group: GroupId, first: Seq },

    // Retries.
    #[error("{seq}: expected the next attempt at {group} as its retry, found {next}")]
    RetryMislinked { seq: Seq, group: GroupId, next: GroupId },
    #[error("{seq}: {group} is retried although it is {reason}; only aborted and stale groups are")]
    RetryForbidden { seq: Seq, group: GroupId, reason: &'static str },
    #[error("{seq}: {group} is leased as a retry that no exclusion queued")]
    RetryUnlinked { seq: Seq, group: GroupId },
    #[error("{seq}: {group} is attempt {attempt}, counted from 0, of {max_attempts}")]
    TooManyAttempts { seq: Seq, group: GroupId, attempt: u32, max_attempts: u32 },
    #[error("{seq}: {group} has its attempts exhausted at attempt {attempt}, counted from 0, of {max_attempts}")]
    ExhaustedEarly { seq: Seq, group: GroupId, attempt: u32, max_attempts: u32 },

    // Versions.
    #[error("{seq}: expected {expected} to begin, found {version}: versions grow by one and none is used again")]
    VersionOrder { seq: Seq, version: Version, expected: Version },
    #[error("{seq}: {version} is published without having been begun last")]
    PublishedUnbegun { seq: Seq, version: Version },
    #[error("{seq}: {version} is published with another {what} than it was begun with at {publishing}")]
    PublishedDiffers { seq: Seq, version: Version, what: &'static str, publishing: Seq },
    #[error("{seq}: expected the last published version {} to be reinstalled, found {version}", shown(*published))]
    ReinstalledOther { seq: Seq, version: Version, published: Option<Version> },
    #[error("{seq}: {version} is reinstalled: expected weights {published} as published, found {found}")]
    ReinstalledDiffers { seq: Seq, version: Version, found: Digest, published: Digest },
    #[error("{seq}: generation resumes under {version}, but {} is installed", shown(*installed))]
    ResumedOther { seq: Seq, version: Version, installed: Option<Version> },

    // Batches.
    #[error("{seq}: expected a batch for step {expected}, found one for step {step}")]
    BatchOrder { seq: Seq, step: TrainingStep, expected: TrainingStep },
    #[error("{seq}: the batch for step {step} is taken before step {unmade} is made")]
    BatchEarly { seq: Seq, step: TrainingStep, unmade: TrainingStep },
    #[error("{seq}: the batch for step {step}: expected {configured} groups as configured, found {size}")]
    BatchSize { seq: Seq, step: TrainingStep, size: u64, configured: u64 },
    #[error("{seq}: the batch for step {step}: expected the installed version {}, found {}", shown(*installed), shown(*version))]
    BatchVersion { seq: Seq, step: TrainingStep, version: Option<Version>, installed: Option<Version> },
    #[error("{seq}: {group} is taken with gap {gap}, over the limit of {limit}")]
    GapOverLimit { seq: Seq, group: GroupId, gap: u64, limit: u64 },
    #[error("{seq}: {group}: expected gap {} from its spans, found {}", shown(*recomputed), shown(*recorded))]
    GapDiffers { seq: Seq, group: GroupId, recorded: Option<u64>, recomputed: Option<u64> },
    #[error("{seq}: {group}: expected step lag {} from its spans, found {}", shown(*recomputed), shown(*recorded))]
    StepLagDiffers { seq: Seq, group: GroupId, recorded: Option<u64>, recomputed: Option<u64> },
    #[error("{seq}: {group} is excluded as stale: expected gap {} from its spans, found {recorded}", shown(*recomputed))]
    StaleGapDiffers { seq: Seq, group: GroupId, recorded: u64, recomputed: Option<u64> },
    #[error("{seq}: {group} is excluded as stale with gap {gap}, within the limit of {limit}")]
    StaleWithinLimit { seq: Seq, group: GroupId, gap: u64, limit: u64 },
    #[error("{seq}: {group} carries {version}, but only {installed} was installed when it was completed")]
    FutureVersion { seq: Seq, group: GroupId, version: Version, installed: Version },
    #[error("{seq}: the batch for step {step}: expected digest {recomputed} from its groups, found {recorded}")]
    BatchDigest { seq: Seq, step: TrainingStep, recorded: Digest, recomputed: Digest },
    #[error("{seq}: {group} is in the batch after {after}, which was admitted later")]
    OutOfOrder { seq: Seq, group: GroupId, after: GroupId },
    #[error("{seq}: {group} was passed over: it was admitted at {admitted}, before {taken}, which is taken")]
    PassedOver { seq: Seq, group: GroupId, admitted: Seq, taken: GroupId },
    #[error("{seq}: {group} left the buffer before {overtaken}, which was admitted earlier")]
    Overtook { seq: Seq, group: GroupId, overtaken: GroupId },
    #[error("{seq}: {group} is in the batch after {after}, which left the buffer later")]
    DequeuedEarlier { seq: Seq, group: GroupId, after: GroupId },
    #[error("{seq}: {group} left the buffer before {admitted} admitted it")]
    DequeuedUnadmitted { seq: Seq, group: GroupId, admitted: Seq },
    #[error("{seq}: expected {due} to leave the buffer first, found {group}: the buffer's order is {order}")]
    NotDue { seq: Seq, group: GroupId, due: GroupId, order: Order },

    // Steps.
    #[error("{seq}: step {step} is made without a batch taken for it before")]
    SteppedUntaken { seq: Seq, step: TrainingStep },
    #[error("{seq}: step {step} is made although {first} made it; a step made again is recorded as `restepped`")]
    SteppedTwice { seq: Seq, step: TrainingStep, first: Seq },
    #[error("{seq}: expected step {expected} to be made, found step {step}")]
    StepOrder { seq: Seq, step: TrainingStep, expected: TrainingStep },
    #[error("{seq}: step {step} is made again although it was never made")]
    RestepUnknown { seq: Seq, step: TrainingStep },
    #[error("{seq}: step {step} is made again: expected weights {recorded} as at first, found {found}")]
    RestepDiffers { seq: Seq, step: TrainingStep, found: Digest, recorded: Digest },

    // Enablers.
    #[error("{seq}: expected an enabler before it, found {enabler}")]
    EnablerLater { seq: Seq, enabler: Seq },
    #[error("{seq} was enabled ({cause:?}) by {enabler}, which is `{event}`")]
    EnablerKind { seq: Seq, cause: Cause, enabler: Seq, event: &'static str },
    #[error("{seq}: {group} was enabled ({cause:?}) by {enabler}, but that record of the group is {}", shown(*expected))]
    EnablerGroup { seq: Seq, group: GroupId, cause: Cause, enabler: Seq, expected: Option<Seq> },
}

fn shown<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}
