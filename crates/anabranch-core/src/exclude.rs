//! Completing and excluding groups: the records that end a lease without training.

use crate::{
    Cause, Digest, Draft, Error, EventKind, Group, OldestVersion, Reason, RecordReceipt, Run, Stage, Stamp, Then,
    resume_state::Retry,
};

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

impl Group {
    /// Makes the group's `Completed` record, with its payload, unless it has one.
    pub fn complete(&mut self) -> Option<RecordReceipt> {
        let run = self.run()?;
        let (draft, digest) = self.completion()?;
        let recorded = run.record(vec![draft], &[self]);
        self.context.completed = Some(recorded.stamp(0));
        self.context.payload = Some(digest);
        Some(recorded)
    }

    /// The run that the group belongs to.
    pub fn run(&self) -> Option<Run> {
        self.context.lease.as_ref().map(|lease| lease.run().clone())
    }

    /// Records that the group is thrown away, and what becomes of its prompt: one record, so that a kill between the two
    /// loses nothing. A group not yet completed is completed by the same record.
    pub fn exclude(mut self, reason: Reason, enablers: Vec<(Cause, Stamp)>) -> Option<RecordReceipt> {
        let mut lease = self.context.lease.take()?;
        let run = lease.run().clone();
        let retried = matches!(reason, Reason::Aborted | Reason::Stale { .. });
        let then = match lease.unused() {
            Unused::Retry { max_attempts } if retried && self.id.attempt + 1 >= max_attempts => Then::Exhausted,
            Unused::Retry { .. } if retried && lease.reopen() => Then::Retry(self.id.retry()),
            _ => Then::Drop,
        };
        let dequeued = self.context.dequeued;
        let kind = EventKind::Excluded { id: self.id.clone(), reason, then: then.clone(), dequeued };
        let mut excluded = Draft::new(kind, enablers);
        self.context.lease = Some(lease);
        let recorded = if let Some((completed, _)) = self.completion() {
            excluded = excluded.after_previous(Cause::Completed);
            run.record(vec![completed, excluded], &[&self])
        } else {
            excluded.enablers.extend(self.context.admitted.map(|stamp| (Cause::Admitted, stamp)));
            run.record(vec![excluded], &[])
        };
        lease = self.context.lease.take()?;
        let stamp = recorded.last();
        run.flow().exclude(stamp);
        if let Then::Retry(next) = then {
            run.flow().queue(Retry { lease: next, excluded: recorded.last_seq(), at: stamp.at });
        }
        lease.arrive(Stage::Settled);
        Some(recorded)
    }

    /// Entry checks 1 and 2, once: an aborted group is excluded (`None`); a malformed one, or one with a version from the
    /// future, is logged, excluded and an error.
    ///
    /// # Errors
    /// [`Error::Malformed`] and [`Error::FutureVersion`], naming the group.
    pub fn check_entry(mut self) -> Result<Option<Self>, Error> {
        if self.context.checked {
            return Ok(Some(self));
        }
        if self.is_aborted() {
            self.exclude(Reason::Aborted, Vec::new());
            return Ok(None);
        }
        if let Err(malformed) = self.check() {
            self.exclude(Reason::Malformed, Vec::new());
            return Err(malformed.into());
        }
        let newest = self.samples.iter().flat_map(|s| &s.spans).filter_map(|span| span.version.highest()).max();
        let installed = self.run().and_then(|run| run.clock().version());
        if let (Some(version), Some(installed)) = (newest, installed)
            && version > installed
        {
            let error = Error::FutureVersion { group: self.id.clone(), version, installed: installed.to_string() };
            self.exclude(Reason::FutureVersion, Vec::new());
            return Err(error);
        }
        self.context.checked = true;
        Ok(Some(self))
    }

    /// The exit check against the version now installed: `Ok` passes with the gap (absent where a version is unknown).
    ///
    /// # Errors
    /// Why the group must be excluded.
    pub fn check_exit(&self, clock: &crate::VersionClock) -> Result<Option<u64>, Reason> {
        let oldest = self.oldest();
        let gap = oldest.and_then(|oldest| clock.gap(oldest));
        match (self.context.max_gap, gap) {
            (Some(limit), Some(gap)) if gap > limit => Err(Reason::Stale { gap }),
            (Some(_), None) if oldest == Some(OldestVersion::Unknown) && !self.context.allow_unknown => {
                Err(Reason::UnknownVersion)
            }
            _ => Ok(gap),
        }
    }

    fn completion(&self) -> Option<(Draft, Digest)> {
        if self.context.completed.is_some() {
            return None;
        }
        let leased = self.context.lease.as_ref()?.issued()?;
        let payload = self.digest();
        let kind = EventKind::Completed { id: self.id.clone(), summary: self.summary(), payload };
        Some((Draft::new(kind, vec![(Cause::Leased, leased)]), payload))
    }
}
