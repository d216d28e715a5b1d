//! From the source to the engines.

use anabranch_core::MAX_REISSUES;

use super::pipeline::Pipeline;
use super::source::{Lost, Next};
use super::weights::Publication;
use crate::whatif::prediction::Sink;
use crate::whatif::recording::Verdict;

impl<S: Sink> Pipeline<'_, S> {
    /// Returns whether anything but a lack of prompts keeps leases back.
    fn may_lease(&self) -> bool {
        let settings = self.question.settings;
        let room = match settings.capacity {
            Some(_) => self.upstream.first_waiting().is_none(),
            None => {
                self.learner.asks() && self.upstream.groups() + self.buffer.len() + self.learner.held() < settings.batch
            }
        };
        room && self.generation.free_slots() >= settings.slots_of_group()
            && self.upstream.working() < settings.working_bound()
    }

    /// Issues the leases that may be issued now.
    pub(super) fn lease(&mut self) {
        while self.may_lease() {
            let Some(next) = self.source.next() else { return };
            let (lease, spec) = (&next.lease, self.question.spec(next.lease.spec));
            if let Some(lost) = lease.lost.filter(|lost| lost.reissues == MAX_REISSUES) {
                self.give_up(next, lost);
                continue;
            }
            let freed = self.generation.free_since(self.question.settings.slots_of_group());
            let due = freed.max(self.source.clear_since()).max(lease.since) + spec.lease;
            if due > self.agenda.now() {
                return self.agenda.schedule_lease(due, spec.key);
            }
            self.issue(next);
        }
    }

    fn take(&mut self, next: Next) -> u32 {
        self.source.advance();
        self.groups.add(next, self.agenda.now())
    }

    /// A lease that was lost too often is not issued again. It is settled as aborted.
    fn give_up(&mut self, next: Next, lost: Lost) {
        let index = self.take(next);
        let group = &mut self.groups[index];
        (group.leased, group.completed) = (lost.leased, self.agenda.now());
        self.exclude(index, Verdict::Aborted.name(), None);
    }

    fn issue(&mut self, next: Next) {
        let index = self.take(next);
        self.generation.occupy(self.question.settings.slots_of_group());
        self.upstream.enter();
        if next.lease.attempt > 0 && next.lease.lost.is_none() {
            self.tally.retry();
        }
        let closed = matches!(self.weights.publication(), Publication::Draining | Publication::Lingering)
            || (self.weights.stand_still() && self.mode_drains());
        if closed { self.generation.block(index) } else { self.begin(index) }
    }
}
