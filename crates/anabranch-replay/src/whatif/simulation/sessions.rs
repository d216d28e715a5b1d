//! The recorded sessions, which the simulated run goes through one after the other.

use anabranch_core::WeightSync;

use crate::whatif::recording::Session;

/// How the next session begins.
#[derive(Copy, Clone, Debug)]
pub(super) struct Opening {
    /// When the learner first asks for groups.
    pub(super) began: u64,
    /// When the weights are installed.
    pub(super) installed: u64,
    /// Version numbers that the sessions in between used up.
    pub(super) burned: u64,
}

/// The present session among all.
#[derive(Debug)]
pub(super) struct Sessions<'a> {
    all: &'a [Session],
    present: usize,
    /// How long the sessions before took together.
    before: u64,
}

impl<'a> Sessions<'a> {
    /// Opens the first session in which the learner asked for groups.
    pub(super) fn open(all: &'a [Session]) -> (Self, Opening) {
        let present = all.iter().position(|session| session.began.is_some()).unwrap_or_default();
        let first = all[present];
        let opening = Opening {
            began: first.began.unwrap_or_default(),
            installed: first.installed,
            burned: all[..present].iter().map(|session| session.burned).sum(),
        };
        (Self { all, present, before: wall(&all[..present]) }, opening)
    }

    /// Opens the next session in which the learner asked for groups, if there is one.
    pub(super) fn open_next(&mut self) -> Option<Opening> {
        let (next, began) =
            (self.present + 1..self.all.len()).find_map(|index| Some((index, self.all[index].began?)))?;
        let burned = self.all[self.present + 1..next].iter().map(|session| session.burned).sum();
        self.before += wall(&self.all[self.present..next]);
        self.present = next;
        Some(Opening { began, installed: self.all[next].installed, burned })
    }

    /// Returns when the session is cut off. The last session never is.
    pub(super) fn ends(&self) -> u64 {
        let last = self.present + 1 == self.all.len();
        if last { u64::MAX } else { self.all[self.present].last }
    }

    /// Returns what became of samples in flight at this session's publications.
    pub(super) fn mode(&self) -> WeightSync {
        self.all[self.present].mode
    }

    /// Returns how long the run has taken until `now`, without the time between sessions.
    pub(super) fn wall(&self, now: u64) -> u64 {
        self.before + now - self.all[self.present].opened
    }
}

fn wall(sessions: &[Session]) -> u64 {
    sessions.iter().map(|session| session.last - session.opened).sum()
}
