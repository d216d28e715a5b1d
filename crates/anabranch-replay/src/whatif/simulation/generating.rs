//! From the submission of a group's samples to the group's completion.

use super::agenda::Action;
use super::pipeline::Pipeline;
use super::weights::Publication;
use crate::whatif::prediction::Sink;
use crate::whatif::recording::{NONE, Verdict};

impl<S: Sink> Pipeline<'_, S> {
    /// Submits the group's samples to the engines. They run once generation does.
    pub(super) fn begin(&mut self, index: u32) {
        let (start, version) = (self.generation.time(), self.weights.version());
        let group = &mut self.groups[index];
        let spec = self.question.spec(group.spec);
        group.start = start;
        group.tokens = spec.tokens;
        group.first = start.saturating_add(spec.first);
        // What begins while generation stands still runs under the version that is being installed.
        group.floor = version + u64::from(self.weights.publication() == Publication::Still);
        self.generation.start_samples(self.question.settings.samples);
        self.push_end(index);
    }

    /// Lets in the groups that were leased while no sample could begin.
    pub(super) fn begin_blocked(&mut self) {
        for index in self.generation.take_blocked() {
            self.begin(index);
        }
    }

    /// Waits for the end of the group's next sample.
    fn push_end(&mut self, index: u32) {
        let group = &self.groups[index];
        let at = group.start + self.question.recording.ends(group.spec)[group.ended as usize];
        let last = group.ended as usize + 1 == self.question.settings.samples;
        let spec = self.question.spec(group.spec);
        let key = if last || spec.cut { spec.key } else { 0 };
        self.generation.push_end((at, key, index));
    }

    /// The next sample of the group ends.
    pub(super) fn sample_ended(&mut self, index: u32) {
        self.generation.pop_end();
        let settings = self.question.settings;
        let group = &mut self.groups[index];
        let spec = self.question.spec(group.spec);
        let last = group.ended as usize + 1 == settings.samples;
        if last && spec.cut && group.rest == NONE && !group.aborted {
            return self.generate_rest(index);
        }
        group.ended += 1;
        self.generation.end_samples(1);
        if last || settings.slot_per_sample {
            self.generation.free(1, self.agenda.now());
        }
        if last {
            self.generated(index);
            self.lease();
        } else {
            self.push_end(index);
            if self.generation.free_slots() >= settings.slots_of_group() {
                self.lease();
            }
        }
        if self.weights.publication() == Publication::Draining && self.generation.is_idle() {
            self.drained();
        }
    }

    /// The log shows the generation cut off here. The rest is drawn.
    fn generate_rest(&mut self, index: u32) {
        let generated = self.generation.time();
        let group = &mut self.groups[index];
        let rest = self.question.drawn_rest(group.position, group.attempt);
        group.rest = rest;
        let drawn = self.question.spec(rest);
        if self.question.spec(group.spec).first == u64::MAX {
            group.first = generated.saturating_add(drawn.first);
        }
        group.tokens += drawn.tokens;
        self.generation.push_end((generated + self.question.recording.length(rest), u64::MAX, index));
    }

    /// The group's last sample has ended.
    fn generated(&mut self, index: u32) {
        let spec = self.question.spec(self.groups[index].spec);
        self.after(spec.completion, spec.key, Action::Completed(index));
    }

    /// All samples of the group have their status and reward.
    pub(super) fn completed(&mut self, index: u32) {
        let (oldest, place) = (self.oldest(index), self.groups.next_place());
        let now = self.agenda.now();
        let group = &mut self.groups[index];
        group.completed = now;
        group.place = place;
        // If the log shows the group aborted too, nothing of it was drawn.
        group.modelled |= group.rest != NONE;
        group.oldest = oldest;
        self.tally.completed(group.modelled, group.tokens);
        let spec = self.question.spec(group.spec);
        if self.question.verdict(group) != Verdict::Passed {
            return self.after(spec.arrival, spec.key, Action::Arrived(index));
        }
        match self.upstream.record(now, now + spec.arrival) {
            None => self.arrived(index),
            Some(durable) => self.agenda.schedule(durable, 0, spec.key, Action::Durable(index)),
        }
    }

    /// Returns the version that was installed when the group's first token was sampled.
    fn oldest(&self, index: u32) -> Option<u64> {
        let group = &self.groups[index];
        if group.first == u64::MAX || (group.aborted && group.first > self.generation.time()) {
            return None;
        }
        Some(self.weights.at(group.first, group.floor))
    }

    /// Ends all samples that run, because a publication aborts them. Samples that the log shows aborted within `window`
    /// end when the log says.
    pub(super) fn abort_all(&mut self, window: u64) {
        let (question, generated) = (self.question, self.generation.time());
        let mut groups: Vec<u32> = Vec::new();
        for end in self.generation.take_ends() {
            let group = &mut self.groups[end.2];
            group.aborted = true;
            let shown = question.spec(group.spec).cut
                && group.rest == NONE
                && group.start + question.recording.length(group.spec) <= generated + window;
            if shown {
                self.generation.push_end(end);
            } else {
                groups.push(end.2);
            }
        }
        groups.sort_unstable_by_key(|&group| {
            let group = &self.groups[group];
            (question.spec(group.spec).key, group.leased, group.position)
        });
        for index in groups {
            let group = &mut self.groups[index];
            let left = question.settings.samples - group.ended as usize;
            let whole = question.recording.length(group.spec).max(1);
            let spent = (generated - group.start).min(whole);
            if group.rest == NONE && !question.spec(group.spec).cut {
                group.tokens = (u128::from(group.tokens) * u128::from(spent) / u128::from(whole)) as u64;
            }
            self.generation.end_samples(left);
            let freed = if question.settings.slot_per_sample { left } else { 1 };
            self.generation.free(freed, self.agenda.now());
            self.generated(index);
        }
        self.lease();
    }
}
