//! Reading a run's directory after its writer has gone, without changing a byte of it.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anabranch_core::{BoxError, Digest, Event, EventKind, Group, GroupId, ResumeState, Seq};

use crate::checkpoint::Checkpoints;
use crate::codec::Heads;
use crate::database::{Database, Events};
use crate::lock::RunLock;
use crate::seal::ReadSealed;
use crate::{OpenError, ReadError, Segment, layout, recover};

/// The log of a run that no writer has open, for audits and exports.
pub struct ReadLog {
    run: PathBuf,
    database: Database,
    lost: u64,
    sealed: Option<ReadSealed>,
    _lock: Option<RunLock>,
}

/// What [`ReadLog::check`] counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Events in the log.
    pub events: u64,
    /// `Completed` records among them.
    pub completed: u64,
    /// Payloads.
    pub payloads: u64,
    /// Completed groups whose payload was dropped once it was sealed.
    pub dropped: u64,
}

impl ReadLog {
    /// Opens the run in the directory `path` for reading; several readers may.
    ///
    /// # Errors
    /// Returns an error if there is no run, if a writer has it open, or if it is damaged: see [`OpenError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path.as_ref(), false)
    }

    /// Opens the run as [`open`](Self::open) does, but accepts a log whose `HEAD` is missing or damaged. `HEAD` says how
    /// many events the log must hold; without it a lost end of the log is not noticed.
    ///
    /// # Errors
    /// Returns the other errors of [`open`](Self::open).
    pub fn open_without_head(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path.as_ref(), true)
    }

    fn open_with(run: &Path, accept_missing_head: bool) -> Result<Self, OpenError> {
        let log = layout::log(run);
        let lock = if run.is_dir() { RunLock::read(run, layout::segments(run))? } else { None };
        let head = recover::head(run, Database::exists(&log), accept_missing_head)?;
        if !Database::exists(&log) && head.is_none_or(|head| head.acked == 0) {
            return Err(OpenError::NoRun { path: run.to_owned(), missing: "log".into() });
        }
        let database = Database::read(&log)?;
        let lost = recover::lost(run, head, database.heads()?.next)?;
        Ok(Self { run: run.to_owned(), database, lost, sealed: None, _lock: lock })
    }

    /// Says how to read payloads that the log has dropped from the sealed segments, for [`payload`](Self::payload) and
    /// [`segments`](Self::segments).
    #[must_use]
    pub fn reading(
        mut self,
        read: impl Fn(&GroupId) -> Result<Option<Group>, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.sealed = Some(Box::new(read));
        self
    }

    /// How many events must be sealed: the payloads of groups that they settled may be there alone.
    ///
    /// # Errors
    /// Returns an error if the record of dropped payloads is damaged.
    pub fn relies_on_sealed(&self) -> Result<u64, ReadError> {
        self.database.dropped().map(|before| before.0)
    }

    /// The run's directory.
    pub fn path(&self) -> &Path {
        &self.run
    }

    /// Acknowledged events that a power loss took since the last session.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// All events, in order. The first that is missing or damaged is an error, and the last thing given.
    pub fn events(&self) -> Events<'_> {
        self.events_from(Seq(0))
    }

    /// The events from `first` on, as [`events`](Self::events) gives them.
    pub fn events_from(&self, first: Seq) -> Events<'_> {
        self.database.events(first)
    }

    /// The payload of a completed group, in the log or in the sealed segments.
    ///
    /// # Errors
    /// Returns an error if the payload is missing or damaged; [`ReadError::Dropped`] if the log has dropped it and the
    /// sealed segments do not hold it either.
    pub fn payload(&self, id: &GroupId) -> Result<Group, ReadError> {
        self.database.group_or_sealed(id, self.sealed.as_ref())
    }

    /// Everything after event `sealed_through` with its payloads, as the sealer of a running log gets it.
    pub fn segments(&self, sealed_through: Option<Seq>) -> impl Iterator<Item = Result<Segment, ReadError>> + '_ {
        let mut next = Some(sealed_through.map_or(Seq(0), |seq| Seq(seq.0 + 1)));
        std::iter::from_fn(move || {
            let first = next.take()?;
            let segment = self.database.segment(first, Seq(u64::MAX), 256, self.sealed.as_ref()).transpose()?;
            next = segment.as_ref().ok().map(|segment| Seq(segment.last.0 + 1));
            Some(segment)
        })
    }

    /// What the log says of its sessions, as the next opening will see it.
    ///
    /// # Errors
    /// Returns an error if the log is damaged or contradicts itself.
    pub fn resume_state(&self) -> Result<ResumeState, OpenError> {
        let mut resume = recover::fold(&self.database)?.resume;
        resume.lost = self.lost;
        let checkpoints = Checkpoints::new(layout::checkpoints(&self.run), 1).list()?;
        resume.checkpoints = checkpoints.into_iter().map(|found| found.checkpoint).collect();
        Ok(resume)
    }

    /// Reads everything in the log: each event, each payload, and whether they agree with each other and with the heads.
    /// Payloads that were dropped are counted, not read.
    ///
    /// # Errors
    /// Returns the first damage that it meets.
    pub fn check(&self) -> Result<Counts, ReadError> {
        let damaged = |what: String, problem: String| {
            Err(ReadError::Damaged { what, path: self.database.path().to_owned(), problem })
        };
        let mut counted = Heads::default();
        // With the event that settled the group, once one has.
        let mut digests: HashMap<GroupId, (Digest, Option<Seq>)> = HashMap::new();
        let settle = |digests: &mut HashMap<GroupId, (Digest, Option<Seq>)>, id: &GroupId, seq| {
            if let Some((_, settled)) = digests.get_mut(id) {
                *settled = Some(seq);
            }
        };
        for event in self.events() {
            let event: Event = event?;
            recover::count(&mut counted, &event);
            match event.kind {
                EventKind::Completed { id, payload, .. } => drop(digests.insert(id, (payload, None))),
                EventKind::Excluded { id, .. } => settle(&mut digests, &id, event.seq),
                EventKind::BatchTaken { groups, .. } => {
                    for group in &groups {
                        settle(&mut digests, &group.id, event.seq);
                    }
                }
                _ => {}
            }
        }
        recover::check_heads(&self.database, counted)?;
        let (before, mut dropped) = (self.database.dropped()?, 0);
        for (id, (digest, settled)) in &digests {
            let group = match self.database.group(id) {
                Err(ReadError::Missing { .. }) if settled.is_some_and(|seq| seq < before) => {
                    dropped += 1;
                    continue;
                }
                group => group?,
            };
            if group.digest() != *digest || group.id != *id {
                let problem = format!("its digest is {}, recorded {digest}", group.digest());
                return damaged(format!("the payload of group {id}"), problem);
            }
        }
        let mut payloads = 0;
        for id in self.database.group_ids() {
            let id = id?;
            payloads += 1;
            if !digests.contains_key(&id) {
                return damaged(format!("the payload of group {id}"), "no event completes it".to_owned());
            }
        }
        Ok(Counts { events: counted.next, completed: counted.completed, payloads, dropped })
    }
}

impl fmt::Debug for ReadLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadLog").field("run", &self.run).field("lost", &self.lost).finish_non_exhaustive()
    }
}
