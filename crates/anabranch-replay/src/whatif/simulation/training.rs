//! From the buffer through the exit check into a batch, and the training step.

use super::agenda::Action;
use super::pipeline::Pipeline;
use crate::whatif::prediction::{Fate, Sink};

impl<S: Sink> Pipeline<'_, S> {
    /// The learner can take another batch.
    pub(super) fn learner_free(&mut self) {
        let (now, made) = (self.agenda.now(), self.learner.steps());
        let settings = self.question.settings;
        self.learner.become_free(now);
        if settings.steps.is_some_and(|steps| made >= steps) {
            return self.agenda.end();
        }
        self.learner.ask_from(now + self.question.poll(made));
        if settings.capacity.is_none() && made > 0 {
            self.source.clear(now);
        }
        self.ask();
        if settings.capacity.is_none() {
            self.lease();
        }
    }

    /// Lets the learner's task run when the buffer's pauses.
    pub(super) fn wake_learner(&mut self) {
        if self.learner.asks() {
            self.agenda.schedule_ask(self.agenda.now(), self.agenda.phase() + 1);
        }
    }

    /// Takes groups out of the buffer until the batch is full or the buffer is empty.
    pub(super) fn ask(&mut self) {
        if !self.learner.asks() {
            return;
        }
        let now = self.agenda.now();
        while self.learner.held() < self.question.settings.batch {
            let Some(index) = self.buffer.first() else { return };
            let group = &self.groups[index];
            let due = self.learner.can_take_at(group.ready) + self.question.spec(group.spec).dequeue;
            if due > now {
                return self.agenda.schedule_ask(due, 0);
            }
            self.buffer.pop();
            self.learner.departed(now);
            self.leave(index);
        }
        self.learner.begin_taking();
        let take = self.question.step(self.learner.steps() + 1).0.take;
        self.after(take, u64::MAX, Action::Taken);
    }

    /// The group leaves the buffer, and the exit check judges it.
    fn leave(&mut self, index: u32) {
        let settings = self.question.settings;
        let group = &mut self.groups[index];
        group.dequeued = settings.capacity.is_some().then_some(self.agenda.now());
        let spec = self.question.spec(group.spec);
        let gap = group.oldest.filter(|_| spec.known).map(|oldest| self.weights.gap(oldest));
        let stale = settings.max_staleness.is_some_and(|limit| gap.is_some_and(|gap| gap > limit));
        let unknown = settings.max_staleness.is_some() && !spec.known && !settings.allow_unknown;
        if stale || unknown {
            group.gap = gap.unwrap_or_default();
            self.after(spec.exit, spec.key, Action::Excluded(index));
        } else {
            self.learner.hold(index);
        }
        self.wake_feeder();
    }

    /// The exit check excludes a group that is not fresh enough.
    pub(super) fn excluded_stale(&mut self, index: u32) {
        let group = &self.groups[index];
        let known = self.question.spec(group.spec).known;
        let (reason, gap) = if known { ("stale", Some(group.gap)) } else { ("unknown_version", None) };
        self.exclude(index, reason, gap);
        self.wake_feeder();
    }

    /// No more groups come. Emits the last batch if the settings say so, and returns whether it did.
    pub(super) fn emit_partial(&mut self) -> bool {
        let emit = self.question.settings.emit_partial && self.learner.asks() && self.learner.held() > 0;
        if emit {
            self.taken();
        }
        emit
    }

    /// The batch is taken.
    pub(super) fn taken(&mut self) {
        let (now, made) = (self.agenda.now(), self.learner.steps());
        let step = made + 1;
        let (batch, waited) = self.learner.train(now);
        self.tally.batch(step, now, waited);
        for index in batch {
            let group = &self.groups[index];
            let oldest = group.oldest.filter(|_| self.question.spec(group.spec).known);
            let gap = oldest.map(|oldest| self.weights.gap(oldest));
            let lag = oldest.map(|oldest| made - self.weights.step(oldest));
            self.tally.consumed(group.tokens, gap, lag);
            self.settle(index, Fate::Consumed { step, gap });
        }
        let (cost, _) = self.question.step(step);
        // The learner works on a thread of its own: the buffer's task runs meanwhile, however short the step.
        let phase = if cost.train == 0 { self.agenda.phase() + 2 } else { 0 };
        self.agenda.schedule(now + cost.train, phase, cost.key, Action::Stepped);
    }

    /// The step is made. Its checkpoint follows, and its publication.
    pub(super) fn stepped(&mut self) {
        let now = self.agenda.now();
        let number = self.learner.step();
        let (cost, recorded) = self.question.step(number);
        self.tally.step(now, recorded);
        if self.question.publishes_after(number) {
            let (publication, recorded) = self.question.publication(number);
            self.tally.publication_begun(recorded);
            // The weights are read on the learner's thread: what ends at the same time may come before.
            let due = now + cost.checkpoint + publication.begin;
            let phase = if due > now { 0 } else { self.agenda.phase() };
            self.agenda.schedule(due, phase, publication.key, Action::Publishing);
        } else {
            self.after(cost.checkpoint, cost.key, Action::Free);
        }
    }
}
