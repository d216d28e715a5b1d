//! The run, which all operators of a pipeline share. Items carry it in their leases.
//!
//! Its locks are taken in this order, so that no two operators can wait for each other: the gate, the version clock, the
//! order of the log, the flow. A thread that holds one of them takes only those after it. Nobody is woken and nothing is
//! encoded while the version clock is locked: [`Run::commit`] hands over from the clock to the order of the log.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_core::{
    AppendReceipt, Cause, Dataset, Enabler, Error, Event, EventKind, Fields, Group, GroupId, Journal, JournalError,
    Moment, OpenLease, QueuedGroup, ResumeState, Retry, Seq, SessionClock, Stamp, TrainingStep, Value, Version,
    VersionClock,
};
use anabranch_metrics::{Meter, Metrics};
use futures::lock::OwnedMutexGuard;
use parking_lot::{Mutex, MutexGuard};

use self::flow::Flow;
use self::gate::Gate;
use self::wakers::Wakers;
use crate::{Lease, Prompts, Rollout, Unused};

mod builder;
mod flow;
mod gate;
mod hold;
mod publications;
mod record;
mod restore;
mod wakers;

pub use self::builder::RunBuilder;
pub use self::flow::Stage;
pub use self::hold::{Evaluation, Hold};
pub use self::record::{Draft, RecordReceipt};
pub use self::restore::Restored;

/// A handle to a run. Clones share the run.
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
    /// The turn that all current evaluations share.
    shared_turn: Mutex<Weak<OwnedMutexGuard<()>>>,
    settings: Mutex<BTreeMap<String, Fields>>,
    resume: Mutex<ResumeState>,
}

/// Fixes the order of events.
struct Order {
    next: Seq,
    meter: Meter,
    last_append: AppendReceipt,
}

impl Run {
    /// Starts to build a run called `name`. The name is the prefix of its engine requests.
    pub fn builder(name: impl Into<String>) -> RunBuilder {
        RunBuilder::new(name.into())
    }

    /// Creates a run in memory, on the operating system's clock: `Run::builder("memory").open()`.
    pub fn in_memory() -> Self {
        Self::builder("memory").opened()
    }

    /// The name of the run.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The journal of the run.
    pub(crate) fn journal(&self) -> &Arc<dyn Journal> {
        &self.0.journal
    }

    /// Nanoseconds since the session's start.
    pub fn now(&self) -> u64 {
        self.0.session_clock.now()
    }

    /// The place of the record that opened this session.
    pub(crate) fn opened(&self) -> Stamp {
        self.0.opened
    }

    /// Locks the clock of versions and steps. Publications and the last judgement of a batch exclude each other through
    /// this lock. Do not hold it over an await.
    pub(crate) fn clock(&self) -> MutexGuard<'_, VersionClock> {
        self.0.clock.lock()
    }

    /// The version installed on the engines; `None` before the initial installation.
    pub fn version(&self) -> Option<Version> {
        self.clock().version()
    }

    /// The number of training steps in the learner's weights.
    pub fn step(&self) -> TrainingStep {
        self.clock().step()
    }

    /// Appends events to the log, all or none, with the payloads of the groups that they complete. Their order is fixed
    /// when this returns; [`RecordReceipt::durable`] tells when they are durable.
    pub(crate) fn record(&self, drafts: Vec<Draft>, payloads: &[&Group]) -> RecordReceipt {
        self.0.append(self.0.order.lock(), drafts, payloads)
    }

    /// Records a decision that was made under the clock: `change` applies the record to the clock, then the clock is
    /// unlocked, then the events are encoded and passed to the journal. No event of another thread comes between the
    /// decision and its record.
    pub(crate) fn commit(
        &self,
        mut clock: MutexGuard<'_, VersionClock>,
        drafts: Vec<Draft>,
        payloads: &[&Group],
        change: impl FnOnce(&mut VersionClock, Stamp),
    ) -> RecordReceipt {
        let order = self.0.order.lock();
        // No other thread can append before `order` is unlocked, so the record will have this place.
        let last = Seq(order.next.0 + (drafts.len() as u64).saturating_sub(1));
        let now = self.now();
        change(&mut clock, Stamp { moment: Moment::Event(last), at: now });
        drop(clock);
        self.0.append_at(order, now, drafts, payloads)
    }

    /// Waits until everything recorded so far is durable in the journal's mode.
    pub fn flushed(&self) -> AppendReceipt {
        self.0.order.lock().last_append.clone()
    }

    /// Records that the pipeline ended, and the completed groups that it leaves in the log for the next session. Drop
    /// the streams of the run first, so that no more events follow.
    pub fn finish(&self) -> RecordReceipt {
        let mut left: Vec<GroupId> = self.0.order.lock().meter.unsettled().cloned().collect();
        left.sort_unstable();
        let closed = self.record(vec![Draft::new(EventKind::RunClosed { left }, Vec::new())], &[]);
        self.flow().with_meter(|places| places.close(closed.at));
        closed
    }

    /// Returns a snapshot of the metrics. It also sends the recorder of the `metrics` facade the gauges that change
    /// without an event: the gaps of the groups in the buffer, and the times in which the buffer was empty or full.
    /// (The recorder also gets them after every batch, training step and publication.)
    ///
    /// The recorder is the one that was installed when the run was opened. `docs/metrics.md` explains each metric and
    /// its name in the recorder.
    pub fn metrics(&self) -> Metrics {
        let order = self.0.order.lock();
        let mut metrics = order.meter.metrics();
        let Metrics { counters, gauges, .. } = &mut metrics;
        self.flow().with_meter(|places| {
            places.count_time(self.now());
            places.fill(order.meter.clock(), counters, gauges);
        });
        metrics
    }

    /// Notes that the run has a buffer, with its capacity in groups.
    pub(crate) fn set_buffer_capacity(&self, groups: usize) {
        self.flow().with_meter(|places| places.set_capacity(groups));
    }

    /// The number of groups between their lease and the buffer (or batch): being generated, being scored, or waiting
    /// for room.
    pub(crate) fn upstream(&self) -> usize {
        self.flow().upstream()
    }

    /// The number of these groups on which an operator is working: generating, scoring or logging them.
    pub(crate) fn working(&self) -> usize {
        self.flow().working()
    }

    /// The last `Excluded` record of this session. Since then a batch may need one more group.
    pub(crate) fn last_excluded(&self) -> Option<Stamp> {
        self.flow().last_excluded()
    }

    /// The event that let the last group leave an operator, if it has no record of its own.
    pub(crate) fn last_departed(&self) -> Option<Stamp> {
        self.flow().last_departed()
    }

    /// The leases issued and not excluded over the whole life of the run, plus those that [`Lease::pace`] has passed:
    /// consumed + taken + buffered + waiting + running. Pacing limits this number.
    pub(crate) fn lead(&self) -> u64 {
        self.0.order.lock().meter.lead() + self.flow().paced() as u64
    }

    /// The groups and leases of earlier sessions that the source has not handed out yet.
    pub(crate) fn left_over(&self) -> usize {
        self.flow().left_over()
    }

    /// Wakes `waker` when the next group leaves an operator, enters the buffer or a batch, or is excluded. Operators
    /// use it when they may not issue a lease before that.
    pub(crate) fn wake_on_departure(&self, waker: &Waker) {
        self.flow().wake_on_departure(waker);
    }

    /// Whether the two handles belong to the same run.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn flow(&self) -> &Flow {
        &self.0.flow
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// Notes the settings of an operator, and records them if they are new.
    ///
    /// # Errors
    /// Returns [`Error::Changed`] if the log has other settings and changes are not accepted.
    pub(crate) fn configure(&self, operator: &str, settings: Fields) -> Result<(), Error> {
        let mut known = self.0.settings.lock();
        if known.get(operator) == Some(&settings) {
            return Ok(());
        }
        let recorded = known.get(operator).filter(|_| !self.0.accept_changes);
        if let Some(error) = recorded.and_then(|recorded| changed(operator, recorded, &settings)) {
            return Err(error);
        }
        known.insert(operator.to_owned(), settings.clone());
        let kind = EventKind::Configured { operator: operator.to_owned(), settings };
        drop(self.record(vec![Draft::new(kind, Vec::new())], &[]));
        Ok(())
    }

    /// Leases the prompts of `dataset`. This is the source of a pipeline.
    pub fn prompts(&self, dataset: Dataset) -> Prompts {
        Prompts::new(self.clone(), dataset)
    }

    /// Adopts a group that was made elsewhere, so that it can enter the pipeline. Its prompt is leased at once and
    /// never retried.
    pub fn adopt(&self, group: Group) -> Rollout {
        let mut lease =
            Lease::new(self.clone(), group.id.clone(), group.prompt.clone(), Unused::Drop).of_adopted_group();
        lease.issue(vec![(Cause::Opened, self.opened())]);
        Rollout::new(group, lease)
    }

    /// Reads a completed group back from the journal.
    ///
    /// # Errors
    /// Returns an error if the group is missing or damaged.
    pub fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
        self.0.journal.payload(id)
    }

    pub(crate) fn resume_state(&self) -> MutexGuard<'_, ResumeState> {
        self.0.resume.lock()
    }

    pub(crate) fn take_leftovers(&self) -> Leftovers {
        let mut state = self.resume_state();
        Leftovers {
            position: state.position,
            queued: std::mem::take(&mut state.queued),
            in_flight: std::mem::take(&mut state.open),
            retries: std::mem::take(&mut state.retries),
        }
    }
}

/// The groups, leases and retries that earlier sessions left to the source.
pub(crate) struct Leftovers {
    pub(crate) position: u64,
    pub(crate) queued: Vec<QueuedGroup>,
    pub(crate) in_flight: Vec<OpenLease>,
    pub(crate) retries: VecDeque<Retry>,
}

/// Returns an error that names the first setting of `operator` that differs from the recorded one.
fn changed(operator: &str, recorded: &Fields, now: &Fields) -> Option<Error> {
    let field = recorded.keys().chain(now.keys()).find(|field| recorded.get(*field) != now.get(*field))?;
    let value = |fields: &Fields| fields.get(field).unwrap_or(&Value::Null).to_string();
    Some(Error::Changed {
        operator: operator.to_owned(),
        field: field.clone(),
        recorded: value(recorded),
        now: value(now),
    })
}

impl Inner {
    fn append(&self, order: MutexGuard<'_, Order>, drafts: Vec<Draft>, payloads: &[&Group]) -> RecordReceipt {
        self.append_at(order, self.session_clock.now(), drafts, payloads)
    }

    /// Appends events to the log, all with the time `at`.
    fn append_at(
        &self,
        mut order: MutexGuard<'_, Order>,
        at: u64,
        drafts: Vec<Draft>,
        payloads: &[&Group],
    ) -> RecordReceipt {
        let (first, count) = (order.next, drafts.len() as u64);
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
                    places.buffered(order.meter.clock());
                });
            }
            events.push(event);
        }
        order.next = Seq(first.0 + count);
        let durable = self.journal.append(events, payloads);
        order.last_append = durable.clone();
        RecordReceipt { first, count, at, durable }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("name", &self.0.name).field("session", &self.0.session).finish_non_exhaustive()
    }
}
