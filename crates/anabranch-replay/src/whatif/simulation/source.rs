//! Leases: retries first, then fresh prompts in the dataset's order.

use super::{Action, Group, Learner, NONE, Publication, Retry, Simulation};
use crate::whatif::draw::{Purpose, draw};
use crate::whatif::prediction::Sink;

/// What the source would lease next.
struct Next {
    spec: u32,
    modelled: bool,
    position: u64,
    attempt: u32,
    since: u64,
    again: bool,
}

impl<S: Sink> Simulation<'_, S> {
    /// Whether the source has a prompt.
    pub(super) fn has_prompt(&self) -> bool {
        !self.retries.is_empty() || self.cursor < self.recording.positions
    }

    fn next(&self) -> Option<Next> {
        let (recorded, position, attempt, since, again) = match self.retries.front() {
            Some(&Retry { spec, position, attempt, since, again }) => (spec, position, attempt, since, again),
            None if self.cursor < self.recording.positions => {
                let recorded = self.recording.fresh.get(self.cursor as usize);
                (recorded.copied().unwrap_or(NONE), self.cursor, 0, 0, false)
            }
            None => return None,
        };
        let modelled = recorded == NONE;
        let spec = if modelled {
            let drawn = if attempt > 0 { &self.recording.unfiltered } else { &self.recording.whole };
            drawn[draw(self.seed, Purpose::Group, position, u64::from(attempt), drawn.len())]
        } else {
            recorded
        };
        Some(Next { spec, modelled, position, attempt, since, again })
    }

    /// Whether anything but a lack of prompts keeps leases back.
    fn may_lease(&self) -> bool {
        let room = match self.settings.capacity {
            Some(_) => self.waiting.is_empty(),
            None => {
                self.learner == Learner::Asks
                    && self.upstream + self.buffer.len() + self.held.len() < self.settings.batch
            }
        };
        room && self.slots.len() >= self.settings.slots_of_group() && self.working < self.settings.working_bound()
    }

    /// Leases what may be leased now.
    pub(super) fn lease(&mut self) {
        while self.may_lease() {
            let Some(next) = self.next() else { return };
            let freed = self.slots[self.settings.slots_of_group() - 1];
            let due = freed.max(self.clear_since).max(next.since) + self.recording.specs[next.spec as usize].lease;
            if due > self.now {
                if due != self.next_lease {
                    self.next_lease = due;
                    self.schedule(due, 0, self.recording.specs[next.spec as usize].key, Action::Lease);
                }
                return;
            }
            self.issue(&next);
        }
    }

    fn issue(&mut self, next: &Next) {
        if self.retries.pop_front().is_none() {
            self.cursor += 1;
        }
        self.slots.drain(..self.settings.slots_of_group());
        (self.working, self.upstream) = (self.working + 1, self.upstream + 1);
        self.outcome.retries += u64::from(next.attempt > 0 && !next.again);
        let place = self.next_place();
        let group = Group {
            spec: next.spec,
            rest: NONE,
            attempt: next.attempt,
            position: next.position,
            modelled: next.modelled,
            aborted: false,
            ended: 0,
            start: 0,
            first: u64::MAX,
            floor: 0,
            oldest: None,
            tokens: self.recording.specs[next.spec as usize].tokens,
            leased: self.now,
            completed: u64::MAX,
            arrived: 0,
            admitted: None,
            dequeued: None,
            gap: 0,
            publications: 0,
            place,
            ready: 0,
        };
        let index = if let Some(index) = self.vacant.pop() {
            self.alive[index as usize] = group;
            index
        } else {
            self.alive.push(group);
            self.alive.len() as u32 - 1
        };
        let closed = self.publication == Publication::Draining || (self.stands_still() && self.mode_drains());
        if closed { self.entering.push(index) } else { self.begin(index) }
    }

    /// The group's samples are submitted to the engines, and go on where generation does.
    pub(super) fn begin(&mut self, index: u32) {
        let (start, version) = (self.generated, self.version());
        let group = &mut self.alive[index as usize];
        let spec = &self.recording.specs[group.spec as usize];
        group.start = start;
        group.first = start.saturating_add(spec.first);
        // What begins while generation stands still goes on under the version that is being installed.
        group.floor = version + u64::from(self.publication == Publication::Still);
        self.sampling += self.settings.samples;
        self.push_end(index);
    }
}
