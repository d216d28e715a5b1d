//! Opening a run's directory for its one writer.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anabranch_core::{
    BoxError, Error, Fields, JournalError, MemoryJournal, RUN_SETTINGS, ResumeState, Seq, SessionClock, Value,
};
use anabranch_stream::Run;

use crate::checkpoint::Checkpoints;
use crate::database::Database;
use crate::head::{Head, HeadFile, boot};
use crate::lock::RunLock;
use crate::recover::{Recovered, recover};
use crate::retain::Retention;
use crate::seal::Maintenance;
use crate::write::Store;
use crate::{LiveLog, OpenError, SealError, Sealer, layout};

/// When an acknowledged event survives what.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Acknowledged means synced: it survives a power loss. Every commit waits for the disk.
    Sync,
    /// Acknowledged means handed to the operating system: it survives a killed process. Synced at intervals and before
    /// anything that relies on it, so that a power loss takes at most the last interval, and is reported.
    #[default]
    Process,
    /// Nothing is stored: the run lives in memory, and its path is not touched.
    None,
}

/// A run whose log lies in a directory. Dereferences to its [`Run`].
///
/// Keep it until the pipeline has ended: when it is closed or dropped, the log is flushed, sealed and released, and
/// whatever still holds the `Run` is refused.
pub struct RunLog {
    run: Run,
    path: Option<PathBuf>,
    found: Found,
    live: LiveLog,
    /// Gone once closed.
    open: Option<Open>,
}

/// What an opening found of earlier sessions.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The number of this session: 0 for a new run.
    pub session: u32,
    /// How many events the log held.
    pub events: u64,
    /// Acknowledged events that a power loss took.
    pub lost: u64,
    /// Whether the pipeline had ended and was closed.
    pub closed: bool,
}

struct Open {
    store: Arc<Store>,
    writer: JoinHandle<()>,
    keeper: JoinHandle<Result<(), SealError>>,
    _lock: RunLock,
}

type OpenSealer = Box<dyn FnOnce(&Path) -> Result<Sealer, BoxError> + Send>;

/// How to open a run: see [`RunLog::options`].
#[must_use = "options do nothing until `open` is called"]
pub struct RunLogOptions {
    settings: Option<Fields>,
    accept_changes: bool,
    accept_missing_head: bool,
    keep_checkpoints: usize,
    sync_every: Duration,
    clock: Option<SessionClock>,
    name: Option<String>,
    sealer: Option<OpenSealer>,
}

impl RunLog {
    /// Opens the run in the directory `path`, which is made where it is missing; a run that is there is resumed.
    ///
    /// # Errors
    /// Where another writer has it open, it cannot be written, or what it holds is damaged: see [`OpenError`].
    pub fn open(path: impl AsRef<Path>, durability: Durability) -> Result<Self, OpenError> {
        Self::options().open(path, durability)
    }

    /// The options of an opening, all at their defaults.
    pub fn options() -> RunLogOptions {
        RunLogOptions {
            settings: None,
            accept_changes: false,
            accept_missing_head: false,
            keep_checkpoints: 3,
            sync_every: Duration::from_secs(1),
            clock: None,
            name: None,
            sealer: None,
        }
    }

    /// Its directory; nothing where it lives in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What the opening found of earlier sessions.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Reads what is recorded while the run is open.
    pub fn live(&self) -> LiveLog {
        self.live.clone()
    }

    /// Waits until everything recorded so far survives a power loss. Blocks.
    ///
    /// # Errors
    /// Where the log is poisoned.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.open.as_ref().map_or(Ok(()), |open| open.store.sync(open.store.appended()))
    }

    /// Seals everything recorded so far. Blocks.
    ///
    /// # Errors
    /// What the sealer said; the log is untouched, and the next seal tries again.
    pub fn seal_now(&self) -> Result<(), SealError> {
        let Some(open) = &self.open else { return Ok(()) };
        let ended = || JournalError::new("the thread that seals has ended").into();
        open.store.seals.call().recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Flushes and syncs the log, seals the rest, and releases the directory. Blocks. Dropping does the same, but can
    /// only trace what goes wrong.
    ///
    /// # Errors
    /// Where the log is poisoned, or the last seal failed; the directory is released all the same.
    pub fn close(mut self) -> Result<(), SealError> {
        self.shut()
    }

    fn shut(&mut self) -> Result<(), SealError> {
        let Some(Open { store, writer, keeper, _lock }) = self.open.take() else { return Ok(()) };
        let panicked = |thread: &str| JournalError::new(format!("the thread that {thread} panicked")).into();
        store.stop_accepting();
        let written = writer.join().map_err(|_| panicked("writes"));
        store.seals.finish();
        let sealed = keeper.join().unwrap_or_else(|_| Err(panicked("seals")));
        let failure = store.failure().map_or(Ok(()), |failure| Err(failure.into()));
        store.close_database();
        written.and(failure).and(sealed)
    }
}

impl Deref for RunLog {
    type Target = Run;

    fn deref(&self) -> &Run {
        &self.run
    }
}

impl Drop for RunLog {
    fn drop(&mut self) {
        if let Err(error) = self.shut() {
            tracing::error!(%error, "closing the log");
        }
    }
}

impl fmt::Debug for RunLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLog").field("path", &self.path).field("found", &self.found).finish_non_exhaustive()
    }
}

impl RunLogOptions {
    /// What the user says of the run: recorded when it begins, compared when it is opened again.
    pub fn settings(mut self, settings: Fields) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Whether settings of the run and of its operators may differ from those recorded.
    pub fn accept_changes(mut self, accept: bool) -> Self {
        self.accept_changes = accept;
        self
    }

    /// Whether a log is taken as it is where `HEAD`, which says how far it must reach, is missing or damaged.
    pub fn accept_missing_head(mut self, accept: bool) -> Self {
        self.accept_missing_head = accept;
        self
    }

    /// How many checkpoints are kept beside that of step 0; 3 unless said.
    ///
    /// # Panics
    /// Where `count` is 0.
    pub fn keep_checkpoints(mut self, count: usize) -> Self {
        assert!(count > 0, "keep_checkpoints: must be at least 1");
        self.keep_checkpoints = count;
        self
    }

    /// How often [`Durability::Process`] syncs; every second unless said.
    ///
    /// # Panics
    /// Where `interval` is zero.
    pub fn sync_every(mut self, interval: Duration) -> Self {
        assert!(!interval.is_zero(), "sync_every: must be above zero; to sync each commit, use Durability::Sync");
        self.sync_every = interval;
        self
    }

    /// The clock of this session; the operating system's monotonic clock unless said.
    pub fn clock(mut self, clock: SessionClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The run's name, which prefixes its engine requests; that of its directory unless said.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// What seals the log: at each checkpoint, every 256 groups, every minute and at the end. `open` is called with the
    /// run's directory once its lock is held, so that what is sealed cannot change between its look and the first seal.
    pub fn sealer(mut self, open: impl FnOnce(&Path) -> Result<Sealer, BoxError> + Send + 'static) -> Self {
        self.sealer = Some(Box::new(open));
        self
    }

    /// Opens the run in the directory `path`: see [`RunLog::open`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(self, path: impl AsRef<Path>, durability: Durability) -> Result<RunLog, OpenError> {
        let path = path.as_ref();
        if durability == Durability::None {
            return Ok(self.in_memory(path));
        }
        // A run that is there was made durably before anything was recorded in it.
        let made = if Database::exists(&layout::log(path)) { Ok(()) } else { layout::make(path) };
        made.map_err(OpenError::file("making", path))?;
        let lock = RunLock::write(path)?;
        let checkpoints = Checkpoints::new(layout::checkpoints(path), self.keep_checkpoints);
        let Recovered { mut past, heads, dropped, exists, head } =
            recover(path, self.accept_missing_head, &checkpoints)?;
        self.compare(&past)?;
        let sealer = self.sealer.map(|open| open(path)).transpose();
        let mut sealer = sealer.map_err(|source| OpenError::Sealer { path: path.to_owned(), source })?;
        if let Some(needed) = sealer.as_ref().map(Sealer::sealed).filter(|&sealed| sealed > heads.next) {
            let (log, witness) = (layout::log(path), layout::segments(path));
            return Err(OpenError::Behind { log, found: heads.next, witness, needed });
        }

        if let Some(sealed) = sealer.as_ref().map(Sealer::sealed).filter(|&sealed| sealed < dropped.0) {
            let (log, segments) = (layout::log(path), layout::segments(path));
            return Err(OpenError::Unsealed { log, segments, dropped, sealed });
        }
        let reader = sealer.as_mut().and_then(Sealer::take_reader);

        // From here on the directory changes.
        checkpoints.tidy().map_err(OpenError::file("tidying", &layout::checkpoints(path)))?;
        let head_path = layout::head(path);
        if head.is_none() {
            let head = Head { synced: durability == Durability::Sync, acked: heads.next, boot: boot(), unsynced: 0 };
            head.create(&head_path).map_err(OpenError::file("making", &head_path))?;
        }
        let head = HeadFile::open(&head_path, durability == Durability::Sync);
        let head = head.map_err(OpenError::file("opening", &head_path))?;
        let log = layout::log(path);
        let database = if exists { Database::open(&log)? } else { Database::create(&log)? };
        let store = Arc::new(Store::new(path, durability, database, heads, checkpoints, reader));

        let found = found(&past);
        let settings = self.settings.unwrap_or_default();
        if past.session == 0 {
            past.settings.insert(RUN_SETTINGS.to_owned(), settings.clone());
        }
        let sync_every = (durability == Durability::Process).then_some(self.sync_every);
        let retain_from = store.reads_sealed().then_some(dropped);
        let open = start(store.clone(), head, (sealer, retain_from), sync_every, lock, path)?;
        let clock = self.clock.unwrap_or_else(SessionClock::monotonic);
        let name = self.name.unwrap_or_else(|| name_of(path));
        let compare_run = past.session > 0 && !settings.is_empty();
        let run = Run::new(name, store.clone(), past, clock, settings.clone(), self.accept_changes);
        if compare_run {
            // Accepted changes are recorded; others were refused above.
            run.configure(RUN_SETTINGS, settings).map_err(OpenError::Changed)?;
        }
        let live = LiveLog::on_disk(store.clone());
        let log = RunLog { run, path: Some(path.to_owned()), found, live, open: Some(open) };
        store.wait_written(store.appended())?;
        Ok(log)
    }

    fn in_memory(self, path: &Path) -> RunLog {
        let journal = Arc::new(MemoryJournal::new());
        let run = Run::new(
            self.name.unwrap_or_else(|| name_of(path)),
            journal.clone(),
            ResumeState::default(),
            self.clock.unwrap_or_else(SessionClock::monotonic),
            self.settings.unwrap_or_default(),
            self.accept_changes,
        );
        RunLog { run, path: None, found: Found::default(), live: LiveLog::in_memory(journal), open: None }
    }

    /// Refuses settings of the run that differ from those recorded, unless that is accepted.
    fn compare(&self, past: &ResumeState) -> Result<(), OpenError> {
        let (Some(now), Some(recorded)) = (&self.settings, past.settings.get(RUN_SETTINGS)) else { return Ok(()) };
        let differing = recorded.keys().chain(now.keys()).find(|field| recorded.get(*field) != now.get(*field));
        let Some(field) = differing.filter(|_| !self.accept_changes) else { return Ok(()) };
        let show = |fields: &Fields| fields.get(field).unwrap_or(&Value::Null).to_string();
        Err(OpenError::Changed(Error::Changed {
            operator: RUN_SETTINGS.to_owned(),
            field: field.clone(),
            recorded: show(recorded),
            now: show(now),
        }))
    }
}

impl fmt::Debug for RunLogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLogOptions").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Starts the threads of an open log.
fn start(
    store: Arc<Store>,
    head: HeadFile,
    (sealer, retain_from): (Option<Sealer>, Option<Seq>),
    sync_every: Option<Duration>,
    lock: RunLock,
    path: &Path,
) -> Result<Open, OpenError> {
    let spawn = |name: &str| std::thread::Builder::new().name(format!("anabranch-log-{name}"));
    let writing = store.clone();
    let writer = spawn("write").spawn(move || writing.write_until_closed(&head));
    let writer = writer.map_err(OpenError::file("starting the writer of", path))?;
    let retaining = store.clone();
    let retention = retain_from.map(|from| Retention::start(spawn("retain"), retaining, from)).transpose();
    let keeper = retention.map(|retention| Maintenance { store: store.clone(), sealer, sync_every, retention });
    match keeper.and_then(|keeper| spawn("seal").spawn(move || keeper.run())) {
        Ok(keeper) => Ok(Open { store, writer, keeper, _lock: lock }),
        Err(error) => {
            store.stop_accepting();
            drop(writer.join());
            Err(OpenError::file("starting the sealer of", path)(error))
        }
    }
}

fn found(past: &ResumeState) -> Found {
    Found { session: past.session, events: past.next_seq.0, lost: past.lost, closed: past.closed }
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}
