//! From a sample's end to the buffer.

use std::cmp::Reverse;

use super::{Action, Fate, NONE, Publication, Retry, Simulation};
use crate::whatif::draw::{Purpose, draw};
use crate::whatif::prediction::Sink;
use crate::whatif::recording::Verdict;

impl<S: Sink> Simulation<'_, S> {
    /// Waits for the end of the group's next sample.
    pub(super) fn push_end(&mut self, index: u32) {
        let group = &self.alive[index as usize];
        let at = group.start + self.recording.ends(group.spec)[group.ended as usize];
        let last = group.ended as usize + 1 == self.settings.samples;
        let spec = &self.recording.specs[group.spec as usize];
        let key = if last || spec.cut { spec.key } else { 0 };
        self.ends.push(Reverse((at, key, index)));
    }

    /// The next sample of the group ends.
    pub(super) fn sample_ended(&mut self, index: u32) {
        self.ends.pop();
        let group = &mut self.alive[index as usize];
        let spec = &self.recording.specs[group.spec as usize];
        let last = group.ended as usize + 1 == self.settings.samples;
        if last && spec.cut && group.rest == NONE && !group.aborted {
            return self.go_on(index);
        }
        group.ended += 1;
        self.sampling -= 1;
        if last || self.settings.slot_per_sample {
            self.slots.push_back(self.now);
        }
        if last {
            self.generated(index);
            self.lease();
        } else {
            self.push_end(index);
            if self.slots.len() >= self.settings.slots_of_group() {
                self.lease();
            }
        }
        if self.publication == Publication::Draining && self.sampling == 0 {
            self.drained();
        }
    }

    /// The log shows the generation cut off here: the rest is drawn.
    fn go_on(&mut self, index: u32) {
        let group = &mut self.alive[index as usize];
        let whole = &self.recording.whole;
        let rest = whole[draw(self.seed, Purpose::Rest, group.position, u64::from(group.attempt), whole.len())];
        group.rest = rest;
        let drawn = &self.recording.specs[rest as usize];
        if self.recording.specs[group.spec as usize].first == u64::MAX {
            group.first = self.generated.saturating_add(drawn.first);
        }
        group.tokens += drawn.tokens;
        self.ends.push(Reverse((self.generated + self.recording.length(rest), u64::MAX, index)));
    }

    /// The group's last sample has ended.
    fn generated(&mut self, index: u32) {
        let spec = &self.recording.specs[self.alive[index as usize].spec as usize];
        self.after(spec.completion, spec.key, Action::Completed(index));
    }

    /// All samples have their status and reward.
    pub(super) fn completed(&mut self, index: u32) {
        let (oldest, place) = (self.oldest(index), self.next_place());
        let now = self.now;
        let group = &mut self.alive[index as usize];
        group.completed = now;
        group.place = place;
        // Where the log shows it aborted too, nothing of it was drawn.
        group.modelled |= group.rest != NONE;
        group.oldest = oldest;
        let (modelled, tokens) = (group.modelled, group.tokens);
        let spec = &self.recording.specs[group.spec as usize];
        self.outcome.modelled.groups.add(modelled, 1);
        self.outcome.modelled.tokens.add(modelled, tokens);
        if self.verdict(index) != Verdict::Passed {
            return self.after(spec.arrival, spec.key, Action::Arrived(index));
        }
        // Records become durable in their order, so that no group overtakes another on its way to the buffer.
        self.arrives_from = self.arrives_from.max(now + spec.arrival);
        if self.arrives_from == now && self.arriving == 0 {
            return self.arrived(index);
        }
        self.arriving += 1;
        self.schedule(self.arrives_from, 0, spec.key, Action::Durable(index));
    }

    /// The version that was installed when the group's first token was sampled.
    fn oldest(&self, index: u32) -> Option<u64> {
        let group = &self.alive[index as usize];
        if group.first == u64::MAX || (group.aborted && group.first > self.generated) {
            return None;
        }
        let mut version = self.version();
        while version > group.floor && self.versions[version as usize].0 >= group.first {
            version -= 1;
        }
        Some(version)
    }

    fn verdict(&self, index: u32) -> Verdict {
        let group = &self.alive[index as usize];
        match group {
            _ if group.aborted => Verdict::Aborted,
            _ if group.rest != NONE => self.recording.specs[group.rest as usize].verdict,
            _ => self.recording.specs[group.spec as usize].verdict,
        }
    }

    /// The group is at the entry checks, and then before the buffer or batch.
    pub(super) fn arrived(&mut self, index: u32) {
        if self.working == self.settings.working_bound() {
            self.clear_since = self.now;
        }
        self.working -= 1;
        self.alive[index as usize].arrived = self.now;
        let verdict = self.verdict(index);
        if verdict != Verdict::Passed {
            self.upstream -= 1;
            self.exclude(index, verdict.name(), None);
        } else if self.settings.capacity.is_some() {
            self.waiting.push_back(index);
            self.admit();
        } else {
            self.upstream -= 1;
            let oldest = self.alive[index as usize].oldest.unwrap_or_default();
            self.buffer.push(index, oldest);
            self.ask();
        }
        if self.arriving == 0 {
            self.lease();
        } else {
            // What became durable at the same time comes before a lease.
            self.schedule(self.now, self.phase, u64::MAX, Action::Lease);
        }
    }

    /// The buffer's task: admits what there is room for, then leases.
    pub(super) fn feed(&mut self) {
        self.feed_due = false;
        self.admit();
        self.lease();
    }

    /// Lets the buffer's task run when the learner's pauses.
    pub(super) fn wake_feeder(&mut self) {
        if self.settings.capacity.is_some() && !self.feed_due {
            self.feed_due = true;
            self.schedule(self.now, self.phase + 1, 0, Action::Feed);
        }
    }

    fn admit(&mut self) {
        let Some(capacity) = self.settings.capacity else { return };
        let waited = self.waiting.front().is_some_and(|&first| self.alive[first as usize].arrived < self.now);
        while let Some(&index) = self.waiting.front()
            && self.buffer.len() + self.promised < capacity
        {
            self.waiting.pop_front();
            let group = &self.alive[index as usize];
            let spec = &self.recording.specs[group.spec as usize];
            let delay = if group.arrived < self.now { spec.room } else { 0 };
            self.promised += 1;
            self.after(delay, spec.key, Action::Admitted(index));
        }
        if waited && self.waiting.is_empty() {
            self.clear_since = self.now;
        }
    }

    /// The group enters the buffer.
    pub(super) fn admitted(&mut self, index: u32) {
        self.upstream -= 1;
        let (now, place) = (self.now, self.next_place());
        let group = &mut self.alive[index as usize];
        if group.admitted.is_none() {
            (group.admitted, group.place) = (Some(now), place);
        }
        group.ready = now;
        let oldest = group.oldest.unwrap_or_default();
        self.buffer.push(index, oldest);
        self.wake_learner();
    }

    /// Throws the group away, and queues its prompt again where the settings say so.
    pub(super) fn exclude(&mut self, index: u32, reason: &'static str, gap: Option<u64>) {
        let group = self.alive[index as usize];
        let retries = matches!(reason, "aborted" | "stale");
        let retried = retries && self.settings.max_attempts.is_some_and(|max| group.attempt + 1 < max);
        if retried {
            let recorded = self.recording.recorded_attempt(group.position, group.attempt + 1);
            let (position, attempt) = (group.position, group.attempt + 1);
            self.retries.push_back(Retry { spec: recorded, position, attempt, since: self.now, lost: None });
        }
        self.outcome.wasted.entry(reason).or_default().add(group.tokens);
        if reason == "stale" {
            self.outcome.stale_gap.add(gap);
        }
        self.settle(index, Fate::Excluded { reason, gap, retried });
    }

    /// Ends all samples that run: a publication aborts them. Those that the log shows aborted within `window` end as there.
    pub(super) fn abort_all(&mut self, window: u64) {
        let mut groups: Vec<u32> = Vec::new();
        for Reverse((at, key, index)) in std::mem::take(&mut self.ends) {
            let group = &mut self.alive[index as usize];
            let spec = &self.recording.specs[group.spec as usize];
            group.aborted = true;
            let shown = spec.cut
                && group.rest == NONE
                && group.start + self.recording.length(group.spec) <= self.generated + window;
            if shown {
                self.ends.push(Reverse((at, key, index)));
            } else {
                groups.push(index);
            }
        }
        groups.sort_unstable_by_key(|&group| {
            let group = &self.alive[group as usize];
            (self.recording.specs[group.spec as usize].key, group.leased, group.position)
        });
        for index in groups {
            let group = &mut self.alive[index as usize];
            let left = self.settings.samples - group.ended as usize;
            let whole = self.recording.length(group.spec).max(1);
            let spent = (self.generated - group.start).min(whole);
            if group.rest == NONE && !self.recording.specs[group.spec as usize].cut {
                group.tokens = (u128::from(group.tokens) * u128::from(spent) / u128::from(whole)) as u64;
            }
            self.sampling -= left;
            let freed = if self.settings.slot_per_sample { left } else { 1 };
            self.slots.extend(std::iter::repeat_n(self.now, freed));
            self.generated(index);
        }
        self.lease();
    }
}
