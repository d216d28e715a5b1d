//! Journals for tests: one keeps checkpoints, so that a run in memory has sessions; one has hooks before each call.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::{
    AppendReceipt, BoxError, Checkpoint, Cursor, Event, Group, GroupId, Journal, JournalError, MemoryJournal,
    ResumeState,
};
use anabranch_metrics::Meter;
use anabranch_stream::{Run, RunBuilder, tokio_clock};
use parking_lot::Mutex;

/// Keeps events and payloads in memory, and checkpoints in a temporary directory.
pub struct DirJournal {
    /// The events and payloads.
    pub memory: Arc<MemoryJournal>,
    dir: tempfile::TempDir,
    checkpoints: Mutex<Vec<Checkpoint>>,
}

impl DirJournal {
    /// Creates an empty journal.
    #[allow(clippy::new_ret_no_self, reason = "a run shares its journal")]
    pub fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        Arc::new(Self { memory: Arc::default(), dir, checkpoints: Mutex::default() })
    }

    /// What the next session finds.
    pub fn past(&self) -> ResumeState {
        let mut past = anabranch_core::resume(self.memory.events()).unwrap();
        past.checkpoints = self.checkpoints.lock().iter().rev().cloned().collect();
        past
    }

    /// The next session of the run, on tokio's clock.
    pub fn open(self: &Arc<Self>) -> Run {
        self.next_session(self.clone()).open().unwrap()
    }

    /// The next session of the run, yet to be opened. It writes to `journal`, which passes its calls on to this one.
    pub fn next_session(&self, journal: Arc<dyn Journal>) -> RunBuilder {
        let meter = Meter::of(&self.memory.events());
        Run::builder("test").journal(journal).resume(self.past(), meter).clock(tokio_clock())
    }
}

impl Journal for DirJournal {
    fn append(&self, events: Vec<Event>, payloads: &[&Group]) -> AppendReceipt {
        self.memory.append(events, payloads)
    }

    fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
        self.memory.payload(id)
    }

    fn checkpoint(
        &self,
        cursor: &Cursor,
        write: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
    ) -> Result<Option<String>, JournalError> {
        let mut checkpoints = self.checkpoints.lock();
        let name = format!("{:03}-step-{}", checkpoints.len(), cursor.step);
        let path = self.dir.path().join(&name);
        std::fs::create_dir(&path).unwrap();
        write(&path).map_err(|error| JournalError::new(error.to_string()))?;
        checkpoints.push(Checkpoint { name: name.clone(), path, cursor: cursor.clone() });
        Ok(Some(name))
    }
}

/// What an [`Intercepted`] journal does with an append.
#[derive(Debug)]
pub enum OnAppend {
    /// The inner journal records and acknowledges it.
    Pass,
    /// The inner journal records it; the acknowledgement comes this much later, whether or not anyone waits for it.
    AcknowledgeAfter(Duration),
    /// Nothing is recorded, and the append fails.
    Refuse(JournalError),
    /// Nothing is recorded, and no answer ever comes: the process was killed.
    Lose,
}

type AppendHook = dyn Fn(&[Event]) -> OnAppend + Send + Sync;
type PayloadHook = dyn Fn(&GroupId) + Send + Sync;
type CheckpointHook = dyn Fn(&Cursor) -> Result<(), JournalError> + Send + Sync;

/// Passes each call on to the journal inside, after a hook that may watch, delay or stop it.
pub struct Intercepted {
    inner: Arc<dyn Journal>,
    on_append: Box<AppendHook>,
    on_payload: Box<PayloadHook>,
    on_checkpoint: Box<CheckpointHook>,
}

impl Intercepted {
    /// A journal that passes everything on to `inner`, until hooks are set.
    pub fn new(inner: Arc<dyn Journal>) -> Self {
        Self {
            inner,
            on_append: Box::new(|_| OnAppend::Pass),
            on_payload: Box::new(|_| {}),
            on_checkpoint: Box::new(|_| Ok(())),
        }
    }

    /// Calls `hook` before each append; it decides what is done with the events.
    pub fn on_append(mut self, hook: impl Fn(&[Event]) -> OnAppend + Send + Sync + 'static) -> Self {
        self.on_append = Box::new(hook);
        self
    }

    /// Calls `hook` before each payload is read.
    pub fn on_payload(mut self, hook: impl Fn(&GroupId) + Send + Sync + 'static) -> Self {
        self.on_payload = Box::new(hook);
        self
    }

    /// Calls `hook` before each checkpoint; none is written if the hook fails.
    pub fn on_checkpoint(mut self, hook: impl Fn(&Cursor) -> Result<(), JournalError> + Send + Sync + 'static) -> Self {
        self.on_checkpoint = Box::new(hook);
        self
    }
}

impl Journal for Intercepted {
    fn append(&self, events: Vec<Event>, payloads: &[&Group]) -> AppendReceipt {
        match (self.on_append)(&events) {
            OnAppend::Pass => self.inner.append(events, payloads),
            OnAppend::AcknowledgeAfter(delay) => {
                let appended = self.inner.append(events, payloads);
                let acknowledged = tokio::time::Instant::now() + delay;
                AppendReceipt::new(async move {
                    tokio::time::sleep_until(acknowledged).await;
                    appended.await
                })
            }
            OnAppend::Refuse(error) => AppendReceipt::ready(Err(error)),
            OnAppend::Lose => AppendReceipt::new(std::future::pending()),
        }
    }

    fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
        (self.on_payload)(id);
        self.inner.payload(id)
    }

    fn checkpoint(
        &self,
        cursor: &Cursor,
        write: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
    ) -> Result<Option<String>, JournalError> {
        (self.on_checkpoint)(cursor)?;
        self.inner.checkpoint(cursor, write)
    }
}
