//! A simulated schedule in full: what became of each group, and when.

use serde::Serialize;

use super::{Outcome, Recording, Settings, WhatIfError};
use crate::whatif::simulation::simulate;

/// What became of a group.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum Fate {
    /// It was trained on.
    Consumed {
        /// In this training step.
        step: u64,
        /// With this version gap.
        gap: Option<u64>,
    },
    /// It was thrown away.
    Excluded {
        /// The reason's name.
        reason: &'static str,
        /// Its version gap, where that is why.
        gap: Option<u64>,
        /// Whether its prompt was queued to be leased again.
        retried: bool,
    },
    /// It was neither when the run ended.
    Left,
}

/// A group of a simulated schedule. Times are in nanoseconds since the session's start.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PredictedGroup {
    /// Its prompt: the position in the dataset's order over all epochs.
    pub position: u64,
    /// Which attempt at the prompt, from 0.
    pub attempt: u32,
    /// Whether durations of it were drawn, because the log does not tell them.
    pub modelled: bool,
    /// Its lease.
    pub leased_ns: u64,
    /// Its completion.
    pub completed_ns: Option<u64>,
    /// Its admission to the buffer.
    pub admitted_ns: Option<u64>,
    /// Its departure from the buffer.
    pub dequeued_ns: Option<u64>,
    /// Its batch or exclusion.
    pub settled_ns: Option<u64>,
    /// The version that was installed when its first token was sampled; nothing before completion or without a token.
    pub oldest: Option<u64>,
    /// The publications that came after its first token and before its batch, counted as they happened.
    pub publications: u64,
    /// What became of it.
    pub fate: Fate,
}

/// A training step of a simulated schedule. Times are in nanoseconds since the session's start.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PredictedStep {
    /// Which step, from 1.
    pub step: u64,
    /// Its batch.
    pub taken_ns: u64,
    /// The step.
    pub stepped_ns: u64,
    /// The installation of its weights, where they were published.
    pub published_ns: Option<u64>,
}

/// A schedule under some settings, in full.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The totals of the schedule.
    pub outcome: Outcome,
    /// Its groups, in the order of their settlement; those left come last.
    pub groups: Vec<PredictedGroup>,
    /// Its training steps.
    pub steps: Vec<PredictedStep>,
}

/// Who is told what a simulation does.
pub(crate) trait Sink {
    /// Whether publications are counted for each group.
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

/// Keeps everything.
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
    /// What the schedule comes to under `settings`. Work that the recorded run never did takes its duration from what was
    /// recorded, drawn by `seed`; the same piece of work draws the same under all settings.
    ///
    /// # Errors
    /// [`WhatIfError::Argument`] where no pipeline can have these settings.
    pub fn outcome(&self, settings: &Settings, seed: u64) -> Result<Outcome, WhatIfError> {
        Ok(simulate(self, settings, seed, ())?.0)
    }

    /// The same with every group and step.
    ///
    /// # Errors
    /// [`WhatIfError::Argument`] where no pipeline can have these settings.
    pub fn predict(&self, settings: &Settings, seed: u64) -> Result<Prediction, WhatIfError> {
        let (outcome, Kept { groups, mut steps }) = simulate(self, settings, seed, Kept::default())?;
        steps.truncate(outcome.steps as usize);
        Ok(Prediction { outcome, groups, steps })
    }
}
