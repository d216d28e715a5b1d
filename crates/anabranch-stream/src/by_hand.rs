//! A run driven event by event, for harnesses that need a log of a certain shape. Pipelines use the operators of
//! [`RolloutExt`](crate::RolloutExt) instead, which call the same functions in the right order.

use anabranch_core::{
    Cause, Digest, Error, Fields, Group, Reason, Sample, Stamp, TrainingStep, Version, VersionClock, WeightSync,
};

pub use crate::run::{Draft, RecordReceipt};
use crate::{Lease, Rollout, Run};

/// The functions of a [`Run`] that operators call.
pub trait RunByHand {
    /// Appends events to the log, all or none, with the payloads of the groups that they complete.
    fn record(&self, drafts: Vec<Draft>, payloads: &[&Group]) -> RecordReceipt;
    /// Notes the settings of an operator, and records them if they are new.
    ///
    /// # Errors
    /// Returns [`Error::Changed`] if the log has other settings and changes are not accepted.
    fn configure(&self, operator: &str, settings: Fields) -> Result<(), Error>;
    /// Returns the result of `read` on the clock of versions and steps.
    fn with_clock<T>(&self, read: impl FnOnce(&mut VersionClock) -> T) -> T;
    /// The record that opened this session.
    fn opened(&self) -> Stamp;
    /// The number of groups between their lease and the buffer (or batch).
    fn upstream(&self) -> usize;
    /// The number of requests that run on engines.
    fn running(&self) -> usize;
    /// Begins a publication. Its version number is used up, even if the publication fails.
    fn begin_publication(
        &self,
        weights: Digest,
        mode: WeightSync,
        enablers: Vec<(Cause, Stamp)>,
    ) -> (Version, RecordReceipt);
    /// Notes that the weights are on the engines: records `Published` and advances the clock.
    fn complete_publication(
        &self,
        version: Version,
        weights: Digest,
        pause_began: u64,
        paused: u64,
        enablers: Vec<(Cause, Stamp)>,
    ) -> RecordReceipt;
    /// Notes that weights of an earlier session are on the engines again, under the same version.
    fn reinstall(&self, version: Version, step: TrainingStep, weights: Digest) -> RecordReceipt;
}

impl RunByHand for Run {
    fn record(&self, drafts: Vec<Draft>, payloads: &[&Group]) -> RecordReceipt {
        self.record(drafts, payloads)
    }

    fn configure(&self, operator: &str, settings: Fields) -> Result<(), Error> {
        self.configure(operator, settings)
    }

    fn with_clock<T>(&self, read: impl FnOnce(&mut VersionClock) -> T) -> T {
        read(&mut self.clock())
    }

    fn opened(&self) -> Stamp {
        self.opened()
    }

    fn upstream(&self) -> usize {
        self.upstream()
    }

    fn running(&self) -> usize {
        self.running()
    }

    fn begin_publication(
        &self,
        weights: Digest,
        mode: WeightSync,
        enablers: Vec<(Cause, Stamp)>,
    ) -> (Version, RecordReceipt) {
        self.begin_publication(weights, mode, enablers)
    }

    fn complete_publication(
        &self,
        version: Version,
        weights: Digest,
        pause_began: u64,
        paused: u64,
        enablers: Vec<(Cause, Stamp)>,
    ) -> RecordReceipt {
        self.complete_publication(version, weights, pause_began, paused, enablers)
    }

    fn reinstall(&self, version: Version, step: TrainingStep, weights: Digest) -> RecordReceipt {
        self.reinstall(version, step, weights)
    }
}

/// The functions of a [`Lease`] that operators call.
pub trait LeaseByHand: Sized {
    /// Records that generation of this prompt begins now. A lease that is already issued keeps its record.
    fn issue(&mut self, enablers: Vec<(Cause, Stamp)>) -> Stamp;
    /// Whether an earlier session completed the group, which is then in the log.
    fn is_restored(&self) -> bool;
    /// Creates the rollout of these samples.
    fn with_samples(self, samples: Vec<Sample>, extra: Fields) -> Rollout;
    /// Creates the rollout of the group that an earlier session completed.
    fn with_restored(self, group: Group) -> Rollout;
}

impl LeaseByHand for Lease {
    fn issue(&mut self, enablers: Vec<(Cause, Stamp)>) -> Stamp {
        self.issue(enablers)
    }

    fn is_restored(&self) -> bool {
        self.restored().is_some()
    }

    fn with_samples(self, samples: Vec<Sample>, extra: Fields) -> Rollout {
        let mut rollout = Rollout::of_samples(self, samples);
        rollout.extra = extra;
        rollout
    }

    fn with_restored(self, group: Group) -> Rollout {
        Rollout::restored(group, self)
    }
}

/// The functions of a [`Rollout`] that operators call.
pub trait RolloutByHand {
    /// Writes the group's `Completed` record, with its payload, unless the group has one.
    fn complete(&mut self) -> Option<RecordReceipt>;
    /// Records that the group is excluded, and what happens to its prompt.
    fn exclude(self, reason: Reason, enablers: Vec<(Cause, Stamp)>);
    /// The `Completed` record, once the group is logged.
    fn completed(&self) -> Option<Stamp>;
    /// The `Admitted` record, once the group is admitted.
    fn admitted(&self) -> Option<Stamp>;
    /// Notes the `Admitted` record.
    fn set_admitted(&mut self, admitted: Stamp);
    /// When the group was taken out of the buffer.
    fn dequeued(&self) -> Option<u64>;
    /// Notes when the group was taken out of the buffer.
    fn set_dequeued(&mut self, at: u64);
}

impl RolloutByHand for Rollout {
    fn complete(&mut self) -> Option<RecordReceipt> {
        self.complete()
    }

    fn exclude(self, reason: Reason, enablers: Vec<(Cause, Stamp)>) {
        self.exclude(reason, enablers);
    }

    fn completed(&self) -> Option<Stamp> {
        self.completed
    }

    fn admitted(&self) -> Option<Stamp> {
        self.admitted
    }

    fn set_admitted(&mut self, admitted: Stamp) {
        self.admitted = Some(admitted);
    }

    fn dequeued(&self) -> Option<u64> {
        self.dequeued
    }

    fn set_dequeued(&mut self, at: u64) {
        self.dequeued = Some(at);
    }
}
