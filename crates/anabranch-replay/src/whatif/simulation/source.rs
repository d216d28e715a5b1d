//! The source of leases: retries first, then fresh prompts in the dataset's order.

use std::collections::VecDeque;

use super::groups::Group;
use super::question::Question;
use crate::whatif::recording::NONE;

/// A lease that the source will issue.
#[derive(Copy, Clone, Debug)]
pub(super) struct Lease {
    /// The recorded lease that gives the group its durations; `NONE` if the log has none.
    pub(super) spec: u32,
    pub(super) position: u64,
    pub(super) attempt: u32,
    /// When the source got the prompt back.
    pub(super) since: u64,
    pub(super) lost: Option<Lost>,
}

/// A lease whose generation a restart lost.
#[derive(Copy, Clone, Debug)]
pub(super) struct Lost {
    /// Its place among leases.
    pub(super) place: u64,
    /// When it was issued last.
    pub(super) leased: u64,
    /// How often it was issued again.
    pub(super) reissues: u32,
}

/// The lease that the source issues next, and whether its durations are drawn.
#[derive(Copy, Clone, Debug)]
pub(super) struct Next {
    pub(super) lease: Lease,
    pub(super) modelled: bool,
}

/// The source's prompts: those to lease again, and the place in the dataset.
#[derive(Debug)]
pub(super) struct Source<'a> {
    question: Question<'a>,
    retries: VecDeque<Lease>,
    cursor: u64,
    /// Since when only a lack of slots keeps leases back.
    clear_since: u64,
}

impl<'a> Source<'a> {
    pub(super) fn new(question: Question<'a>, clear_since: u64) -> Self {
        Self { question, retries: VecDeque::new(), cursor: 0, clear_since }
    }

    pub(super) fn has_prompt(&self) -> bool {
        !self.retries.is_empty() || self.cursor < self.question.recording.positions
    }

    /// Returns the next lease without issuing it.
    pub(super) fn next(&self) -> Option<Next> {
        let recording = self.question.recording;
        let mut lease = match self.retries.front() {
            Some(retry) => *retry,
            None if self.cursor < recording.positions => {
                let spec = recording.fresh.get(self.cursor as usize).copied().unwrap_or(NONE);
                Lease { spec, position: self.cursor, attempt: 0, since: 0, lost: None }
            }
            None => return None,
        };
        let modelled = lease.spec == NONE;
        if modelled {
            lease.spec = self.question.drawn_group(lease.position, lease.attempt);
        }
        Some(Next { lease, modelled })
    }

    /// Removes the next lease, which is now issued.
    pub(super) fn advance(&mut self) {
        if self.retries.pop_front().is_none() {
            self.cursor += 1;
        }
    }

    /// Queues the prompt of an excluded group for its next attempt.
    pub(super) fn retry(&mut self, group: &Group, since: u64) {
        let (position, attempt) = (group.position, group.attempt + 1);
        let spec = self.question.recording.recorded_attempt(position, attempt);
        self.retries.push_back(Lease { spec, position, attempt, since, lost: None });
    }

    /// Queues the leases of groups whose generation a restart lost. All leases in the queue can go out at once.
    pub(super) fn restart<'b>(&mut self, lost: impl Iterator<Item = &'b Group>, clear_since: u64) {
        self.retries.extend(lost.map(|group| {
            let recorded = self.question.spec(group.spec);
            let again = if recorded.cut { recorded.again } else { group.spec };
            let spec = if group.modelled { NONE } else { again };
            let lost = Lost { place: group.place, leased: group.leased, reissues: group.reissues };
            Lease { spec, position: group.position, attempt: group.attempt, since: 0, lost: Some(lost) }
        }));
        self.retries.iter_mut().for_each(|retry| retry.since = 0);
        // Retries go out before lost leases, whenever those were lost. Lost leases go out in the order in which they
        // were first issued, however often they were lost since.
        self.retries.make_contiguous().sort_by_key(|retry| retry.lost.map(|lost| lost.place));
        self.clear_since = clear_since;
    }

    /// Notes that from `now` on only a lack of slots keeps leases back.
    pub(super) fn clear(&mut self, now: u64) {
        self.clear_since = now;
    }

    pub(super) fn clear_since(&self) -> u64 {
        self.clear_since
    }
}
