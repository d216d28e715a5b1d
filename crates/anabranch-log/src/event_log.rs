//! The log of a run while its one writer has it open.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anabranch_core::{Journal, JournalError, MemoryJournal, ResumeState};
use anabranch_metrics::Meter;

use crate::lock::RunLock;
use crate::write::Store;
use crate::{Durability, LiveLog, LogOptions, OpenError, SealError};

/// The open log of a run. Its [`journal`](Self::journal) takes the run's events.
///
/// Keep the `EventLog` until the pipeline has ended. When it is closed or dropped, it writes and syncs what was appended,
/// seals the rest and releases the directory; from then on the journal refuses every append.
pub struct EventLog {
    found: Found,
    journal: Arc<dyn Journal>,
    live: LiveLog,
    /// `None` if the log is in memory.
    path: Option<PathBuf>,
    /// `None` if the log is in memory or closed.
    threads: Option<Threads>,
}

/// What an opening gives: the log, and the state of the run that its events tell.
#[derive(Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The log, for the events of this session.
    pub log: EventLog,
    /// What the run needs to continue after its earlier sessions.
    pub resume: ResumeState,
    /// What the earlier sessions counted.
    pub meter: Meter,
}

/// What an opening found of earlier sessions.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The number of this session: 0 for a new run.
    pub session: u32,
    /// How many events the log held.
    pub events: u64,
    /// How many acknowledged events a power loss took.
    pub lost: u64,
    /// Whether the pipeline had ended and recorded that it had.
    pub closed: bool,
}

/// The threads of an open log, with the store that they share and the lock of the directory.
pub(crate) struct Threads {
    pub(crate) store: Arc<Store>,
    pub(crate) writer: JoinHandle<()>,
    pub(crate) maintenance: JoinHandle<Result<(), SealError>>,
    pub(crate) _lock: RunLock,
}

impl EventLog {
    /// Opens the log of the run in the directory `path` with the default options. A directory that is missing is made.
    ///
    /// # Errors
    /// Returns an error if another writer has the run open, if the directory cannot be written, or if the log is damaged:
    /// see [`OpenError`].
    pub fn open(path: impl AsRef<Path>, durability: Durability) -> Result<Opened, OpenError> {
        Self::options().open(path, durability)
    }

    /// The options of an opening, all at their defaults.
    pub fn options() -> LogOptions {
        LogOptions::new()
    }

    /// A log that keeps its events in memory.
    pub(crate) fn in_memory() -> Self {
        let journal = Arc::new(MemoryJournal::new());
        let live = LiveLog::in_memory(journal.clone());
        Self { found: Found::default(), journal, live, path: None, threads: None }
    }

    /// The log of the run in the directory `path`.
    pub(crate) fn on_disk(path: &Path, found: Found, threads: Threads) -> Self {
        let live = LiveLog::on_disk(threads.store.clone());
        Self { found, journal: threads.store.clone(), live, path: Some(path.to_owned()), threads: Some(threads) }
    }

    /// Where the events of the run go.
    pub fn journal(&self) -> Arc<dyn Journal> {
        self.journal.clone()
    }

    /// Reads what is recorded while the log is open.
    pub fn live(&self) -> LiveLog {
        self.live.clone()
    }

    /// The run's directory; `None` if the log is in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What the opening found of earlier sessions.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Waits until everything appended so far is written as the [`Durability`] promises. Blocks.
    ///
    /// # Errors
    /// Returns an error if the log could not be written.
    pub fn flush(&self) -> Result<(), JournalError> {
        self.on_store(|store| store.wait_written(store.appended()))
    }

    /// Waits until everything appended so far survives a power loss. Blocks.
    ///
    /// # Errors
    /// Returns an error if the log could not be written or synced.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.on_store(|store| store.sync(store.appended()))
    }

    fn on_store(&self, wait: impl FnOnce(&Store) -> Result<(), JournalError>) -> Result<(), JournalError> {
        self.threads.as_ref().map_or(Ok(()), |threads| wait(&threads.store))
    }

    /// Seals everything appended so far. Blocks.
    ///
    /// # Errors
    /// Returns the sealer's error. The log is untouched, and the next seal tries again.
    pub fn seal_now(&self) -> Result<(), SealError> {
        let Some(threads) = &self.threads else { return Ok(()) };
        let ended = || JournalError::new("the thread that seals the log has ended").into();
        threads.store.seals.call().recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Writes and syncs what was appended, seals the rest, and releases the directory. Blocks. Dropping the log does the
    /// same, but can only trace errors.
    ///
    /// # Errors
    /// Returns an error if the log could not be written or the last seal failed. The directory is released all the same.
    pub fn close(mut self) -> Result<(), SealError> {
        self.shut()
    }

    fn shut(&mut self) -> Result<(), SealError> {
        let Some(Threads { store, writer, maintenance, _lock }) = self.threads.take() else { return Ok(()) };
        let panicked = |thread: &str| JournalError::new(format!("the thread that {thread} the log panicked")).into();
        store.stop_accepting();
        let written = writer.join().map_err(|_| panicked("writes"));
        store.seals.finish();
        let sealed = maintenance.join().unwrap_or_else(|_| Err(panicked("seals")));
        let failure = store.failure().map_or(Ok(()), |failure| Err(failure.into()));
        store.close_database();
        written.and(failure).and(sealed)
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        if let Err(error) = self.shut() {
            tracing::error!(%error, "closing the log failed");
        }
    }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog").field("path", &self.path).field("found", &self.found).finish_non_exhaustive()
    }
}

impl Found {
    pub(crate) fn of(resume: &ResumeState) -> Self {
        Self { session: resume.session, events: resume.next_seq.0, lost: resume.lost, closed: resume.closed }
    }
}
