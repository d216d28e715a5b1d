//! The learner: asks for groups, takes batches, trains and publishes.

use anabranch_core::WeightSync;

use super::{Action, Fate, Learner, Publication, Simulation};
use crate::whatif::draw::{Purpose, draw};
use crate::whatif::pauses::waits;
use crate::whatif::prediction::Sink;
use crate::whatif::recording::{PublicationCost, StepCost};

impl<S: Sink> Simulation<'_, S> {
    /// What training step `number` takes, and whether that was recorded.
    pub(super) fn step_cost(&self, number: u64) -> (StepCost, bool) {
        let steps = &self.recording.steps;
        let recorded = steps.get(number as usize - 1).copied();
        if let Some(cost) = recorded.filter(|cost| !cost.retrained) {
            return (cost, true);
        }
        let place = draw(self.seed, Purpose::Step, number, 0, steps.len());
        // What was trained again from the log tells no duration.
        let told = steps.iter().cycle().skip(place).take(steps.len()).find(|cost| !cost.retrained);
        // It was not over when its session ended.
        let train = told.map_or(0, |cost| cost.train).max(recorded.map_or(0, |cost| cost.train));
        // A checkpoint and the learner's loop belong to their step, not to the work of a step.
        let drawn = StepCost { key: u64::MAX, checkpoint: 0, train, ..told.copied().unwrap_or_default() };
        (recorded.map_or(drawn, |cost| StepCost { train, ..cost }), false)
    }

    /// What the publication after training step `number` takes, and whether that was recorded.
    pub(super) fn publication_cost(&self, number: u64) -> (PublicationCost, bool) {
        let all = &self.recording.publications;
        if let Ok(index) = all.binary_search_by_key(&number, |cost| cost.step) {
            return (all[index], true);
        }
        // The first is none between steps: it stands in only where there is no other.
        let first = usize::from(all.len() > 1);
        let drawn = all[first + draw(self.seed, Purpose::Publication, number, 0, all.len() - first)];
        (PublicationCost { key: u64::MAX, ..drawn }, false)
    }

    pub(super) fn publishes_after(&self, number: u64) -> bool {
        match self.settings.update_interval {
            Some(interval) => number.is_multiple_of(interval),
            None => self.recording.publications.binary_search_by_key(&number, |cost| cost.step).is_ok(),
        }
    }

    fn mode(&self) -> WeightSync {
        self.settings.mode.unwrap_or(self.recording.sessions[self.session].mode)
    }

    pub(super) fn mode_drains(&self) -> bool {
        waits(self.mode())
    }

    /// The learner can take another batch.
    pub(super) fn learner_free(&mut self) {
        (self.learner, self.free_since, self.last_departure) = (Learner::Asks, self.now, 0);
        if self.settings.steps.is_some_and(|steps| self.outcome.steps >= steps) {
            self.over = true;
            return;
        }
        let after_last = self.outcome.steps == self.recording.steps.len() as u64;
        let poll = if after_last { self.recording.last_poll } else { self.step_cost(self.outcome.steps + 1).0.poll };
        self.asks_from = self.now + poll;
        if self.settings.capacity.is_none() && self.outcome.steps > 0 {
            self.clear_since = self.now;
        }
        self.ask();
        if self.settings.capacity.is_none() {
            self.lease();
        }
    }

    /// Lets the learner's task run when the buffer's pauses.
    pub(super) fn wake_learner(&mut self) {
        if self.learner == Learner::Asks {
            self.ask_at(self.now, self.phase + 1);
        }
    }

    fn ask_at(&mut self, at: u64, phase: u32) {
        if self.ask_due.is_none_or(|due| at < due) {
            self.ask_due = Some(at);
            self.schedule(at, phase, 0, Action::Ask);
        }
    }

    /// Takes groups out of the buffer until the batch is full or nothing is there.
    pub(super) fn ask(&mut self) {
        if self.learner != Learner::Asks {
            return;
        }
        while self.held.len() < self.settings.batch {
            let Some(index) = self.buffer.first() else { return };
            let group = &self.alive[index as usize];
            let ready = group.ready.max(self.asks_from).max(self.last_departure);
            let due = ready + self.recording.specs[group.spec as usize].dequeue;
            if due > self.now {
                return self.ask_at(due, 0);
            }
            self.buffer.pop();
            self.last_departure = self.now;
            self.leave(index);
        }
        self.learner = Learner::Takes;
        let take = self.step_cost(self.outcome.steps + 1).0.take;
        self.after(take, u64::MAX, Action::Taken);
    }

    /// A group leaves the buffer and is judged.
    fn leave(&mut self, index: u32) {
        let (now, installed) = (self.now, self.versions[self.version() as usize]);
        let buffered = self.settings.capacity.is_some();
        let group = &mut self.alive[index as usize];
        group.dequeued = buffered.then_some(now);
        let spec = &self.recording.specs[group.spec as usize];
        let gap = group.oldest.filter(|_| spec.known).map(|oldest| installed.2 - self.versions[oldest as usize].2);
        let stale = self.settings.max_staleness.is_some_and(|limit| gap.is_some_and(|gap| gap > limit));
        let unknown = self.settings.max_staleness.is_some() && !spec.known && !self.settings.allow_unknown;
        if stale || unknown {
            group.gap = gap.unwrap_or_default();
            self.after(spec.exit, spec.key, Action::Excluded(index));
        } else {
            self.held.push(index);
        }
        self.wake_feeder();
    }

    /// A group that is not fresh enough is thrown away.
    pub(super) fn excluded_stale(&mut self, index: u32) {
        let group = &self.alive[index as usize];
        let known = self.recording.specs[group.spec as usize].known;
        let (reason, gap) = if known { ("stale", Some(group.gap)) } else { ("unknown_version", None) };
        self.exclude(index, reason, gap);
        self.wake_feeder();
    }

    /// Nothing more comes: the last batch, where it is emitted; whether it was.
    pub(super) fn emit_partial(&mut self) -> bool {
        let emit = self.settings.emit_partial && self.learner == Learner::Asks && !self.held.is_empty();
        if emit {
            self.taken();
        }
        emit
    }

    /// The batch is taken.
    pub(super) fn taken(&mut self) {
        let step = self.outcome.steps + 1;
        self.learner = Learner::Works;
        self.sink.taken(step, self.now);
        self.outcome.learner_wait.add(self.now - self.free_since);
        self.tally_batch();
        for index in std::mem::take(&mut self.held) {
            let group = &self.alive[index as usize];
            let known = self.recording.specs[group.spec as usize].known;
            let oldest = group.oldest.filter(|_| known);
            let gap = oldest.map(|oldest| self.gap(oldest));
            let lag = oldest.map(|oldest| self.outcome.steps - self.versions[oldest as usize].1);
            self.outcome.consumed.add(group.tokens);
            self.outcome.gap.add(gap);
            self.outcome.step_lag.add(lag);
            self.settle(index, Fate::Consumed { step, gap });
        }
        self.training = true;
        let (cost, _) = self.step_cost(step);
        // The learner works on a thread of its own: the buffer's task runs meanwhile, however short the step.
        let phase = if cost.train == 0 { self.phase + 2 } else { 0 };
        self.schedule(self.now + cost.train, phase, cost.key, Action::Stepped);
    }

    /// The step is made: its checkpoint follows, and its publication.
    pub(super) fn stepped(&mut self) {
        self.outcome.steps += 1;
        self.training = false;
        let number = self.outcome.steps;
        self.sink.stepped(self.now);
        let (cost, recorded) = self.step_cost(number);
        self.outcome.modelled.steps.add(!recorded, 1);
        if self.publishes_after(number) {
            let (publication, recorded) = self.publication_cost(number);
            self.outcome.modelled.publications.add(!recorded, 1);
            // The weights are read on the learner's thread: what ends at the same time may come before.
            let due = self.now + cost.checkpoint + publication.begin;
            self.schedule(due, if due > self.now { 0 } else { self.phase }, publication.key, Action::Publishing);
        } else {
            self.after(cost.checkpoint, cost.key, Action::Free);
        }
    }

    pub(super) fn publishing(&mut self) {
        let (cost, _) = self.publication_cost(self.outcome.steps);
        self.publication = Publication::Begun;
        self.after(cost.ack, cost.key, Action::Paused);
    }

    /// The engines are asked to pause.
    pub(super) fn paused(&mut self) {
        let (cost, _) = self.publication_cost(self.outcome.steps);
        if !self.mode_drains() {
            self.publication = Publication::Lingering;
            // The end of a sample tells how long: that comes first.
            return self.after(cost.linger, u64::MAX, Action::Still);
        }
        self.publication = Publication::Draining;
        if self.mode() == WeightSync::Abort {
            self.abort_all(cost.drained);
        }
        if self.sampling == 0 {
            self.drained();
        }
    }

    /// No sample is continued any more.
    pub(super) fn still(&mut self) {
        self.publication = Publication::Still;
        self.enter();
        let (cost, _) = self.publication_cost(self.outcome.steps);
        self.after(cost.quiesce, cost.key, Action::Quiesced);
    }

    /// Lets in what was leased while no sample could begin.
    fn enter(&mut self) {
        for index in std::mem::take(&mut self.entering) {
            self.begin(index);
        }
    }

    /// Nothing runs any more.
    pub(super) fn drained(&mut self) {
        let (cost, _) = self.publication_cost(self.outcome.steps);
        self.after(cost.quiesce, cost.key, Action::Quiesced);
    }

    /// Generation stands still.
    pub(super) fn quiesced(&mut self) {
        self.publication = Publication::Still;
        let (cost, _) = self.publication_cost(self.outcome.steps);
        self.after(cost.install, cost.key, Action::Installed);
    }

    /// The new weights are on the engines.
    pub(super) fn installed(&mut self) {
        self.publication = Publication::Installed;
        let number = self.versions[self.version() as usize].2 + 1;
        self.versions.push((self.generated, self.outcome.steps, number));
        self.outcome.publications += 1;
        self.sink.published(self.now);
        self.tally_publication();
        let (cost, _) = self.publication_cost(self.outcome.steps);
        self.after(cost.resume, cost.key, Action::Resumed);
    }

    /// Generation continues.
    pub(super) fn resumed(&mut self) {
        self.publication = Publication::None;
        self.enter();
        self.learner_free();
    }
}
