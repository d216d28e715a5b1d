//! Salvage: what is provably good of a damaged run, copied to where it can be used again.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anabranch_core::{Digest, Event, EventKind, Group, GroupId, Seq};
use rocksdb::WriteBatch;
use serde::Serialize;

use crate::checkpoint::{Checkpoints, copy_directory};
use crate::codec::{self, Heads};
use crate::database::Database;
use crate::head::{Head, Reading, boot};
use crate::lock::RunLock;
use crate::{OpenError, ReadError, ReadLog, keys, layout, recover};

/// Events and payloads of a commit of the new log.
const COMMIT: usize = 256;

/// What was salvaged, and what was not. Events of the new log are those before the first that is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Salvaged {
    /// Events in the new log, all before the first that is missing.
    pub events: u64,
    /// Payloads in the new log.
    pub payloads: u64,
    /// Names of the checkpoints copied, newest first.
    pub checkpoints: Vec<String>,
    /// Checkpoints left behind: damaged, or relying on events that are missing.
    pub checkpoints_left: Vec<String>,
    /// Ranges of events that could not be found, the first and the last of each.
    pub missing: Vec<(Seq, Seq)>,
    /// Completed groups whose payload could not be found.
    pub missing_payloads: Vec<Missing>,
    /// Good events behind the first that is missing. No log can hold them: they lie in `beyond/events.jsonl`, their
    /// payloads in `beyond/groups.jsonl`.
    pub beyond: u64,
    /// How far the damaged run said that its log goes, where it can still be read.
    pub acknowledged: Option<u64>,
    /// Why its database could not be read as it lies there, where it could not.
    pub database: Option<String>,
    /// Why the new run cannot be resumed, where it cannot.
    pub not_resumable: Option<String>,
}

impl Salvaged {
    /// Whether nothing is missing.
    pub fn is_whole(&self) -> bool {
        let Self { missing, missing_payloads, checkpoints_left, .. } = self;
        missing.is_empty() && missing_payloads.is_empty() && checkpoints_left.is_empty()
    }
}

/// A group whose payload is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Its `completed` event.
    pub completed: Seq,
    /// The group.
    pub group: GroupId,
}

/// Where payloads can be had.
type Payloads<'a> = Box<dyn FnMut(&GroupId) -> Option<Group> + 'a>;

/// Copies of a run's records outside its log, such as its Parquet segments.
pub struct Sealed<'a> {
    /// Events, in any order; those that differ from the log's are not used.
    pub events: Box<dyn Iterator<Item = Event> + 'a>,
    /// The payload of a group, if there is one. It is used only if its digest equals the recorded one.
    pub payload: Payloads<'a>,
}

impl Sealed<'_> {
    /// No copies.
    pub fn none() -> Self {
        Self { events: Box::new(std::iter::empty()), payload: Box::new(|_| None) }
    }
}

impl std::fmt::Debug for Sealed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealed").finish_non_exhaustive()
    }
}

/// Nothing was salvaged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// The target exists already, or lies in the damaged run.
    #[error("{} exists already, or lies in the damaged run: name a directory that does not exist", .0.display())]
    Target(PathBuf),
    /// The damaged run is in use, or is not a directory.
    #[error(transparent)]
    Run(#[from] OpenError),
    /// A newer library wrote the damaged run.
    #[error(transparent)]
    Newer(ReadError),
    /// The new run could not be written.
    #[error("writing the new run failed: {0}")]
    Write(String),
}

impl From<io::Error> for SalvageError {
    fn from(error: io::Error) -> Self {
        Self::Write(error.to_string())
    }
}

/// Copies everything that is provably good of the run in `run` to a new run in `to`: events whose checksum holds, payloads
/// whose digest is the one recorded, checkpoints whose files are what was written. The log comes first, then `sealed`.
/// Nothing is written to `run`.
///
/// # Errors
/// If there is nothing to read, a writer has the run open, `to` exists, or the new run cannot be written.
pub fn salvage(run: &Path, to: &Path, sealed: Sealed<'_>) -> Result<Salvaged, SalvageError> {
    if !run.is_dir() {
        return Err(OpenError::NoRun { path: run.to_owned(), missing: "log".into() }.into());
    }
    let inside = to.ancestors().skip(1).any(|above| fs::canonicalize(above).ok() == fs::canonicalize(run).ok());
    if to.exists() || inside {
        return Err(SalvageError::Target(to.to_owned()));
    }
    let _lock = RunLock::read(run, layout::segments(run))?;
    let mut salvaged = Salvaged::default();
    if let Ok(Reading::Whole(head)) = Head::read(&layout::head(run)) {
        salvaged.acknowledged = Some(head.acked);
    }
    layout::make(to)?;
    // Never opened for writing where it lies: a copy is repaired where that is needed.
    let scratch = to.join("scratch");
    let database = open(run, &scratch, &mut salvaged);
    let copied = copy(run, to, database.as_ref(), sealed, &mut salvaged);
    drop(database);
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    copied?;
    if salvaged.events > 0 {
        salvaged.not_resumable = resumable(to).err().map(|error| error.to_string());
    }
    Ok(salvaged)
}

fn open(run: &Path, scratch: &Path, salvaged: &mut Salvaged) -> Option<Database> {
    let log = layout::log(run);
    let problem = match Database::salvage(&log) {
        Ok(database) => return Some(database),
        Err(problem) => problem,
    };
    salvaged.database = Some(problem.to_string());
    copy_directory(&log, scratch).ok()?;
    Database::repair(scratch).and_then(|()| Database::salvage(scratch)).ok()
}

/// A newer format is not damage.
fn good<T>(read: Result<Option<T>, ReadError>) -> Result<Option<T>, SalvageError> {
    match read {
        Err(error @ ReadError::Newer { .. }) => Err(SalvageError::Newer(error)),
        read => Ok(read.ok().flatten()),
    }
}

fn copy(
    run: &Path,
    to: &Path,
    database: Option<&Database>,
    mut sealed: Sealed<'_>,
    salvaged: &mut Salvaged,
) -> Result<(), SalvageError> {
    let copies: HashMap<Seq, Event> = sealed.events.map(|event| (event.seq, event)).collect();
    let known = copies.keys().map(|seq| seq.0 + 1).max().unwrap_or(0);
    let end = database.map_or(0, Database::last_event).max(known).max(salvaged.acknowledged.unwrap_or(0));
    let mut new: Option<NewLog> = None;
    let mut beyond: Option<Beyond> = None;
    for seq in (0..end).map(Seq) {
        let logged = database.map_or(Ok(None), |database| good(database.event(seq)))?;
        let Some(event) = logged.or_else(|| copies.get(&seq).cloned()) else {
            match salvaged.missing.last_mut() {
                Some((_, last)) if last.0 + 1 == seq.0 => *last = seq,
                _ => salvaged.missing.push((seq, seq)),
            }
            continue;
        };
        let mut group = None;
        if let EventKind::Completed { id, payload, .. } = &event.kind {
            group = payload_of(database, &mut sealed.payload, id, *payload)?;
            if group.is_none() {
                salvaged.missing_payloads.push(Missing { completed: seq, group: id.clone() });
            }
        }
        if salvaged.missing.is_empty() {
            let new = match &mut new {
                Some(new) => new,
                none => none.insert(NewLog::create(to)?),
            };
            new.put(&event, group.as_ref())?;
            salvaged.events += 1;
            salvaged.payloads += u64::from(group.is_some());
        } else {
            let beyond = match &mut beyond {
                Some(beyond) => beyond,
                none => none.insert(Beyond::create(&to.join("beyond"))?),
            };
            beyond.put(&event, group.as_ref())?;
            salvaged.beyond += 1;
        }
    }
    if let Some(beyond) = beyond {
        beyond.finish()?;
    }
    copy_checkpoints(run, to, salvaged)?;
    new.map_or(Ok(()), |new| new.finish(to))
}

fn payload_of(
    database: Option<&Database>,
    sealed: &mut dyn FnMut(&GroupId) -> Option<Group>,
    id: &GroupId,
    recorded: Digest,
) -> Result<Option<Group>, SalvageError> {
    let is_it = |group: &Group| group.id == *id && group.digest() == recorded;
    let logged = database.map_or(Ok(None), |database| good(database.group(id).map(Some)))?;
    Ok(logged.filter(is_it).or_else(|| sealed(id).filter(is_it)))
}

fn copy_checkpoints(run: &Path, to: &Path, salvaged: &mut Salvaged) -> Result<(), SalvageError> {
    let found = Checkpoints::new(layout::checkpoints(run), 1);
    for name in found.names()? {
        let listed = good(found.one(&name))?.filter(|listed| listed.watermark <= salvaged.events);
        match listed {
            Some(listed) => {
                copy_directory(&listed.checkpoint.path, &layout::checkpoints(to).join(&name))?;
                salvaged.checkpoints.push(name);
            }
            None => salvaged.checkpoints_left.push(name),
        }
    }
    Ok(())
}

/// Whether the new run is whole enough to go on: everything that an opening looks at.
fn resumable(run: &Path) -> Result<(), OpenError> {
    ReadLog::open(run)?.resume_state()?;
    recover::recover(run, false, &Checkpoints::new(layout::checkpoints(run), 1)).map(|_| ())
}

/// The log of the new run. It has no `HEAD`, and so cannot be opened by accident, before it is finished.
struct NewLog {
    database: Database,
    batch: WriteBatch,
    heads: Heads,
    queued: usize,
}

impl NewLog {
    fn create(run: &Path) -> Result<Self, SalvageError> {
        let database = Database::create(&layout::log(run))?;
        Ok(Self { database, batch: WriteBatch::default(), heads: Heads::default(), queued: 0 })
    }

    fn put(&mut self, event: &Event, group: Option<&Group>) -> Result<(), SalvageError> {
        let encoding = |error: postcard::Error| SalvageError::Write(error.to_string());
        let key = keys::event(event.seq);
        self.database.put_event(&mut self.batch, &key, &codec::encode_event(&key, event).map_err(encoding)?);
        if let Some(group) = group {
            let key = keys::group(&group.id);
            self.database.put_group(&mut self.batch, &key, &codec::encode_group(&key, group).map_err(encoding)?);
        }
        recover::count(&mut self.heads, event);
        self.queued += 1;
        if self.queued == COMMIT { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<(), SalvageError> {
        let mut batch = std::mem::take(&mut self.batch);
        self.queued = 0;
        self.database.put_heads(&mut batch, self.heads);
        self.database.commit(batch, false).map_err(|error| SalvageError::Write(error.to_string()))
    }

    fn finish(mut self, run: &Path) -> Result<(), SalvageError> {
        self.commit()?;
        self.database.sync().map_err(|error| SalvageError::Write(error.to_string()))?;
        let head = Head { synced: true, acked: self.heads.next, boot: boot(), unsynced: 0 };
        Ok(head.create(&layout::head(run))?)
    }
}

/// Good records that no log can hold, as JSON lines.
struct Beyond {
    events: BufWriter<File>,
    groups: BufWriter<File>,
}

impl Beyond {
    fn create(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let create = |name: &str| Ok::<_, io::Error>(BufWriter::new(File::create(directory.join(name))?));
        Ok(Self { events: create("events.jsonl")?, groups: create("groups.jsonl")? })
    }

    fn put(&mut self, event: &Event, group: Option<&Group>) -> io::Result<()> {
        serde_json::to_writer(&mut self.events, event)?;
        self.events.write_all(b"\n")?;
        if let Some(group) = group {
            serde_json::to_writer(&mut self.groups, group)?;
            self.groups.write_all(b"\n")?;
        }
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        for file in [self.events, self.groups] {
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        }
        Ok(())
    }
}
