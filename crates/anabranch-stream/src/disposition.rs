//! Completing and excluding groups: the records that end a lease without training.

use anabranch_core::{Cause, Digest, EventKind, Group, Reason, Retry, Stamp, Then, VersionClock};
use parking_lot::MutexGuard;

use crate::run::{Draft, RecordReceipt, Stage};
use crate::{Lease, Rollout, Run};

/// What becomes of the prompt of a group that goes unused: aborted or stale. Other exclusions are never retried.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unused {
    /// Nothing: the prompt is dropped.
    Drop,
    /// The pristine prompt is leased again, until it has had `max_attempts` leases.
    Retry {
        /// Leases of a prompt, the first among them; at least 1.
        max_attempts: u32,
    },
}

/// An exclusion that is decided and not yet recorded: what it writes, and the lease that it settles.
#[derive(Debug)]
pub(crate) struct Exclusion {
    group: Group,
    lease: Lease,
    then: Then,
    /// The group's `Completed` record, if it has none yet.
    completed: Option<EventKind>,
    excluded: EventKind,
    enablers: Vec<(Cause, Stamp)>,
}

impl Exclusion {
    /// The drafts of its record: the completion if that is missing, then the exclusion.
    pub(crate) fn drafts(&mut self) -> impl Iterator<Item = Draft> + use<> {
        let completed = self.completed.clone().map(|kind| Draft::new(kind, self.leased()));
        let mut excluded = Draft::new(self.excluded.clone(), std::mem::take(&mut self.enablers));
        if completed.is_some() {
            excluded = excluded.after_previous(Cause::Completed);
        }
        completed.into_iter().chain([excluded])
    }

    fn leased(&self) -> Vec<(Cause, Stamp)> {
        self.lease.issued().map(|leased| (Cause::Leased, leased)).into_iter().collect()
    }

    /// The payload that its record needs.
    pub(crate) fn payload(&self) -> Option<&Group> {
        self.completed.is_some().then_some(&self.group)
    }

    /// Its record is `stamp`: queues the retry, settles the lease, and wakes whoever waits for room.
    pub(crate) fn settle(mut self, stamp: Stamp) {
        let flow = self.lease.run().flow();
        flow.exclude(stamp);
        if let (Then::Retry(next), Some(excluded)) = (self.then, stamp.moment.event()) {
            flow.queue(Retry { lease: next, excluded, at: stamp.at });
        }
        self.lease.arrive(Stage::Settled);
    }
}

/// Records what was decided under the clock: `exclusions`, then `last`, in one record. `change` takes over what `last` means
/// for the clock.
pub(crate) fn commit(
    run: &Run,
    clock: MutexGuard<'_, VersionClock>,
    mut exclusions: Vec<Exclusion>,
    last: Option<Draft>,
    change: impl FnOnce(&mut VersionClock, Stamp),
) -> Option<RecordReceipt> {
    let mut drafts = Vec::with_capacity(exclusions.len() + 1);
    let mut places = Vec::with_capacity(exclusions.len());
    for exclusion in &mut exclusions {
        drafts.extend(exclusion.drafts());
        places.push(drafts.len() as u64 - 1);
    }
    drafts.extend(last);
    if drafts.is_empty() {
        return None;
    }
    let payloads: Vec<&Group> = exclusions.iter().filter_map(Exclusion::payload).collect();
    let recorded = run.commit(clock, drafts, &payloads, change);
    for (exclusion, place) in exclusions.into_iter().zip(places) {
        exclusion.settle(recorded.stamp(place));
    }
    Some(recorded)
}

impl Rollout {
    /// Makes the group's `Completed` record, with its payload, unless it has one.
    pub(crate) fn complete(&mut self) -> Option<RecordReceipt> {
        let (kind, digest) = self.completion()?;
        let leased = self.lease.issued().map(|leased| (Cause::Leased, leased));
        let draft = Draft::new(kind, leased.into_iter().collect());
        let recorded = self.run().record(vec![draft], &[self]);
        self.completed = Some(recorded.stamp(0));
        self.payload = Some(digest);
        Some(recorded)
    }

    /// Records that the group is thrown away, and what becomes of its prompt: one record, so that a kill between the two
    /// loses nothing. A group not yet completed is completed by the same record.
    pub(crate) fn exclude(self, reason: Reason, enablers: Vec<(Cause, Stamp)>) {
        let mut exclusion = self.into_exclusion(reason, enablers);
        let drafts = exclusion.drafts().collect();
        let payloads: Vec<&Group> = exclusion.payload().into_iter().collect();
        let recorded = exclusion.lease.run().record(drafts, &payloads);
        exclusion.settle(recorded.last());
    }

    /// Decides the exclusion without recording it.
    pub(crate) fn into_exclusion(mut self, reason: Reason, mut enablers: Vec<(Cause, Stamp)>) -> Exclusion {
        let retried = matches!(reason, Reason::Aborted | Reason::Stale { .. });
        let then = match self.lease.unused() {
            Unused::Retry { max_attempts } if retried && self.id.attempt + 1 >= max_attempts => Then::Exhausted,
            Unused::Retry { .. } if retried && self.lease.reopen() => Then::Retry(self.id.retry()),
            _ => Then::Drop,
        };
        let excluded = EventKind::Excluded { id: self.id.clone(), reason, then: then.clone(), dequeued: self.dequeued };
        let completed = self.completion().map(|(kind, _)| kind);
        if completed.is_none() {
            enablers.extend(self.admitted.map(|stamp| (Cause::Admitted, stamp)));
        }
        let (group, lease) = self.into_parts();
        Exclusion { group, lease, then, completed, excluded, enablers }
    }

    /// What its `Completed` record holds, unless it has one; `None` for a lease that was never issued.
    fn completion(&self) -> Option<(EventKind, Digest)> {
        if self.completed.is_some() {
            return None;
        }
        self.lease.issued()?;
        let payload = self.digest();
        Some((EventKind::Completed { id: self.id.clone(), summary: self.summary(), payload }, payload))
    }
}
