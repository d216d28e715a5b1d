//! The groups between their lease and the buffer, or the batch if there is no buffer.

use std::collections::VecDeque;

/// Counts and queues of the groups upstream of the buffer.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    groups: usize,
    /// Groups that operators work on.
    working: usize,
    /// Completed groups whose records are not durable yet.
    recording: usize,
    /// When the last of those records becomes durable.
    durable_at: u64,
    /// Completed groups that wait for room in the buffer.
    waiting: VecDeque<u32>,
    /// Places in the buffer that are promised to groups on their way into it.
    promised: usize,
}

impl Upstream {
    /// Completed groups that a restart carries over. They wait for room in this order.
    pub(super) fn carried(groups: Vec<u32>) -> Self {
        Self { groups: groups.len(), waiting: groups.into(), ..Self::default() }
    }

    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    pub(super) fn working(&self) -> usize {
        self.working
    }

    pub(super) fn enter(&mut self) {
        self.groups += 1;
        self.working += 1;
    }

    /// Notes that operators are done with a group.
    pub(super) fn finish_work(&mut self) {
        self.working -= 1;
    }

    /// Notes that a group was excluded, or entered the buffer or batch.
    pub(super) fn leave(&mut self) {
        self.groups -= 1;
    }

    /// Returns when a record that takes until `at` becomes durable; nothing if it is durable at once. Records become
    /// durable in their order, so that no group overtakes another on its way to the buffer.
    pub(super) fn record(&mut self, now: u64, at: u64) -> Option<u64> {
        self.durable_at = self.durable_at.max(at);
        if self.durable_at == now && self.recording == 0 {
            return None;
        }
        self.recording += 1;
        Some(self.durable_at)
    }

    pub(super) fn recorded(&mut self) {
        self.recording -= 1;
    }

    /// Returns whether a completed group's record is not durable yet.
    pub(super) fn is_recording(&self) -> bool {
        self.recording > 0
    }

    pub(super) fn wait(&mut self, group: u32) {
        self.waiting.push_back(group);
    }

    pub(super) fn first_waiting(&self) -> Option<u32> {
        self.waiting.front().copied()
    }

    /// Promises a place to the first group that waits, if the buffer has room beside its `buffered` groups.
    pub(super) fn promise_place(&mut self, capacity: usize, buffered: usize) -> Option<u32> {
        if buffered + self.promised >= capacity {
            return None;
        }
        let group = self.waiting.pop_front()?;
        self.promised += 1;
        Some(group)
    }

    pub(super) fn keep_promise(&mut self) {
        self.promised -= 1;
    }
}
