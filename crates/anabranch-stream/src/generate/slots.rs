//! Generation slots, and when each became free.

use std::collections::VecDeque;

use anabranch_core::Stamp;

/// Free slots, in the order in which they became free.
#[derive(Debug)]
pub(super) struct Slots {
    /// What freed each; nothing for a slot not used yet.
    free: VecDeque<Option<Stamp>>,
    group: usize,
}

impl Slots {
    /// `total` slots, of which a group takes `group`.
    pub(super) fn new(total: usize, group: usize) -> Self {
        Self { free: std::iter::repeat_n(None, total).collect(), group }
    }

    /// Whether a group could go out.
    pub(super) fn are_free(&self) -> bool {
        self.free.len() >= self.group
    }

    /// Takes a group's slots; gives what freed the last of them.
    pub(super) fn take(&mut self) -> Option<Stamp> {
        self.free.drain(..self.group).next_back().flatten()
    }

    /// `stamp` freed a slot.
    pub(super) fn free(&mut self, stamp: Option<Stamp>) {
        self.free.push_back(stamp);
    }
}
