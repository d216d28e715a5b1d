//! A predicted schedule in full: what becomes of each group, and when.

use serde::Serialize;

use super::{Outcome, Recording, Settings, WhatIfError};
use crate::whatif::simulation::simulate;

/// What becomes of a group.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fate {
    /// It was trained on.
    Consumed {
        /// The training step.
        step: u64,
        /// The version gap.
        gap: Option<u64>,
    },
    /// It was excluded.
    Excluded {
        /// The name of the reason.
        reason: &'static str,
        /// The version gap, if it is the reason.
        gap: Option<u64>,
        /// Whether the prompt was queued to be leased again.
        retried: bool,
    },
    /// It was neither when the run ended.
    Left,
}

/// A group of a predicted schedule. Times are in nanoseconds since the session's start.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PredictedGroup {
    /// The position of its prompt in the dataset's order over all epochs.
    pub position: u64,
    /// The attempt at the prompt, from 0.
    pub attempt: u32,
    /// Whether some of its durations are drawn because they were not recorded.
    pub modelled: bool,
    /// When it is leased.
    pub leased_ns: u64,
    /// When it is completed.
    pub completed_ns: Option<u64>,
    /// When it is admitted to the buffer.
    pub admitted_ns: Option<u64>,
    /// When it leaves the buffer.
    pub dequeued_ns: Option<u64>,
    /// When its batch is taken, or when it is excluded.
    pub settled_ns: Option<u64>,
    /// The version that was installed when its first token was sampled; `None` before completion or without a token.
    pub oldest: Option<u64>,
    /// How many publications came after its first token and before its batch.
    pub publications: u64,
    /// What becomes of it.
    pub fate: Fate,
}

/// A training step of a predicted schedule. Times are in nanoseconds since the session's start.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PredictedStep {
    /// The number of the step, from 1.
    pub step: u64,
    /// When its batch is taken.
    pub taken_ns: u64,
    /// When the step is made.
    pub stepped_ns: u64,
    /// When its weights are installed, if they are published.
    pub published_ns: Option<u64>,
}

/// A schedule under some settings, in full.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Prediction {
    /// The totals of the schedule.
    pub outcome: Outcome,
    /// The groups in the order of their settlement. Groups that are not settled come last.
    pub groups: Vec<PredictedGroup>,
    /// The training steps.
    pub steps: Vec<PredictedStep>,
}

/// Receives what a simulation does.
pub(crate) trait Sink {
    /// Whether the simulation counts publications for each group.
    const COUNTS: bool;

    fn group(&mut self, group: PredictedGroup);
    fn taken(&mut self, step: u64, at: u64);
    fn stepped(&mut self, at: u64);
    fn published(&mut self, at: u64);
}

impl Sink for () {
    const COUNTS: bool = false;

    fn group(&mut self, _: PredictedGroup) {}
    fn taken(&mut self, _: u64, _: u64) {}
    fn stepped(&mut self, _: u64) {}
    fn published(&mut self, _: u64) {}
}

/// A sink that keeps all groups and steps.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    groups: Vec<PredictedGroup>,
    steps: Vec<PredictedStep>,
}

impl Sink for Kept {
    const COUNTS: bool = true;

    fn group(&mut self, group: PredictedGroup) {
        self.groups.push(group);
    }

    fn taken(&mut self, step: u64, at: u64) {
        self.steps.push(PredictedStep { step, taken_ns: at, stepped_ns: at, published_ns: None });
    }

    fn stepped(&mut self, at: u64) {
        self.steps.last_mut().into_iter().for_each(|step| step.stepped_ns = at);
    }

    fn published(&mut self, at: u64) {
        self.steps.last_mut().into_iter().for_each(|step| step.published_ns = Some(at));
    }
}

impl Recording {
    /// Predicts the outcome under `settings`. Work that the recorded run never did takes its duration from recorded
    /// work, which `seed` chooses. The same piece of work gets the same duration under all settings.
    ///
    /// # Errors
    /// Returns [`WhatIfError::Argument`] if no pipeline can have these settings.
    pub fn outcome(&self, settings: &Settings, seed: u64) -> Result<Outcome, WhatIfError> {
        Ok(simulate(self, settings, seed, ())?.0)
    }

    /// Predicts the outcome under `settings` as [`outcome`](Self::outcome) does, with every group and step.
    ///
    /// # Errors
    /// Returns [`WhatIfError::Argument`] if no pipeline can have these settings.
    pub fn predict(&self, settings: &Settings, seed: u64) -> Result<Prediction, WhatIfError> {
        let (outcome, Kept { groups, mut steps }) = simulate(self, settings, seed, Kept::default())?;
        steps.truncate(outcome.steps as usize);
        Ok(Prediction { outcome, groups, steps })
    }
}
