//! A what-if question: a recorded run, other settings, and the seed that chooses durations for what was not recorded.

use super::groups::Group;
use crate::whatif::draw::{Purpose, draw};
use crate::whatif::recording::{NONE, PublicationCost, Recording, Spec, StepCost, Verdict};
use crate::whatif::{Settings, WhatIfError};

/// A recorded run, the settings to simulate, and a seed.
#[derive(Copy, Clone, Debug)]
pub(super) struct Question<'a> {
    pub(super) recording: &'a Recording,
    pub(super) settings: &'a Settings,
    pub(super) seed: u64,
}

impl<'a> Question<'a> {
    pub(super) fn new(recording: &'a Recording, settings: &'a Settings, seed: u64) -> Result<Self, WhatIfError> {
        settings.check()?;
        let (expected, found) = (recording.settings.samples, settings.samples);
        if expected != found {
            let message = format!("expected {expected} samples a group, as in the log, found {found}");
            return Err(WhatIfError::Argument { argument: "samples", message });
        }
        Ok(Self { recording, settings, seed })
    }

    /// Returns the recorded lease of this index, with its durations.
    pub(super) fn spec(self, index: u32) -> &'a Spec {
        &self.recording.specs[index as usize]
    }

    /// Draws the recorded lease that gives its durations to an attempt that the log does not have.
    pub(super) fn drawn_group(self, position: u64, attempt: u32) -> u32 {
        let recorded = if attempt > 0 { &self.recording.unfiltered } else { &self.recording.whole };
        recorded[draw(self.seed, Purpose::Group, position, u64::from(attempt), recorded.len())]
    }

    /// Draws the recorded lease that gives its durations to the rest of a group whose generation the log shows cut off.
    pub(super) fn drawn_rest(self, position: u64, attempt: u32) -> u32 {
        let whole = &self.recording.whole;
        whole[draw(self.seed, Purpose::Rest, position, u64::from(attempt), whole.len())]
    }

    /// Returns what the entry checks and filters say of the group.
    pub(super) fn verdict(self, group: &Group) -> Verdict {
        match group {
            _ if group.aborted => Verdict::Aborted,
            _ if group.rest != NONE => self.spec(group.rest).verdict,
            _ => self.spec(group.spec).verdict,
        }
    }

    /// Returns the durations of training step `number`, and whether they were recorded.
    pub(super) fn step(self, number: u64) -> (StepCost, bool) {
        let steps = &self.recording.steps;
        let recorded = steps.get(number as usize - 1).copied();
        if let Some(cost) = recorded.filter(|cost| !cost.retrained) {
            return (cost, true);
        }
        let place = draw(self.seed, Purpose::Step, number, 0, steps.len());
        // A step that was trained again from the log tells no duration.
        let told = steps.iter().cycle().skip(place).take(steps.len()).find(|cost| !cost.retrained);
        // A step that the end of its session cut off took at least the time until then.
        let train = told.map_or(0, |cost| cost.train).max(recorded.map_or(0, |cost| cost.train));
        // A checkpoint and the learner's loop belong to their step, not to the work of a step.
        let drawn = StepCost { key: u64::MAX, checkpoint: 0, train, ..told.copied().unwrap_or_default() };
        (recorded.map_or(drawn, |cost| StepCost { train, ..cost }), false)
    }

    /// Returns how long the learner's loop takes to ask for groups after `made` training steps.
    pub(super) fn poll(self, made: u64) -> u64 {
        let after_last = made == self.recording.steps.len() as u64;
        if after_last { self.recording.last_poll } else { self.step(made + 1).0.poll }
    }

    /// Returns the durations of the publication after training step `number`, and whether they were recorded.
    pub(super) fn publication(self, number: u64) -> (PublicationCost, bool) {
        let all = &self.recording.publications;
        if let Ok(index) = all.binary_search_by_key(&number, |cost| cost.step) {
            return (all[index], true);
        }
        // The first publication is not between two steps. It is drawn only if there is no other.
        let first = usize::from(all.len() > 1);
        let drawn = all[first + draw(self.seed, Purpose::Publication, number, 0, all.len() - first)];
        (PublicationCost { key: u64::MAX, ..drawn }, false)
    }

    pub(super) fn publishes_after(self, number: u64) -> bool {
        match self.settings.update_interval {
            Some(interval) => number.is_multiple_of(interval),
            None => self.recording.publications.binary_search_by_key(&number, |cost| cost.step).is_ok(),
        }
    }
}
