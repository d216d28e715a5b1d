//! Leases: retries first, then fresh prompts in the dataset's order.

use anabranch_core::MAX_REISSUES;

use super::{Action, Group, Learner, Lost, NONE, Publication, Retry, Simulation};
use crate::whatif::draw::{Purpose, draw};
use crate::whatif::prediction::Sink;
use crate::whatif::recording::Verdict;

/// What the source would lease next.
struct Next {
    lease: Retry,
    modelled: bool,
}

impl<S: Sink> Simulation<'_, S> {
    /// Whether the source has a prompt.
    pub(super) fn has_prompt(&self) -> bool {
        !self.retries.is_empty() || self.cursor < self.recording.positions
    }

    fn next(&self) -> Option<Next> {
        let mut lease = match self.retries.front() {
            Some(retry) => *retry,
            None if self.cursor < self.recording.positions => {
                let spec = self.recording.fresh.get(self.cursor as usize).copied().unwrap_or(NONE);
                Retry { spec, position: self.cursor, attempt: 0, since: 0, lost: None }
            }
            None => return None,
        };
        let modelled = lease.spec == NONE;
        if modelled {
            let drawn = if lease.attempt > 0 { &self.recording.unfiltered } else { &self.recording.whole };
            let place = draw(self.seed, Purpose::Group, lease.position, u64::from(lease.attempt), drawn.len());
            lease.spec = drawn[place];
        }
        Some(Next { lease, modelled })
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
            let (lease, spec) = (&next.lease, &self.recording.specs[next.lease.spec as usize]);
            if let Some(lost) = lease.lost.filter(|lost| lost.reissues == MAX_REISSUES) {
                self.give_up(&next, lost);
                continue;
            }
            let freed = self.slots[self.settings.slots_of_group() - 1];
            let due = freed.max(self.clear_since).max(lease.since) + spec.lease;
            if due > self.now {
                if due != self.next_lease {
                    self.next_lease = due;
                    self.schedule(due, 0, spec.key, Action::Lease);
                }
                return;
            }
            self.issue(&next);
        }
    }

    /// Takes the next lease from the source; its group has generated nothing.
    fn take(&mut self, &Next { lease, modelled }: &Next) -> u32 {
        if self.retries.pop_front().is_none() {
            self.cursor += 1;
        }
        let place = lease.lost.map_or_else(|| self.next_place(), |lost| lost.place);
        let group = Group {
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
        if let Some(index) = self.vacant.pop() {
            self.alive[index as usize] = group;
            index
        } else {
            self.alive.push(group);
            self.alive.len() as u32 - 1
        }
    }

    /// A lease that was lost too often is not issued again: it is settled as aborted.
    fn give_up(&mut self, next: &Next, lost: Lost) {
        let index = self.take(next);
        let group = &mut self.alive[index as usize];
        (group.leased, group.completed) = (lost.leased, self.now);
        self.exclude(index, Verdict::Aborted.name(), None);
    }

    fn issue(&mut self, next: &Next) {
        let index = self.take(next);
        self.slots.drain(..self.settings.slots_of_group());
        (self.working, self.upstream) = (self.working + 1, self.upstream + 1);
        self.outcome.retries += u64::from(next.lease.attempt > 0 && next.lease.lost.is_none());
        let closed = matches!(self.publication, Publication::Draining | Publication::Lingering)
            || (self.stands_still() && self.mode_drains());
        if closed { self.entering.push(index) } else { self.begin(index) }
    }

    /// The group's samples are submitted to the engines, and continue if generation does.
    pub(super) fn begin(&mut self, index: u32) {
        let (start, version) = (self.generated, self.version());
        let group = &mut self.alive[index as usize];
        let spec = &self.recording.specs[group.spec as usize];
        group.start = start;
        group.tokens = spec.tokens;
        group.first = start.saturating_add(spec.first);
        // What begins while generation stands still goes on under the version that is being installed.
        group.floor = version + u64::from(self.publication == Publication::Still);
        self.sampling += self.settings.samples;
        self.push_end(index);
    }
}
