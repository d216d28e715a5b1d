//! What the pipeline and the user ask of the maintenance thread.

use std::sync::mpsc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::segment::SEGMENT_GROUPS;
use crate::SealError;

/// Requests for a seal, from any thread; the maintenance thread waits for them.
#[derive(Debug, Default)]
pub(crate) struct SealRequests {
    pending: Mutex<Requests>,
    changed: Condvar,
}

/// The requests since the maintenance thread looked last.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) due: bool,
    /// Groups completed since the last seal.
    groups: usize,
    /// Where the callers of `seal_now` wait for the result.
    pub(super) callers: Vec<mpsc::Sender<Result<(), SealError>>>,
    /// Whether the next seal is the last.
    pub(super) finish: bool,
}

impl SealRequests {
    /// Counts completed groups. A seal is due once a segment is full.
    pub(crate) fn completed(&self, groups: u64) {
        let mut pending = self.pending.lock();
        pending.groups += groups as usize;
        if pending.groups >= SEGMENT_GROUPS {
            pending.due = true;
            self.changed.notify_all();
        }
    }

    /// Asks for a seal, without waiting for it.
    pub(crate) fn due(&self) {
        self.pending.lock().due = true;
        self.changed.notify_all();
    }

    /// Asks for a seal; its result arrives at the receiver.
    pub(crate) fn call(&self) -> mpsc::Receiver<Result<(), SealError>> {
        let (caller, result) = mpsc::channel();
        self.pending.lock().callers.push(caller);
        self.changed.notify_all();
        result
    }

    /// Asks for the last seal.
    pub(crate) fn finish(&self) {
        self.pending.lock().finish = true;
        self.changed.notify_all();
    }

    /// Waits for a request, or until `deadline`, and takes what was asked.
    pub(super) fn wait(&self, deadline: Instant) -> Requests {
        let mut pending = self.pending.lock();
        while !pending.due && !pending.finish && pending.callers.is_empty() {
            if self.changed.wait_until(&mut pending, deadline).timed_out() {
                break;
            }
        }
        let (due, finish) = (pending.due, pending.finish);
        let groups = if due || finish { std::mem::take(&mut pending.groups) } else { 0 };
        pending.due = false;
        Requests { due, groups, callers: std::mem::take(&mut pending.callers), finish }
    }
}
