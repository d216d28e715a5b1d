//! The clock of published versions and training steps, against which gaps are measured.

use std::collections::BTreeMap;

use crate::{OldestVersion, Stamp, TrainingStep, Version};

/// The installed version, and the training steps of the learner.
#[derive(Clone, Debug, Default)]
pub struct VersionClock {
    version: Option<Version>,
    highest_begun: Option<Version>,
    step: TrainingStep,
    updates: u64,
    steps_of: BTreeMap<Version, TrainingStep>,
    published: Option<Stamp>,
    learner_free: Option<Stamp>,
    taken: Option<Stamp>,
}

impl VersionClock {
    /// The version installed on the engines; `None` before the initial installation.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// The version of the next publication: one above the highest version ever begun.
    pub fn next_version(&self) -> Version {
        self.highest_begun.map_or(Version(0), Version::next)
    }

    /// The number of training steps in the learner's weights.
    pub fn step(&self) -> TrainingStep {
        self.step
    }

    /// The number of optimizer updates in the learner's weights.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// The last `Published` or `Reinstalled` record of this session.
    pub fn published(&self) -> Option<Stamp> {
        self.published
    }

    /// The last event that the learner had to finish before it could take another batch.
    pub fn learner_free(&self) -> Option<Stamp> {
        self.learner_free
    }

    /// The last `BatchTaken` record of this session.
    pub fn taken(&self) -> Option<Stamp> {
        self.taken
    }

    /// Notes that the learner can take another batch since `stamp`.
    pub fn free_learner(&mut self, stamp: Stamp) {
        self.learner_free = Some(stamp);
    }

    /// Notes that a batch was taken.
    pub fn take(&mut self, stamp: Stamp) {
        self.taken = Some(stamp);
    }

    /// The training step of a version's weights.
    pub fn step_of(&self, version: Version) -> Option<TrainingStep> {
        self.steps_of.get(&version).copied()
    }

    /// The version gap (staleness) of a group whose oldest version is `oldest`; `None` if either version is unknown.
    pub fn gap(&self, oldest: OldestVersion) -> Option<u64> {
        match oldest {
            OldestVersion::Known(oldest) => Some(self.version?.since(oldest)),
            OldestVersion::Unknown => None,
        }
    }

    /// The step lag of a group whose oldest version is `oldest`: training steps now − training step of those weights.
    pub fn step_lag(&self, oldest: OldestVersion) -> Option<u64> {
        match oldest {
            OldestVersion::Known(oldest) => Some(self.step.since(self.step_of(oldest)?)),
            OldestVersion::Unknown => None,
        }
    }

    /// Begins a publication. Its version number is used up, even if the publication fails.
    pub fn begin(&mut self, version: Version) {
        self.highest_begun = self.highest_begun.max(Some(version));
    }

    /// Notes that the weights of training step `step` are installed as `version`.
    pub fn install(&mut self, version: Version, step: TrainingStep, stamp: Stamp) {
        self.begin(version);
        self.version = Some(version);
        self.steps_of.insert(version, step);
        self.published = Some(stamp);
    }

    /// Notes that the learner's weights contain `step` training steps with `updates` optimizer updates.
    pub fn complete(&mut self, step: TrainingStep, updates: u64) {
        self.step = step;
        self.updates = updates;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seq;

    fn published(clock: &mut VersionClock, version: u64, step: u64) {
        clock.install(Version(version), TrainingStep(step), Stamp::earlier(Seq(0)));
    }

    const V3: OldestVersion = OldestVersion::Known(Version(3));

    /// The worked example of `docs/semantics.md`: update interval 3, one optimizer update per step.
    #[test]
    fn steps_and_versions_are_two_clocks() {
        let mut clock = VersionClock::default();
        for step in 0..=11 {
            clock.complete(TrainingStep(step), step);
            if step % 3 == 0 {
                published(&mut clock, step / 3, step);
            }
        }
        assert_eq!(
            (clock.gap(V3), clock.step_lag(V3)),
            (Some(0), Some(2)),
            "11 steps complete, generated entirely by v3"
        );
        clock.complete(TrainingStep(12), 12);
        published(&mut clock, 4, 12);
        assert_eq!(clock.gap(V3), Some(1), "begun under v3, finished under v4");
        published(&mut clock, 5, 15);
        assert_eq!(clock.gap(V3), Some(2), "v5 published while it waits");
        assert_eq!(clock.gap(V3.older(OldestVersion::Known(Version(2)))), Some(3), "another sample holds a v2 span");
    }

    #[test]
    fn an_unknown_version_has_no_gap_and_a_begun_one_is_used_up() {
        let mut clock = VersionClock::default();
        assert_eq!((clock.gap(V3), clock.next_version()), (None, Version(0)));
        published(&mut clock, 0, 0);
        clock.begin(Version(1));
        assert_eq!((clock.version(), clock.next_version()), (Some(Version(0)), Version(2)));
        assert_eq!(clock.gap(OldestVersion::Unknown), None);
    }
}
