//! A run driven event by event, for harnesses that need a log of a certain shape. Pipelines use the operators of
//! [`RolloutExt`](crate::RolloutExt) instead, which call the same functions in the right order.

use anabranch_core::{
    Cause, Digest, Error, Fields, Group, Reason, Sample, Stamp, TrainingStep, Version, VersionClock, WeightSync,
};

pub use crate::run::{Draft, RecordReceipt};
use crate::{Lease, Rollout, Run};

/// What operators call of a [`Run`].
pub trait RunByHand {
    /// Gives events their place in the log, all or none, with the payloads of those that complete a group.
    fn record(&self, drafts: Vec<Draft>, payloads: &[&Group]) -> RecordReceipt;
    /// Says with which settings an operator meets the run; recorded if they are new.
    ///
    /// # Errors
    /// [`Error::Changed`] if the log holds other settings and changes are not accepted.
    fn configure(&self, operator: &str, settings: Fields) -> Result<(), Error>;
    /// What `read` gives of the clock of versions and steps.
    fn with_clock<T>(&self, read: impl FnOnce(&mut VersionClock) -> T) -> T;
    /// The record that opened this session.
    fn opened(&self) -> Stamp;
    /// Groups between their issue and the buffer (or batch) now.
    fn upstream(&self) -> usize;
    /// Requests that run on engines now.
    fn running(&self) -> usize;
    /// Begins a publication: its version is used up, whatever comes of it.
    fn begin_publication(
        &self,
        weights: Digest,
        mode: WeightSync,
        enablers: Vec<(Cause, Stamp)>,
    ) -> (Version, RecordReceipt);
    /// The weights are on the engines: `Published` gets its place and the clock advances.
    fn complete_publication(
        &self,
        version: Version,
        weights: Digest,
        pause_began: u64,
        paused: u64,
        enablers: Vec<(Cause, Stamp)>,
    ) -> RecordReceipt;
    /// Weights published by an earlier session are on the engines again, under the same version.
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

/// What operators call of a [`Lease`].
pub trait LeaseByHand: Sized {
    /// Records that generation of this prompt begins now. A lease that is already issued keeps its record.
    fn issue(&mut self, enablers: Vec<(Cause, Stamp)>) -> Stamp;
    /// Whether an earlier session completed its group, which waits in the log.
    fn is_restored(&self) -> bool;
    /// The rollout of these samples.
    fn with_samples(self, samples: Vec<Sample>, extra: Fields) -> Rollout;
    /// The rollout of the group that an earlier session completed.
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

/// What operators call of a [`Rollout`].
pub trait RolloutByHand {
    /// Makes the group's `Completed` record, with its payload, unless it has one.
    fn complete(&mut self) -> Option<RecordReceipt>;
    /// Records that the group is thrown away, and what becomes of its prompt.
    fn exclude(self, reason: Reason, enablers: Vec<(Cause, Stamp)>);
    /// Its `Completed` record, once logged.
    fn completed(&self) -> Option<Stamp>;
    /// Its `Admitted` record, once admitted.
    fn admitted(&self) -> Option<Stamp>;
    /// Notes its `Admitted` record.
    fn set_admitted(&mut self, admitted: Stamp);
    /// When it was taken out of the buffer.
    fn dequeued(&self) -> Option<u64>;
    /// Notes when it was taken out of the buffer.
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
