//! The agenda: which actions are due, and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens at a moment. The number names a group of [`Groups`](super::groups::Groups).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    Completed(u32),
    Arrived(u32),
    Durable(u32),
    Admitted(u32),
    Excluded(u32),
    Lease,
    Feed,
    Ask,
    Taken,
    Stepped,
    Publishing,
    Paused,
    Still,
    Quiesced,
    Installed,
    Resumed,
    Free,
}

/// Time, phase, sequence number in the log, order of scheduling.
pub(super) type Due = (u64, u32, u64, u64);

/// The actions that are due, and the present moment.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    now: u64,
    phase: u32,
    scheduled: u64,
    actions: BinaryHeap<Reverse<(Due, Action)>>,
    /// When the lease that waits for its time is due.
    lease_due: Option<u64>,
    ask_due: Option<u64>,
    feed_due: bool,
    over: bool,
}

impl Agenda {
    pub(super) fn starting_at(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn phase(&self) -> u32 {
        self.phase
    }

    pub(super) fn set_moment(&mut self, now: u64, phase: u32) {
        (self.now, self.phase) = (now, phase);
    }

    /// Returns the action that is due first.
    pub(super) fn first(&self) -> Option<(Due, Action)> {
        self.actions.peek().map(|&Reverse(first)| first)
    }

    /// Removes the action that is due first.
    pub(super) fn pop(&mut self) {
        match self.actions.pop() {
            Some(Reverse((_, Action::Lease))) => self.lease_due = None,
            Some(Reverse((_, Action::Ask))) => self.ask_due = None,
            Some(Reverse((_, Action::Feed))) => self.feed_due = false,
            _ => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    pub(super) fn schedule(&mut self, at: u64, phase: u32, key: u64, action: Action) {
        self.scheduled += 1;
        self.actions.push(Reverse(((at, phase, key, self.scheduled), action)));
    }

    /// Lets the source try again at `at`, unless it already will.
    pub(super) fn schedule_lease(&mut self, at: u64, key: u64) {
        if self.lease_due != Some(at) {
            self.lease_due = Some(at);
            self.schedule(at, 0, key, Action::Lease);
        }
    }

    /// Lets the learner ask at `at`, unless it already will by then.
    pub(super) fn schedule_ask(&mut self, at: u64, phase: u32) {
        if self.ask_due.is_none_or(|due| at < due) {
            self.ask_due = Some(at);
            self.schedule(at, phase, 0, Action::Ask);
        }
    }

    /// Lets the buffer's task run in the next phase, unless it already will.
    pub(super) fn schedule_feed(&mut self) {
        if !self.feed_due {
            self.feed_due = true;
            self.schedule(self.now, self.phase + 1, 0, Action::Feed);
        }
    }

    /// Forgets all actions: a new session begins at `now`.
    pub(super) fn restart(&mut self, now: u64) {
        self.set_moment(now, 0);
        self.actions.clear();
        (self.lease_due, self.ask_due, self.feed_due) = (None, None, false);
    }

    /// Ends the run: whatever else is due does not happen.
    pub(super) fn end(&mut self) {
        self.over = true;
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}
