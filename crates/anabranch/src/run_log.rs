//! A run in a directory: its log, its sealer, and its clock.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::{BoxError, Fields, Journal, JournalError, SessionClock};
use anabranch_log::{Durability, EventLog, Found, LiveLog, LogOptions, OpenError, Opened, SealError, Sealer};
use anabranch_stream::{Run, tokio_clock};

/// A run whose log is in a directory. Dereferences to its [`Run`].
///
/// With the feature `parquet`, the log is sealed into Parquet segments in `parquet/` of the directory while the run
/// continues. Payloads that no kept checkpoint needs are dropped from the log once they are sealed, and are read from the
/// segments from then on.
///
/// Keep the `RunLog` until the pipeline has ended. When it is closed or dropped, the log is written, synced, sealed and
/// released; whatever still holds the `Run` is refused from then on.
pub struct RunLog {
    // Closed before the run is dropped.
    log: EventLog,
    run: Run,
}

/// How to open a run: see [`RunLog::options`].
#[must_use = "options do nothing until `open` is called"]
pub struct RunLogOptions {
    log: LogOptions,
    settings: Fields,
    accept_changes: bool,
    clock: Option<SessionClock>,
    name: Option<String>,
    sealing: Sealing,
}

/// Who seals the log.
enum Sealing {
    /// Parquet segments, if the feature `parquet` is on.
    Default,
    /// The user's sealer, or nobody; the log's options know.
    Chosen,
}

impl RunLog {
    /// Opens the run in the directory `path` with the default options: creates it if it is missing, else resumes it.
    /// Blocks.
    ///
    /// # Errors
    /// Returns an error if another writer has the run open, if the directory cannot be written, or if the log is damaged:
    /// see [`OpenError`].
    pub fn open(path: impl AsRef<Path>, durability: Durability) -> Result<Self, OpenError> {
        Self::options().open(path, durability)
    }

    /// The options of an opening, all at their defaults.
    ///
    /// ```
    /// use anabranch::{Durability, Fields, RunLog, Value};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path();
    /// let settings = Fields::from([("seed".to_owned(), Value::from(7_u64))]);
    /// let run = RunLog::options().settings(settings).keep_checkpoints(5).open(path, Durability::Process)?;
    /// println!("session {}", run.found().session);
    /// run.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn options() -> RunLogOptions {
        RunLogOptions {
            log: EventLog::options(),
            settings: Fields::new(),
            accept_changes: false,
            clock: None,
            name: None,
            sealing: Sealing::Default,
        }
    }

    /// Reads what is recorded while the run is open.
    pub fn live(&self) -> LiveLog {
        self.log.live()
    }

    /// The run's directory; `None` if the run is in memory.
    pub fn path(&self) -> Option<&Path> {
        self.log.path()
    }

    /// What the opening found of earlier sessions.
    pub fn found(&self) -> Found {
        self.log.found()
    }

    /// Where the events of the run go.
    pub fn journal(&self) -> Arc<dyn Journal> {
        self.log.journal()
    }

    /// Waits until everything recorded so far survives a power loss. Blocks.
    ///
    /// # Errors
    /// Returns an error if the log could not be written or synced.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.log.sync()
    }

    /// Seals everything recorded so far. Blocks.
    ///
    /// # Errors
    /// Returns the sealer's error. The log is untouched, and the next seal tries again.
    pub fn seal_now(&self) -> Result<(), SealError> {
        self.log.seal_now()
    }

    /// Writes and syncs the log, seals the rest, and releases the directory. Blocks. Dropping does the same, but can only
    /// trace errors.
    ///
    /// # Errors
    /// Returns an error if the log could not be written or the last seal failed. The directory is released all the same.
    pub fn close(self) -> Result<(), SealError> {
        self.log.close()
    }
}

impl Deref for RunLog {
    type Target = Run;

    fn deref(&self) -> &Run {
        &self.run
    }
}

impl fmt::Debug for RunLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLog").field("log", &self.log).finish_non_exhaustive()
    }
}

impl RunLogOptions {
    /// What the user says of the run: recorded when it begins, compared when it is opened again.
    pub fn settings(mut self, settings: Fields) -> Self {
        self.log = self.log.settings(settings.clone());
        self.settings = settings;
        self
    }

    /// Whether the settings of the run and of its operators may differ from those recorded. By default they may not.
    pub fn accept_changes(mut self, accept: bool) -> Self {
        self.log = self.log.accept_changes(accept);
        self.accept_changes = accept;
        self
    }

    /// Whether to open a log whose `HEAD` is missing or damaged. `HEAD` says how many events the log must hold; without
    /// it a lost end of the log is not noticed. By default such a log is refused.
    pub fn accept_missing_head(mut self, accept: bool) -> Self {
        self.log = self.log.accept_missing_head(accept);
        self
    }

    /// How many checkpoints are kept beside that of step 0. The default is 3.
    ///
    /// # Panics
    /// Panics if `count` is 0.
    pub fn keep_checkpoints(mut self, count: usize) -> Self {
        self.log = self.log.keep_checkpoints(count);
        self
    }

    /// How often [`Durability::Process`] syncs. The default is every second.
    ///
    /// # Panics
    /// Panics if `interval` is zero.
    pub fn sync_every(mut self, interval: Duration) -> Self {
        self.log = self.log.sync_every(interval);
        self
    }

    /// The clock of this session. The default is tokio's clock, from now: see [`tokio_clock`].
    pub fn clock(mut self, clock: SessionClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The run's name, which prefixes its engine requests. The default is the name of its directory.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// What seals the log, instead of the Parquet segments: at each checkpoint, every 256 groups, every minute and at the
    /// end. `open` is called with the run's directory once the run's lock is held, so that nobody else changes what is
    /// sealed between that look and the first seal.
    pub fn sealer(mut self, open: impl FnOnce(&Path) -> Result<Sealer, BoxError> + Send + 'static) -> Self {
        (self.log, self.sealing) = (self.log.sealer(open), Sealing::Chosen);
        self
    }

    /// Leaves the log unsealed: nothing is written beside it, and it keeps all payloads.
    pub fn unsealed(mut self) -> Self {
        (self.log, self.sealing) = (self.log.unsealed(), Sealing::Chosen);
        self
    }

    /// Opens the run in the directory `path`: see [`RunLog::open`].
    ///
    /// # Errors
    /// Returns an [`OpenError`] if the run cannot be opened.
    pub fn open(self, path: impl AsRef<Path>, durability: Durability) -> Result<RunLog, OpenError> {
        let path = path.as_ref();
        let Self { log, settings, accept_changes, clock, name, sealing } = self;
        let log = match sealing {
            Sealing::Default => sealed_by_default(log),
            Sealing::Chosen => log,
        };
        let Opened { log, resume, meter, .. } = log.open(path, durability)?;
        let run = Run::builder(name.unwrap_or_else(|| name_of(path)))
            .journal(log.journal())
            .resume(resume, meter)
            .clock(clock.unwrap_or_else(tokio_clock))
            .settings(settings)
            .accept_changes(accept_changes)
            .open()
            .map_err(OpenError::Changed)?;
        log.flush()?;
        Ok(RunLog { log, run })
    }
}

impl fmt::Debug for RunLogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLogOptions").field("log", &self.log).field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(feature = "parquet")]
fn sealed_by_default(log: LogOptions) -> LogOptions {
    log.sealer(crate::segments::sealer)
}

#[cfg(not(feature = "parquet"))]
fn sealed_by_default(log: LogOptions) -> LogOptions {
    log
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}
