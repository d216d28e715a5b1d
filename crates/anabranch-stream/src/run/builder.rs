//! Opens runs.

use std::fmt;
use std::sync::Arc;

use anabranch_core::{
    AppendReceipt, Error, EventKind, FORMAT, Fields, Journal, MemoryJournal, RUN_SETTINGS, ResumeState, Seq,
    SessionClock, Stamp,
};
use anabranch_metrics::{Facade, Meter};
use parking_lot::Mutex;

use super::flow::Flow;
use super::gate::Gate;
use super::{Draft, Inner, Order, Run, changed};

/// Builds a run: see [`Run::builder`]. Without further settings it opens a new run in memory, on the operating system's
/// clock.
#[must_use = "a run is opened by `open`"]
pub struct RunBuilder {
    name: String,
    journal: Option<Arc<dyn Journal>>,
    resume: ResumeState,
    meter: Meter,
    clock: Option<SessionClock>,
    settings: Fields,
    accept_changes: bool,
}

impl RunBuilder {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            journal: None,
            resume: ResumeState::default(),
            meter: Meter::default(),
            clock: None,
            settings: Fields::new(),
            accept_changes: false,
        }
    }

    /// Sets the journal that stores the events. By default they are kept in memory.
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Resumes the run of earlier sessions. `state` and `meter` are computed from its events by
    /// [`resume`](anabranch_core::resume) and [`Meter::of`].
    pub fn resume(mut self, state: ResumeState, meter: Meter) -> Self {
        (self.resume, self.meter) = (state, meter);
        self
    }

    /// Sets the clock of this session. The default is the operating system's monotonic clock. Pipelines in tokio's
    /// paused time need [`tokio_clock`](crate::tokio_clock).
    pub fn clock(mut self, clock: SessionClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the user's settings of the run. They are recorded when the run begins, and compared when it is opened
    /// again.
    pub fn settings(mut self, settings: Fields) -> Self {
        self.settings = settings;
        self
    }

    /// Sets whether the settings of the run and its operators may differ from the recorded ones. By default they may
    /// not.
    pub fn accept_changes(mut self, accept: bool) -> Self {
        self.accept_changes = accept;
        self
    }

    /// Opens the run and records `RunOpened` or `RunResumed`.
    ///
    /// # Errors
    /// Returns [`Error::Changed`] if the run was recorded with other [`settings`](Self::settings) and changes are not
    /// accepted.
    pub fn open(self) -> Result<Run, Error> {
        let resumed = self.resume.session > 0 && !self.settings.is_empty();
        if !resumed {
            return Ok(self.opened());
        }
        let recorded = self.resume.settings.get(RUN_SETTINGS).filter(|_| !self.accept_changes);
        if let Some(error) = recorded.and_then(|recorded| changed(RUN_SETTINGS, recorded, &self.settings)) {
            return Err(error);
        }
        let settings = self.settings.clone();
        let run = self.opened();
        // Accepted changes are recorded here. Other changes were refused above.
        run.configure(RUN_SETTINGS, settings)?;
        Ok(run)
    }

    /// Opens the run without comparing its settings.
    pub(super) fn opened(self) -> Run {
        let Self { name, journal, mut resume, mut meter, clock, settings, accept_changes } = self;
        let session_clock = clock.unwrap_or_else(SessionClock::monotonic);
        let library = env!("CARGO_PKG_VERSION").to_owned();
        let kind = if resume.next_seq == Seq(0) {
            resume.settings.insert(RUN_SETTINGS.to_owned(), settings.clone());
            EventKind::RunOpened { library, format: FORMAT, settings }
        } else {
            EventKind::RunResumed { library, lost: resume.lost }
        };
        let facade = Facade::of_run(&name);
        meter.attach(&facade);
        let order = Order { next: resume.next_seq, meter, last_append: AppendReceipt::ready(Ok(())) };
        let flow = Flow::default();
        flow.with_meter(|places| places.open(&facade, session_clock.now()));
        flow.leave_over(resume.queued.len() + resume.open.len());
        let mut inner = Inner {
            name,
            journal: journal.unwrap_or_else(|| Arc::new(MemoryJournal::new())),
            session_clock,
            session: resume.session,
            accept_changes,
            opened: Stamp::earlier(resume.next_seq),
            order: Mutex::new(order),
            clock: Mutex::new(resume.clock.clone()),
            publications: Mutex::default(),
            flow,
            gate: Gate::default(),
            turn: Arc::default(),
            shared_turn: Mutex::default(),
            settings: Mutex::new(resume.settings.clone()),
            resume: Mutex::new(resume),
        };
        inner.opened = inner.append(inner.order.lock(), vec![Draft::new(kind, Vec::new())], &[]).stamp(0);
        Run(Arc::new(inner))
    }
}

impl fmt::Debug for RunBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunBuilder").field("name", &self.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}
