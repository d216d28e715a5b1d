//! The engines: their slots, the samples that run, and the clock that stands still while no sample is continued.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The next end of a group's samples: generated time, sequence number in the log, group.
pub(super) type End = (u64, u64, u32);

/// The samples on the engines.
#[derive(Debug)]
pub(super) struct Generation {
    /// The time for which samples could be continued so far.
    time: u64,
    ends: BinaryHeap<Reverse<End>>,
    /// Samples that run.
    running: usize,
    /// When each free slot was freed.
    slots: VecDeque<u64>,
    /// Groups whose samples wait for a publication to end.
    blocked: Vec<u32>,
}

impl Generation {
    /// Engines with `slots` slots that have been free since `since`.
    pub(super) fn new(slots: usize, since: u64) -> Self {
        let slots = std::iter::repeat_n(since, slots).collect();
        Self { time: 0, ends: BinaryHeap::new(), running: 0, slots, blocked: Vec::new() }
    }

    /// Loses everything that runs: engines start again with `slots` slots that have been free since `since`.
    pub(super) fn restart(&mut self, slots: usize, since: u64) {
        *self = Self { time: self.time, ..Self::new(slots, since) };
    }

    /// Returns the time for which samples could be continued so far.
    pub(super) fn time(&self) -> u64 {
        self.time
    }

    pub(super) fn pass(&mut self, nanoseconds: u64) {
        self.time += nanoseconds;
    }

    /// Returns the end of a sample that comes first.
    pub(super) fn first_end(&self) -> Option<End> {
        self.ends.peek().map(|&Reverse(end)| end)
    }

    pub(super) fn push_end(&mut self, end: End) {
        self.ends.push(Reverse(end));
    }

    pub(super) fn pop_end(&mut self) {
        self.ends.pop();
    }

    /// Removes all ends, in no particular order.
    pub(super) fn take_ends(&mut self) -> impl Iterator<Item = End> + use<> {
        std::mem::take(&mut self.ends).into_iter().map(|Reverse(end)| end)
    }

    pub(super) fn expects_end(&self) -> bool {
        !self.ends.is_empty()
    }

    pub(super) fn start_samples(&mut self, samples: usize) {
        self.running += samples;
    }

    pub(super) fn end_samples(&mut self, samples: usize) {
        self.running -= samples;
    }

    /// Returns whether no sample runs.
    pub(super) fn is_idle(&self) -> bool {
        self.running == 0
    }

    pub(super) fn free_slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn free(&mut self, slots: usize, now: u64) {
        self.slots.extend(std::iter::repeat_n(now, slots));
    }

    /// Returns since when `slots` slots have been free. At least so many must be free.
    pub(super) fn free_since(&self, slots: usize) -> u64 {
        self.slots[slots - 1]
    }

    pub(super) fn occupy(&mut self, slots: usize) {
        self.slots.drain(..slots);
    }

    /// Keeps a leased group until its samples may begin.
    pub(super) fn block(&mut self, group: u32) {
        self.blocked.push(group);
    }

    pub(super) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    pub(super) fn take_blocked(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.blocked)
    }
}
