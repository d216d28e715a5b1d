//! Generation slots, with the event that freed each.

use std::collections::VecDeque;

use anabranch_core::Stamp;

/// Free slots, in the order in which they became free.
#[derive(Debug)]
pub(super) struct Slots {
    /// The event that freed each slot; `None` for a slot that was never used.
    free: VecDeque<Option<Stamp>>,
    group: usize,
}

impl Slots {
    /// Creates `total` slots, of which a group takes `group`.
    pub(super) fn new(total: usize, group: usize) -> Self {
        Self { free: std::iter::repeat_n(None, total).collect(), group }
    }

    /// Whether enough slots are free for a group.
    pub(super) fn are_free(&self) -> bool {
        self.free.len() >= self.group
    }

    /// Takes a group's slots. Returns the event that freed the last of them.
    pub(super) fn take(&mut self) -> Option<Stamp> {
        self.free.drain(..self.group).next_back().flatten()
    }

    /// Frees a slot, at the event `stamp`.
    pub(super) fn free(&mut self, stamp: Option<Stamp>) {
        self.free.push_back(stamp);
    }
}
