//! Sealing: a thread beside the writer hands durable parts of the log to whoever keeps them elsewhere.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anabranch_core::{BoxError, Event, Group, GroupId, Seq};
use parking_lot::{Condvar, Mutex};

use crate::SealError;
use crate::retain::Retention;
use crate::write::Store;

/// The most groups in a segment, and how many new ones make a seal due.
const SEGMENT_GROUPS: u64 = 256;
/// How long events wait at most until a seal is due.
const SEAL_EVERY: Duration = Duration::from_mins(1);

/// A contiguous part of the log, synced, to be sealed.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The seq of its first event.
    pub first: Seq,
    /// The seq of its last event.
    pub last: Seq,
    /// All its events, in order.
    pub events: Vec<Event>,
    /// The payload of each of its `Completed` events, in their order. Their context is empty.
    pub groups: Vec<Group>,
}

/// Reads the payload of a group out of what was sealed; nothing where it is not there.
pub(crate) type ReadSealed = Box<dyn Fn(&GroupId) -> Result<Option<Group>, BoxError> + Send + Sync>;

type Seal = Box<dyn FnMut(&Segment) -> Result<(), BoxError> + Send>;

/// What seals the log: it is handed each [`Segment`] once, in order, without gaps, on a thread of the log's.
///
/// When it returns `Ok` the segment counts as sealed. When it fails, the same events come again at the next seal,
/// possibly with more behind them.
pub struct Sealer {
    next: u64,
    seal: Seal,
    read: Option<ReadSealed>,
}

impl Sealer {
    /// A sealer that goes on after `sealed_through`, the last event sealed so far.
    pub fn new(
        sealed_through: Option<Seq>,
        seal: impl FnMut(&Segment) -> Result<(), BoxError> + Send + 'static,
    ) -> Self {
        Self { next: sealed_through.map_or(0, |seq| seq.0 + 1), seal: Box::new(seal), read: None }
    }

    /// Says how payloads are read out of what was sealed, the same bits as they went in: then the log drops them once
    /// every kept checkpoint, but that of step 0, is past the event that settled their group, and asks `read` for them
    /// afterwards. Without, the log keeps all payloads.
    #[must_use]
    pub fn reading(
        mut self,
        read: impl Fn(&GroupId) -> Result<Option<Group>, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.read = Some(Box::new(read));
        self
    }

    pub(crate) fn take_reader(&mut self) -> Option<ReadSealed> {
        self.read.take()
    }

    /// How many events are sealed.
    pub(crate) fn sealed(&self) -> u64 {
        self.next
    }

    /// Seals everything appended so far.
    fn seal(&mut self, store: &Store) -> Result<(), SealError> {
        let end = store.appended();
        if self.next >= end {
            return Ok(());
        }
        store.sync(end)?;
        while let Some(segment) = store.segment(self.next, end, SEGMENT_GROUPS as usize)? {
            let sealed = catch_unwind(AssertUnwindSafe(|| (self.seal)(&segment)));
            let sealed = sealed.unwrap_or_else(|_| Err("it panicked".into()));
            let (first, last) = (segment.first, segment.last);
            sealed.map_err(|error| SealError::Refused { first, last, problem: error.to_string() })?;
            self.next = last.0 + 1;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("next", &self.next).finish_non_exhaustive()
    }
}

/// What is asked of the sealing thread.
#[derive(Debug, Default)]
pub(crate) struct Seals {
    requests: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Requests {
    due: bool,
    /// Groups completed since the last seal.
    groups: u64,
    callers: Vec<mpsc::Sender<Result<(), SealError>>>,
    finish: bool,
}

impl Seals {
    /// Counts groups completed; enough of them make a seal due.
    pub(crate) fn completed(&self, groups: u64) {
        let mut requests = self.requests.lock();
        requests.groups += groups;
        if requests.groups >= SEGMENT_GROUPS {
            requests.due = true;
            self.changed.notify_all();
        }
    }

    /// Asks for a seal, without waiting for it.
    pub(crate) fn due(&self) {
        self.requests.lock().due = true;
        self.changed.notify_all();
    }

    /// Asks for a seal; its result arrives at the receiver.
    pub(crate) fn call(&self) -> mpsc::Receiver<Result<(), SealError>> {
        let (caller, result) = mpsc::channel();
        self.requests.lock().callers.push(caller);
        self.changed.notify_all();
        result
    }

    /// Asks for the last seal.
    pub(crate) fn finish(&self) {
        self.requests.lock().finish = true;
        self.changed.notify_all();
    }

    /// Waits for a request, or until `deadline`.
    fn wait(&self, deadline: Instant) -> Requests {
        let mut requests = self.requests.lock();
        while !requests.due && !requests.finish && requests.callers.is_empty() {
            if self.changed.wait_until(&mut requests, deadline).timed_out() {
                break;
            }
        }
        let (due, finish) = (requests.due, requests.finish);
        let groups = if due || finish { std::mem::take(&mut requests.groups) } else { 0 };
        requests.due = false;
        Requests { due, groups, callers: std::mem::take(&mut requests.callers), finish }
    }
}

/// The thread that seals, and that syncs at intervals what was acknowledged without a sync.
pub(crate) struct Keeper {
    pub(crate) store: Arc<Store>,
    pub(crate) sealer: Option<Sealer>,
    /// How often to sync; not at all where every commit is synced.
    pub(crate) sync_every: Option<Duration>,
    /// What drops sealed payloads, where they can be read back.
    pub(crate) retention: Option<Retention>,
}

impl Keeper {
    /// Its loop; ends with the result of the last seal.
    pub(crate) fn run(mut self) -> Result<(), SealError> {
        let (mut next_sync, mut next_seal) = (Instant::now(), Instant::now() + SEAL_EVERY);
        loop {
            let deadline = self.sync_every.map_or(next_seal, |every| next_seal.min(next_sync + every));
            let Requests { due, callers, finish, .. } = self.store.seals.wait(deadline);
            let now = Instant::now();
            if let Some(every) = self.sync_every
                && (finish || now >= next_sync + every)
            {
                // A failure poisons the log, which tells everybody who appends.
                let _ = self.store.sync(self.store.written());
                next_sync = now;
            }
            if due || finish || !callers.is_empty() || now >= next_seal {
                next_seal = now + SEAL_EVERY;
                let sealed = self.sealer.as_mut().map_or(Ok(()), |sealer| sealer.seal(&self.store));
                if let Err(error) = &sealed {
                    tracing::error!(%error, "sealing failed, the next seal tries again");
                }
                if let (Ok(()), Some(sealer), Some(retention)) = (&sealed, &self.sealer, &self.retention) {
                    retention.sealed(sealer.sealed());
                }
                for caller in callers {
                    // Whoever asked may no longer wait.
                    drop(caller.send(sealed.clone()));
                }
                if finish {
                    if let Some(retention) = self.retention.take() {
                        retention.finish();
                    }
                    return sealed;
                }
            }
        }
    }
}
