//! How well the simulation tells the log itself.

use serde::Serialize;

use super::recording::{NONE, Settlement};
use super::{Fate, PredictedGroup, Recording, Share, WhatIfError};

/// How well the simulation, under the settings of the log, tells what the log does.
///
/// All groups are told right, to the nanosecond, unless independent moments fell together, or came closer than what
/// happens between two records of a task: then either order was possible, and the log does not tell why it took one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reproduction {
    /// Groups told to end as they did: consumed in that step, excluded for that reason, or left.
    pub fates: Share,
    /// Those of them told to be leased and settled exactly when they were.
    pub times: Share,
    /// The first group by lease told otherwise: position of its prompt, and attempt.
    pub first: Option<(u64, u32)>,
}

impl Recording {
    /// Simulates the log under its own settings, and compares.
    ///
    /// # Errors
    /// [`WhatIfError::Argument`] where no pipeline can have the log's settings.
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
        // What the simulation never leased is told wrong too.
        let told = fates.of;
        let leases = self.specs.iter().filter(|spec| spec.again == NONE).count() as u64;
        let missing = leases.saturating_sub(told);
        let missing = if self.settings.steps.is_some() { 0 } else { missing };
        fates.add(false, missing);
        times.add(false, missing);
        Ok(Reproduction { fates, times, first: first.map(|(_, group)| group) })
    }

    /// Whether the group ended as it did, and when it did.
    fn compare(&self, spec: &super::recording::Spec, group: &PredictedGroup) -> (bool, bool) {
        // What the log's last step did not wait for may be told or not.
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

    /// The recorded lease of a prompt's attempt.
    pub(crate) fn recorded_attempt(&self, position: u64, attempt: u32) -> u32 {
        let first = self.fresh.get(position as usize).copied().unwrap_or(NONE);
        (0..attempt)
            .fold(first, |spec, _| self.specs.get(self.last_issue(spec) as usize).map_or(NONE, |spec| spec.next))
    }

    /// The last issue of a recorded lease.
    pub(crate) fn last_issue(&self, mut spec: u32) -> u32 {
        while let Some(again) = self.specs.get(spec as usize).map(|spec| spec.again).filter(|&again| again != NONE) {
            spec = again;
        }
        spec
    }
}
