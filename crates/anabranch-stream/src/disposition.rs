//! Completes and excludes groups: the records that settle a lease without training.

use anabranch_core::{Cause, Digest, EventKind, Group, Reason, Retry, Stamp, Then, VersionClock};
use parking_lot::MutexGuard;

use crate::run::{Draft, RecordReceipt, Stage};
use crate::{Lease, Rollout, Run};

/// What happens to the prompt of an aborted or stale group. Other excluded groups are never retried.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unused {
    /// The prompt is dropped.
    Drop,
    /// The original prompt is leased again, until it has had `max_attempts` leases.
    Retry {
        /// The number of leases of a prompt, including the first; at least 1.
        max_attempts: u32,
    },
}

/// An exclusion that is decided but not recorded yet: its record, and the lease that it settles.
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
    /// The events of the record: the completion if it is missing, then the exclusion.
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

    /// The payload of the record, if it needs one.
    pub(crate) fn payload(&self) -> Option<&Group> {
        self.completed.is_some().then_some(&self.group)
    }

    /// Finishes the exclusion, whose record is `stamp`: queues the retry, settles the lease, and wakes tasks that wait
    /// for room.
    pub(crate) fn settle(mut self, stamp: Stamp) {
        let flow = self.lease.run().flow();
        flow.exclude(stamp);
        if let (Then::Retry(next), Some(excluded)) = (self.then, stamp.moment.event()) {
            flow.queue(Retry { lease: next, excluded, at: stamp.at });
        }
        self.lease.arrive(Stage::Settled);
    }
}

/// Records decisions made under the clock: `exclusions`, then `last`, in one record. `change` applies `last` to the
/// clock.
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
    /// Writes the group's `Completed` record, with its payload, unless the group has one.
    pub(crate) fn complete(&mut self) -> Option<RecordReceipt> {
        let (kind, digest) = self.completion()?;
        let leased = self.lease.issued().map(|leased| (Cause::Leased, leased));
        let draft = Draft::new(kind, leased.into_iter().collect());
        let recorded = self.run().record(vec![draft], &[self]);
        self.completed = Some(recorded.stamp(0));
        self.payload = Some(digest);
        Some(recorded)
    }

    /// Records that the group is excluded, and what happens to its prompt. This is one record, so that a kill in
    /// between loses nothing. If the group was not completed before, the same record completes it.
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

    /// The `Completed` event of the group, unless it has one; `None` for a lease that was never issued.
    fn completion(&self) -> Option<(EventKind, Digest)> {
        if self.completed.is_some() {
            return None;
        }
        self.lease.issued()?;
        let payload = self.digest();
        Some((EventKind::Completed { id: self.id.clone(), summary: self.summary(), payload }, payload))
    }
}
