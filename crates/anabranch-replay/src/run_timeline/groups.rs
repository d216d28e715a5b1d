//! The places of groups over time: how long each group was in each place.

use std::collections::HashMap;

use anabranch_core::GroupId;

use super::Kept;
use super::slices::Slices;
use crate::Slice;

#[derive(Copy, Clone, Debug)]
enum At {
    InFlight,
    /// Leased in a session that ended, and not issued again.
    Idle,
    Waiting,
    Buffered,
}

#[derive(Debug)]
struct Placed {
    at: At,
    since: u64,
    kept: Kept,
}

/// The places of the groups that are not settled.
#[derive(Debug, Default)]
pub(super) struct Places {
    open: HashMap<GroupId, Placed>,
    /// How many samples a group has, as configured.
    pub(super) samples: u64,
}

impl Placed {
    /// Adds the time that the group spent in its place until `end`.
    fn book(&self, end: u64, slices: &mut Slices<Slice>) {
        slices.spread(self.since, end, |slice, ns| match self.at {
            At::InFlight => slice.in_flight_ns += ns,
            At::Waiting => slice.waiting_ns += ns,
            At::Buffered => slice.buffered_ns += ns,
            At::Idle => {}
        });
    }

    fn go(&mut self, at: At, now: u64, slices: &mut Slices<Slice>) {
        self.book(now, slices);
        (self.at, self.since) = (at, now);
    }
}

impl Places {
    pub(super) fn lease(&mut self, id: &GroupId, now: u64) {
        self.open.insert(id.clone(), Placed { at: At::InFlight, since: now, kept: (None, None) });
    }

    pub(super) fn complete(&mut self, id: &GroupId, now: u64, kept: Kept, slices: &mut Slices<Slice>) {
        if let Some(placed) = self.open.get_mut(id) {
            placed.go(At::Waiting, now, slices);
            placed.kept = kept;
        }
    }

    pub(super) fn admit(&mut self, id: &GroupId, now: u64, slices: &mut Slices<Slice>) {
        if let Some(placed) = self.open.get_mut(id) {
            placed.go(At::Buffered, now, slices);
        }
    }

    /// Removes a settled group, which left its place at `left`.
    pub(super) fn leave(&mut self, id: &GroupId, left: u64, slices: &mut Slices<Slice>) -> Option<Kept> {
        let placed = self.open.remove(id)?;
        placed.book(left, slices);
        Some(placed.kept)
    }

    /// Ends a session at `end`. Its groups in flight are in flight no longer.
    pub(super) fn interrupt(&mut self, end: u64, slices: &mut Slices<Slice>) {
        for placed in self.open.values_mut().filter(|placed| matches!(placed.at, At::InFlight)) {
            slices.spread(placed.since, end, |slice, ns| slice.generating_ns += ns * self.samples);
            placed.go(At::Idle, end, slices);
        }
    }

    /// Ends the log.
    pub(super) fn end(&mut self, end: u64, slices: &mut Slices<Slice>) {
        self.interrupt(end, slices);
        self.open.drain().for_each(|(_, placed)| placed.book(end, slices));
    }
}
