//! The run: what all operators of a pipeline share. It travels in the items, inside their leases.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::lock::OwnedMutexGuard;
use parking_lot::{Mutex, MutexGuard};

use crate::event::FORMAT;
use crate::flow::Flow;
use crate::gate::Gate;
use crate::metrics::Facade;
use crate::resume_state::{OpenLease, QueuedGroup, Retry};
use crate::wakers::Wakers;
use crate::{
    AppendReceipt, Cause, Context, Dataset, Digest, Draft, Enabler, Error, Event, EventKind, Fields, Group, GroupId,
    Journal, JournalError, Lease, MemoryJournal, Meter, Metrics, Moment, Prompts, RecordReceipt, ResumeState, Seq,
    SessionClock, Stamp, TrainingStep, Unused, Value, Version, VersionClock, WeightSync,
};

/// A handle to a run; clones share it.
#[derive(Clone)]
pub struct Run(Arc<Inner>);

struct Inner {
    name: String,
    journal: Arc<dyn Journal>,
    session_clock: SessionClock,
    session: u32,
    accept_changes: bool,
    opened: Stamp,
    order: Mutex<Order>,
    clock: Mutex<VersionClock>,
    publications: Mutex<Wakers>,
    flow: Flow,
    gate: Gate,
    turn: Arc<futures::lock::Mutex<()>>,
    /// The turn of the evaluations under way.
    shared_turn: Mutex<Weak<OwnedMutexGuard<()>>>,
    settings: Mutex<BTreeMap<String, Fields>>,
    past: Mutex<ResumeState>,
}

/// What fixes the order of events.
struct Order {
    next: Seq,
    meter: Meter,
    last_append: AppendReceipt,
}

impl Run {
    /// Opens a run on a journal whose earlier sessions left `past`; records `RunOpened` or `RunResumed`.
    ///
    /// `name` prefixes the engine requests of the run. With `accept_changes`, operators may have other settings than
    /// those recorded; without, they are refused (see [`configure`](Self::configure)).
    pub fn new(
        name: impl Into<String>,
        journal: Arc<dyn Journal>,
        past: ResumeState,
        session_clock: SessionClock,
        settings: Fields,
        accept_changes: bool,
    ) -> Self {
        let library = env!("CARGO_PKG_VERSION").to_owned();
        let kind = if past.next_seq == Seq(0) {
            EventKind::RunOpened { library, format: FORMAT, settings }
        } else {
            EventKind::RunResumed { library, lost: past.lost }
        };
        let name = name.into();
        let facade = Facade::of_run(&name);
        let mut meter = past.meter.clone();
        meter.attach(&facade);
        let order = Order { next: past.next_seq, meter, last_append: AppendReceipt::ready(Ok(())) };
        let flow = Flow::default();
        flow.with_meter(|places| places.open(&facade, session_clock.now()));
        let mut inner = Inner {
            name,
            journal,
            session_clock,
            session: past.session,
            accept_changes,
            opened: Stamp::earlier(past.next_seq),
            order: Mutex::new(order),
            clock: Mutex::new(past.clock.clone()),
            publications: Mutex::default(),
            flow,
            gate: Gate::default(),
            turn: Arc::default(),
            shared_turn: Mutex::default(),
            settings: Mutex::new(past.settings.clone()),
            past: Mutex::new(past),
        };
        let left = inner.past.get_mut();
        inner.flow.leave_over(left.queued.len() + left.open.len());
        inner.opened = inner.record(vec![Draft::new(kind, Vec::new())], &[]).stamp(0);
        Self(Arc::new(inner))
    }

    /// A new run in memory, on the operating system's clock.
    pub fn in_memory() -> Self {
        Self::new(
            "memory",
            Arc::new(MemoryJournal::new()),
            ResumeState::default(),
            SessionClock::monotonic(),
            Fields::new(),
            false,
        )
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its journal.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.0.journal
    }

    /// Nanoseconds since the session's start.
    pub fn now(&self) -> u64 {
        self.0.session_clock.now()
    }

    /// The record that opened this session.
    pub fn opened(&self) -> Stamp {
        self.0.opened
    }

    /// The clock of versions and steps, locked: publications and the last judgement of a batch exclude each other by it.
    /// Do not keep it over an await.
    pub fn clock(&self) -> MutexGuard<'_, VersionClock> {
        self.0.clock.lock()
    }

    /// Gives events their place in the log, all or none, with the payloads of those that complete a group. The order is
    /// fixed when this returns; the [`RecordReceipt::durable`] says when they are durable.
    pub fn record(&self, drafts: Vec<Draft>, payloads: &[&Group]) -> RecordReceipt {
        self.0.record(drafts, payloads)
    }

    /// Ready when everything recorded so far is durable as the journal's mode promises.
    pub fn flushed(&self) -> AppendReceipt {
        self.0.order.lock().last_append.clone()
    }

    /// Records that the pipeline ended, and which completed groups it leaves in the log for the next session. Drop the
    /// streams of the run first, so that nothing follows.
    pub fn finish(&self) -> RecordReceipt {
        let mut left: Vec<GroupId> = self.0.order.lock().meter.unsettled().cloned().collect();
        left.sort_unstable();
        let closed = self.record(vec![Draft::new(EventKind::RunClosed { left }, Vec::new())], &[]);
        self.flow().with_meter(|places| places.close(closed.at));
        closed
    }

    /// What was counted and measured up to now. The recorder of the `metrics` facade is told what no event moves: the
    /// gaps of the groups in the buffer, and for how long it was empty or full. (It also hears of these after every
    /// batch, training step and publication.)
    ///
    /// The recorder is the one that was installed when the run was opened. What each number means, and how it is called
    /// there, stands in `docs/metrics.md`.
    pub fn metrics(&self) -> Metrics {
        let order = self.0.order.lock();
        let mut metrics = order.meter.metrics();
        let Metrics { counters, gauges, .. } = &mut metrics;
        self.flow().with_meter(|places| {
            places.count_time(self.now());
            places.fill(order.meter.now(), counters, gauges);
        });
        metrics
    }

    /// Says that the run has a buffer, and how many groups it may hold.
    pub fn set_buffer_capacity(&self, groups: usize) {
        self.flow().with_meter(|places| places.set_capacity(groups));
    }

    /// Groups between their issue and the buffer (or batch) now: generating, being scored, waiting for room.
    pub fn upstream(&self) -> usize {
        self.flow().upstream()
    }

    /// Those of them that an operator works on: generated, scored, on their way into the log.
    pub fn working(&self) -> usize {
        self.flow().working()
    }

    /// The last `Excluded` record of this session: since then a batch may lack one group more.
    pub fn last_excluded(&self) -> Option<Stamp> {
        self.flow().last_excluded()
    }

    /// What let the last group of this session leave an operator's hands, where that was no record of its own.
    pub fn last_departed(&self) -> Option<Stamp> {
        self.flow().last_departed()
    }

    /// Leases issued and not excluded over the whole life of the run, and those that [`Lease::pace`] has let through to
    /// be issued: consumed + taken + buffered + waiting + running. What a pacing bound is on.
    pub fn lead(&self) -> u64 {
        self.0.order.lock().meter.lead() + self.flow().paced() as u64
    }

    /// Groups and leases of earlier sessions that the source has not handed out yet.
    pub fn left_over(&self) -> usize {
        self.flow().left_over()
    }

    /// `waker` is woken when the next group leaves an operator, enters the buffer or a batch, or is excluded: for an
    /// operator that may issue no lease before.
    pub fn wake_on_departure(&self, waker: &Waker) {
        self.flow().wake_on_departure(waker);
    }

    /// Whether the two handles are of one run.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn flow(&self) -> &Flow {
        &self.0.flow
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// Says with which settings an operator meets the run. Recorded where it is new.
    ///
    /// # Errors
    /// [`Error::Changed`] where the log holds other settings and changes are not accepted.
    pub fn configure(&self, operator: &str, settings: Fields) -> Result<(), Error> {
        let mut known = self.0.settings.lock();
        if let Some(recorded) = known.get(operator) {
            if *recorded == settings {
                return Ok(());
            }
            if !self.0.accept_changes {
                let get = |fields: &Fields, field: &str| fields.get(field).unwrap_or(&Value::Null).to_string();
                let mut fields = recorded.keys().chain(settings.keys());
                let field = fields.find(|field| recorded.get(*field) != settings.get(*field));
                let field = field.cloned().unwrap_or_default();
                return Err(Error::Changed {
                    operator: operator.to_owned(),
                    recorded: get(recorded, &field),
                    now: get(&settings, &field),
                    field,
                });
            }
        }
        known.insert(operator.to_owned(), settings.clone());
        let kind = EventKind::Configured { operator: operator.to_owned(), settings };
        self.record(vec![Draft::new(kind, Vec::new())], &[]);
        Ok(())
    }

    /// Leases the prompts of `dataset`: the source of a pipeline.
    pub fn prompts(&self, dataset: Dataset) -> Prompts {
        Prompts::new(self.clone(), dataset)
    }

    /// Adopts a group made elsewhere: leases and completes it at once. Its prompt is never retried.
    pub fn adopt(&self, mut group: Group) -> Group {
        let mut lease =
            Lease::new(self.clone(), group.id.clone(), group.prompt.clone(), Unused::Drop).of_adopted_group();
        lease.issue(vec![(Cause::Opened, self.opened())]);
        group.context = Context { lease: Some(lease), ..Context::default() };
        group
    }

    /// Waits until no other publication of the run is under way. The next one waits until the guard is dropped.
    pub async fn publication_turn(&self) -> OwnedMutexGuard<()> {
        self.0.turn.clone().lock_owned().await
    }

    /// The same turn for all evaluations under way.
    pub(crate) async fn shared_publication_turn(&self) -> Arc<OwnedMutexGuard<()>> {
        if let Some(turn) = self.0.shared_turn.lock().upgrade() {
            return turn;
        }
        let turn = Arc::new(self.publication_turn().await);
        *self.0.shared_turn.lock() = Arc::downgrade(&turn);
        turn
    }

    /// Begins a publication: its version is used up, whatever comes of it.
    pub fn begin_publication(
        &self,
        weights: Digest,
        mode: WeightSync,
        enablers: Vec<(Cause, Stamp)>,
    ) -> (Version, RecordReceipt) {
        let mut clock = self.clock();
        let version = clock.next_version();
        clock.begin(version);
        let kind = EventKind::Publishing { version, step: clock.step(), updates: clock.updates(), weights, mode };
        let recorded = self.record(vec![Draft::new(kind, enablers)], &[]);
        (version, recorded)
    }

    /// The weights are on the engines: in one critical section `Published` is recorded and the clock advances.
    pub fn complete_publication(
        &self,
        version: Version,
        weights: Digest,
        pause_began: u64,
        paused: u64,
        enablers: Vec<(Cause, Stamp)>,
    ) -> RecordReceipt {
        let clock = self.clock();
        let (step, updates) = (clock.step(), clock.updates());
        let kind = EventKind::Published { version, step, updates, weights, pause_began, paused };
        self.install(clock, version, step, Draft::new(kind, enablers))
    }

    /// Weights published by an earlier session are on the engines again, under the same version.
    pub fn reinstall(&self, version: Version, step: TrainingStep, weights: Digest) -> RecordReceipt {
        let kind = EventKind::Reinstalled { version, step, weights };
        self.install(self.clock(), version, step, Draft::new(kind, vec![(Cause::Opened, self.opened())]))
    }

    /// Records an installation and advances the clock in one critical section, then wakes who must judge again.
    fn install(
        &self,
        mut clock: MutexGuard<'_, VersionClock>,
        version: Version,
        step: TrainingStep,
        installed: Draft,
    ) -> RecordReceipt {
        let recorded = self.record(vec![installed], &[]);
        clock.install(version, step, recorded.stamp(0));
        drop(clock);
        let waiting = self.0.publications.lock().take();
        waiting.wake();
        recorded
    }

    /// `waker` is woken by the next publication: for a batch that holds groups and must judge them again.
    pub fn wake_on_publication(&self, waker: &Waker) {
        self.0.publications.lock().add(waker);
    }

    /// Reads a completed group back: data only, its context is empty.
    ///
    /// # Errors
    /// Where it is not in the journal, or damaged.
    pub fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
        self.0.journal.payload(id)
    }

    pub(crate) fn past(&self) -> MutexGuard<'_, ResumeState> {
        self.0.past.lock()
    }

    pub(crate) fn take_past(&self) -> Left {
        let mut past = self.past();
        Left {
            position: past.position,
            queued: std::mem::take(&mut past.queued),
            in_flight: std::mem::take(&mut past.open),
            retries: std::mem::take(&mut past.retries),
        }
    }
}

/// What earlier sessions left to the source.
pub(crate) struct Left {
    pub(crate) position: u64,
    pub(crate) queued: Vec<QueuedGroup>,
    pub(crate) in_flight: Vec<OpenLease>,
    pub(crate) retries: VecDeque<Retry>,
}

impl Inner {
    fn record(&self, drafts: Vec<Draft>, payloads: &[&Group]) -> RecordReceipt {
        let mut order = self.order.lock();
        let (first, at, count) = (order.next, self.session_clock.now(), drafts.len() as u64);
        let wall_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let mut events: Vec<Event> = Vec::with_capacity(drafts.len());
        for (draft, index) in drafts.into_iter().zip(0..) {
            let seq = Seq(first.0 + index);
            let mut enablers = draft.enablers;
            if let (Some(cause), Some(previous)) = (draft.previous, events.last()) {
                enablers.push((cause, Stamp { moment: Moment::Event(previous.seq), at }));
            }
            let last = enablers.iter().map(|(_, stamp)| stamp.at).max();
            let event = Event {
                seq,
                session: self.session,
                at,
                wall_ms,
                enablers: enablers.iter().map(|&(cause, stamp)| Enabler { cause, moment: stamp.moment }).collect(),
                delay: at.saturating_sub(last.unwrap_or(at)),
                kind: draft.kind,
            };
            order.meter.apply(&event);
            if event.kind.moves_clocks() {
                self.flow.with_meter(|places| {
                    places.count_time(at);
                    places.buffered(order.meter.now());
                });
            }
            events.push(event);
        }
        order.next = Seq(first.0 + count);
        let ack = self.journal.append(events, payloads);
        order.last_append = ack.clone();
        RecordReceipt { first, count, at, durable: ack }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("name", &self.0.name).field("session", &self.0.session).finish_non_exhaustive()
    }
}
