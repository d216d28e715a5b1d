//! How to open the log of a run for writing.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anabranch_core::{BoxError, Error, Fields, RUN_SETTINGS, ResumeState, Value};

use crate::{OpenError, Sealer};

/// Which failure an acknowledged event survives.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Durability {
    /// An acknowledged event survives a power loss. Every commit waits for the disk.
    Sync,
    /// An acknowledged event survives a killed process. The log is synced at intervals, and before anything that relies
    /// on it. A power loss takes at most the events since the last sync, and the next opening reports how many.
    #[default]
    Process,
    /// Nothing is stored. The run is in memory, and its directory is not touched.
    None,
}

type OpenSealer = Box<dyn FnOnce(&Path) -> Result<Sealer, BoxError> + Send>;

/// How to open the log of a run: see [`EventLog::options`](crate::EventLog::options).
#[must_use = "options do nothing until `open` is called"]
pub struct LogOptions {
    settings: Option<Fields>,
    accept_changes: bool,
    pub(crate) accept_missing_head: bool,
    pub(crate) keep_checkpoints: usize,
    pub(crate) sync_every: Duration,
    sealer: Option<OpenSealer>,
}

impl LogOptions {
    pub(crate) fn new() -> Self {
        Self {
            settings: None,
            accept_changes: false,
            accept_missing_head: false,
            keep_checkpoints: 3,
            sync_every: Duration::from_secs(1),
            sealer: None,
        }
    }

    /// The settings that the caller will open the run with. They are compared with those recorded before anything in the
    /// directory changes.
    pub fn settings(mut self, settings: Fields) -> Self {
        self.settings = Some(settings);
        self
    }

    /// Whether the settings of the run may differ from those recorded. By default they may not.
    pub fn accept_changes(mut self, accept: bool) -> Self {
        self.accept_changes = accept;
        self
    }

    /// Whether to open a log whose `HEAD` is missing or damaged. `HEAD` says how many events the log must hold; without
    /// it a lost end of the log is not noticed. By default such a log is refused.
    pub fn accept_missing_head(mut self, accept: bool) -> Self {
        self.accept_missing_head = accept;
        self
    }

    /// How many checkpoints are kept beside that of step 0. The default is 3.
    ///
    /// # Panics
    /// Panics if `count` is 0.
    pub fn keep_checkpoints(mut self, count: usize) -> Self {
        assert!(count > 0, "keep_checkpoints: expected at least 1, found 0");
        self.keep_checkpoints = count;
        self
    }

    /// How often [`Durability::Process`] syncs. The default is every second.
    ///
    /// # Panics
    /// Panics if `interval` is zero.
    pub fn sync_every(mut self, interval: Duration) -> Self {
        let remedy = "to sync every commit, use Durability::Sync";
        assert!(!interval.is_zero(), "sync_every: expected more than zero, found zero; {remedy}");
        self.sync_every = interval;
        self
    }

    /// What seals the log at each checkpoint, every 256 groups, every minute and at the end. By default nothing does.
    ///
    /// `open` is called with the run's directory once the run's lock is held, so that nobody else changes what is sealed
    /// between that look and the first seal.
    pub fn sealer(mut self, open: impl FnOnce(&Path) -> Result<Sealer, BoxError> + Send + 'static) -> Self {
        self.sealer = Some(Box::new(open));
        self
    }

    /// Leaves the log unsealed, as it is by default: it keeps all payloads.
    pub fn unsealed(mut self) -> Self {
        self.sealer = None;
        self
    }

    /// Opens the sealer of the run in the directory `run`.
    pub(crate) fn open_sealer(&mut self, run: &Path) -> Result<Option<Sealer>, OpenError> {
        let opened = self.sealer.take().map(|open| open(run)).transpose();
        opened.map_err(|source| OpenError::Sealer { path: run.to_owned(), source })
    }

    /// Refuses settings of the run that differ from those recorded, if changes are not accepted.
    pub(crate) fn compare_settings(&self, resume: &ResumeState) -> Result<(), OpenError> {
        let (Some(now), Some(recorded)) = (&self.settings, resume.settings.get(RUN_SETTINGS)) else { return Ok(()) };
        let mut differing = recorded.keys().chain(now.keys()).filter(|field| recorded.get(*field) != now.get(*field));
        let Some(field) = differing.next().filter(|_| !self.accept_changes) else { return Ok(()) };
        let show = |fields: &Fields| fields.get(field).unwrap_or(&Value::Null).to_string();
        Err(OpenError::Changed(Error::Changed {
            operator: RUN_SETTINGS.to_owned(),
            field: field.clone(),
            recorded: show(recorded),
            now: show(now),
        }))
    }
}

impl fmt::Debug for LogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogOptions").field("settings", &self.settings).finish_non_exhaustive()
    }
}
