//! The groups between their lease and their settlement.

use std::ops::{Index, IndexMut};

use super::source::Next;
use crate::whatif::prediction::{Fate, PredictedGroup};
use crate::whatif::recording::NONE;

/// A group between its lease and its settlement.
#[derive(Copy, Clone, Debug)]
pub(super) struct Group {
    /// The recorded lease that gives the group its durations.
    pub(super) spec: u32,
    /// The recorded lease that gives durations to the rest of a generation that the log shows cut off, or `NONE`.
    pub(super) rest: u32,
    pub(super) attempt: u32,
    /// How often its lease was issued again.
    pub(super) reissues: u32,
    pub(super) position: u64,
    pub(super) modelled: bool,
    pub(super) aborted: bool,
    /// Samples that have ended.
    pub(super) ended: u32,
    /// Generated time at which its generation began.
    pub(super) start: u64,
    /// Generated time of its first token; `u64::MAX` without a token.
    pub(super) first: u64,
    /// No token of the group has a version below this one.
    pub(super) floor: u64,
    pub(super) oldest: Option<u64>,
    pub(super) tokens: u64,
    pub(super) leased: u64,
    /// `u64::MAX` before its completion.
    pub(super) completed: u64,
    pub(super) arrived: u64,
    pub(super) admitted: Option<u64>,
    pub(super) dequeued: Option<u64>,
    pub(super) gap: u64,
    pub(super) publications: u64,
    /// When it was leased, completed or admitted last, counted in such events of all groups.
    pub(super) place: u64,
    /// When it can leave the buffer at the earliest.
    pub(super) ready: u64,
}

impl Group {
    /// A group that has generated nothing yet.
    fn leased(Next { lease, modelled }: Next, now: u64, place: u64) -> Self {
        Self {
            spec: lease.spec,
            rest: NONE,
            attempt: lease.attempt,
            reissues: lease.lost.map_or(0, |lost| lost.reissues + 1),
            position: lease.position,
            modelled,
            aborted: false,
            ended: 0,
            start: 0,
            first: u64::MAX,
            floor: 0,
            oldest: None,
            tokens: 0,
            leased: now,
            completed: u64::MAX,
            arrived: 0,
            admitted: None,
            dequeued: None,
            gap: 0,
            publications: 0,
            place,
            ready: 0,
        }
    }

    pub(super) fn is_completed(&self) -> bool {
        self.completed != u64::MAX
    }

    /// Describes the group for whoever asked. `oldest` is the number of its oldest version.
    pub(super) fn predicted(&self, fate: Fate, settled_ns: Option<u64>, oldest: Option<u64>) -> PredictedGroup {
        PredictedGroup {
            position: self.position,
            attempt: self.attempt,
            modelled: self.modelled,
            leased_ns: self.leased,
            completed_ns: self.is_completed().then_some(self.completed),
            admitted_ns: self.admitted,
            dequeued_ns: self.dequeued,
            settled_ns,
            oldest,
            publications: self.publications,
            fate,
        }
    }
}

/// All groups between their lease and their settlement, by a number that is free again after the settlement.
#[derive(Debug, Default)]
pub(super) struct Groups {
    slots: Vec<Group>,
    vacant: Vec<u32>,
    places: u64,
}

impl Groups {
    /// Adds a group that was leased at `now`, and returns its number.
    pub(super) fn add(&mut self, next: Next, now: u64) -> u32 {
        let place = next.lease.lost.map_or_else(|| self.next_place(), |lost| lost.place);
        let group = Group::leased(next, now, place);
        if let Some(index) = self.vacant.pop() {
            self[index] = group;
            index
        } else {
            self.slots.push(group);
            self.slots.len() as u32 - 1
        }
    }

    pub(super) fn forget(&mut self, index: u32) {
        self.vacant.push(index);
    }

    /// Counts a lease, completion or admission.
    pub(super) fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// Returns the numbers of the groups, ascending.
    pub(super) fn open(&self) -> impl Iterator<Item = u32> + use<> {
        (0..).zip(self.is_vacant()).filter_map(|(index, vacant)| (!vacant).then_some(index))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        let vacant = self.is_vacant();
        self.slots.iter_mut().zip(vacant).filter_map(|(group, vacant)| (!vacant).then_some(group))
    }

    fn is_vacant(&self) -> Vec<bool> {
        let mut vacant = vec![false; self.slots.len()];
        self.vacant.iter().for_each(|&index| vacant[index as usize] = true);
        vacant
    }
}

impl Index<u32> for Groups {
    type Output = Group;

    fn index(&self, index: u32) -> &Group {
        &self.slots[index as usize]
    }
}

impl IndexMut<u32> for Groups {
    fn index_mut(&mut self, index: u32) -> &mut Group {
        &mut self.slots[index as usize]
    }
}
