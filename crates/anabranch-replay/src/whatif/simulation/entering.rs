//! From a group's completion into the buffer, or out of the pipeline.

use super::agenda::Action;
use super::pipeline::Pipeline;
use crate::whatif::prediction::{Fate, Sink};
use crate::whatif::recording::Verdict;

impl<S: Sink> Pipeline<'_, S> {
    /// The group's record is durable.
    pub(super) fn durable(&mut self, index: u32) {
        self.upstream.recorded();
        self.arrived(index);
    }

    /// The group is at the entry checks. If it passes them, it is before the buffer or batch.
    pub(super) fn arrived(&mut self, index: u32) {
        let now = self.agenda.now();
        if self.upstream.working() == self.question.settings.working_bound() {
            self.source.clear(now);
        }
        self.upstream.finish_work();
        let group = &mut self.groups[index];
        group.arrived = now;
        let verdict = self.question.verdict(group);
        if verdict != Verdict::Passed {
            self.upstream.leave();
            self.exclude(index, verdict.name(), None);
        } else if self.question.settings.capacity.is_some() {
            self.upstream.wait(index);
            self.admit();
        } else {
            self.upstream.leave();
            self.buffer.push(index, group.oldest.unwrap_or_default());
            self.ask();
        }
        if self.upstream.is_recording() {
            // What became durable at the same time comes before a lease.
            self.agenda.schedule(self.agenda.now(), self.agenda.phase(), u64::MAX, Action::Lease);
        } else {
            self.lease();
        }
    }

    /// Runs the buffer's task: admits the groups that have room, then leases.
    pub(super) fn feed(&mut self) {
        self.admit();
        self.lease();
    }

    /// Lets the buffer's task run when the learner's pauses.
    pub(super) fn wake_feeder(&mut self) {
        if self.question.settings.capacity.is_some() {
            self.agenda.schedule_feed();
        }
    }

    fn admit(&mut self) {
        let Some(capacity) = self.question.settings.capacity else { return };
        let now = self.agenda.now();
        let waited = self.upstream.first_waiting().is_some_and(|first| self.groups[first].arrived < now);
        while let Some(index) = self.upstream.promise_place(capacity, self.buffer.len()) {
            let group = &self.groups[index];
            let spec = self.question.spec(group.spec);
            let delay = if group.arrived < now { spec.room } else { 0 };
            self.after(delay, spec.key, Action::Admitted(index));
        }
        if waited && self.upstream.first_waiting().is_none() {
            self.source.clear(now);
        }
    }

    /// The group enters the buffer.
    pub(super) fn admitted(&mut self, index: u32) {
        self.upstream.keep_promise();
        self.upstream.leave();
        let (now, place) = (self.agenda.now(), self.groups.next_place());
        let group = &mut self.groups[index];
        if group.admitted.is_none() {
            (group.admitted, group.place) = (Some(now), place);
        }
        group.ready = now;
        self.buffer.push(index, group.oldest.unwrap_or_default());
        self.wake_learner();
    }

    /// Excludes the group, and queues its prompt again if the settings say so.
    pub(super) fn exclude(&mut self, index: u32, reason: &'static str, gap: Option<u64>) {
        let group = &self.groups[index];
        let retries = matches!(reason, "aborted" | "stale");
        let retried = retries && self.question.settings.max_attempts.is_some_and(|max| group.attempt + 1 < max);
        if retried {
            self.source.retry(group, self.agenda.now());
        }
        self.tally.excluded(reason, group.tokens, gap);
        self.settle(index, Fate::Excluded { reason, gap, retried });
    }
}
