//! The reproduction of a log: how well the simulation predicts what was recorded.

use serde::Serialize;

use super::recording::{NONE, Settlement};
use super::{Fate, PredictedGroup, Recording, Share, WhatIfError};

/// How well the simulation, under the settings of the log, predicts what was recorded.
///
/// It predicts all groups to the nanosecond, unless independent moments came at the same time, or so close that work
/// between two records of a task lies in between. Either order was possible then, and the log does not tell why it has
/// one of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reproduction {
    /// The share of groups whose end is predicted as recorded: the training step, the reason of the exclusion, or
    /// neither.
    pub fates: Share,
    /// The share of groups that are also predicted to be leased and settled exactly when they were.
    pub times: Share,
    /// The first group, by lease, that is predicted otherwise: the position of its prompt, and the attempt.
    pub first: Option<(u64, u32)>,
}

impl Recording {
    /// Simulates the log under its own settings, and compares the prediction with the log.
    ///
    /// # Errors
    /// Returns [`WhatIfError::Argument`] if no pipeline can have the log's settings.
    pub fn reproduction(&self) -> Result<Reproduction, WhatIfError> {
        let (mut fates, mut times) = (Share::default(), Share::default());
        let mut first: Option<(u64, (u64, u32))> = None;
        let prediction = self.predict(&self.settings, 0)?;
        for group in &prediction.groups {
            let index = self.last_issue(self.recorded_attempt(group.position, group.attempt));
            if self.settings.steps.is_some() && index == NONE {
                // Leased after the log's end.
                continue;
            }
            let spec = self.specs.get(index as usize);
            let leased = spec.is_some_and(|spec| spec.leased_at == group.leased_ns);
            let (fate, time) = spec.map_or((false, false), |spec| self.compare(spec, group));
            fates.add(fate, 1);
            times.add(fate && leased && time, 1);
            if !(fate && leased && time) {
                let differs = (spec.map_or(group.leased_ns, |spec| spec.leased_at), (group.position, group.attempt));
                first = Some(first.map_or(differs, |first| first.min(differs)));
            }
        }
        // A group that the simulation never leased is predicted wrong too.
        let told = fates.of;
        let leases = self.specs.iter().filter(|spec| spec.again == NONE).count() as u64;
        let missing = leases.saturating_sub(told);
        let missing = if self.settings.steps.is_some() { 0 } else { missing };
        fates.add(false, missing);
        times.add(false, missing);
        Ok(Reproduction { fates, times, first: first.map(|(_, group)| group) })
    }

    /// Returns whether the group's end is predicted as recorded, and whether its time is.
    fn compare(&self, spec: &super::recording::Spec, group: &PredictedGroup) -> (bool, bool) {
        // The log may or may not have what its last step did not wait for.
        let over = |at: u64| self.settings.steps.is_some() && at >= self.ended;
        let settlement = if over(spec.settled_at) { Settlement::Left } else { spec.settlement };
        let fate = if group.settled_ns.is_some_and(over) { Fate::Left } else { group.fate };
        match (settlement, fate) {
            (Settlement::Left, Fate::Left) => (true, true),
            (Settlement::Consumed(recorded), Fate::Consumed { step, .. }) => {
                (recorded == step, group.settled_ns == Some(spec.settled_at))
            }
            (Settlement::Excluded(recorded), Fate::Excluded { reason, .. }) => {
                (recorded == reason, group.settled_ns == Some(spec.settled_at))
            }
            _ => (false, false),
        }
    }

    /// Returns the recorded lease of an attempt at a prompt, or `NONE`.
    pub(crate) fn recorded_attempt(&self, position: u64, attempt: u32) -> u32 {
        let first = self.fresh.get(position as usize).copied().unwrap_or(NONE);
        (0..attempt)
            .fold(first, |spec, _| self.specs.get(self.last_issue(spec) as usize).map_or(NONE, |spec| spec.next))
    }

    /// Returns the last issue of a recorded lease.
    pub(crate) fn last_issue(&self, mut spec: u32) -> u32 {
        while let Some(again) = self.specs.get(spec as usize).map(|spec| spec.again).filter(|&again| again != NONE) {
            spec = again;
        }
        spec
    }
}
