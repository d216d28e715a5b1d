//! The weights on the engines at each time: publications, and the laws of their versions.

use std::collections::BTreeMap;

use anabranch_core::{Digest, Event, EventKind, OldestVersion, Seq, TrainingStep, Version};

use crate::Violation;

/// A publication that was begun.
#[derive(Clone, Debug)]
struct Begun {
    seq: Seq,
    version: Version,
    step: TrainingStep,
    updates: u64,
    weights: Digest,
}

/// The versions of a run, up to some place of its log.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    version: Option<Version>,
    highest_begun: Option<Version>,
    begun: Option<Begun>,
    published: Option<(Version, Digest)>,
    steps_of: BTreeMap<Version, TrainingStep>,
}

impl Installed {
    /// Returns the version on the engines.
    pub(crate) fn version(&self) -> Option<Version> {
        self.version
    }

    /// Returns the version gap of a group whose oldest version is `oldest`.
    pub(crate) fn gap(&self, oldest: Option<OldestVersion>) -> Option<u64> {
        match oldest {
            Some(OldestVersion::Known(oldest)) => Some(self.version?.since(oldest)),
            _ => None,
        }
    }

    /// Returns the step lag of a group whose oldest version is `oldest` when `now` steps are complete.
    pub(crate) fn step_lag(&self, oldest: Option<OldestVersion>, now: TrainingStep) -> Option<u64> {
        match oldest {
            Some(OldestVersion::Known(oldest)) => Some(now.since(*self.steps_of.get(&oldest)?)),
            _ => None,
        }
    }

    /// Adds the next event, and its violations.
    pub(crate) fn apply(&mut self, event: &Event, violations: &mut Vec<Violation>) {
        let seq = event.seq;
        match &event.kind {
            EventKind::Publishing { version, step, updates, weights, .. } => {
                let (version, step, updates, weights) = (*version, *step, *updates, *weights);
                let expected = self.highest_begun.map_or(Version(0), Version::next);
                if version != expected {
                    violations.push(Violation::VersionOrder { seq, version, expected });
                }
                self.highest_begun = self.highest_begun.max(Some(version));
                self.begun = Some(Begun { seq, version, step, updates, weights });
            }
            EventKind::Published { version, step, updates, weights, .. } => {
                let version = *version;
                match self.begun.take() {
                    Some(begun) if begun.version == version => {
                        let differs = [
                            ("training step", begun.step != *step),
                            ("count of updates", begun.updates != *updates),
                            ("digest of weights", begun.weights != *weights),
                        ];
                        for (what, _) in differs.into_iter().filter(|(_, differs)| *differs) {
                            violations.push(Violation::PublishedDiffers { seq, version, what, publishing: begun.seq });
                        }
                    }
                    _ => violations.push(Violation::PublishedUnbegun { seq, version }),
                }
                self.install(version, *step);
                self.published = Some((version, *weights));
            }
            EventKind::Reinstalled { version, step, weights } => {
                let (version, found) = (*version, *weights);
                match self.published {
                    Some((last, published)) if last == version => {
                        if found != published {
                            violations.push(Violation::ReinstalledDiffers { seq, version, found, published });
                        }
                    }
                    other => {
                        let published = other.map(|(version, _)| version);
                        violations.push(Violation::ReinstalledOther { seq, version, published });
                    }
                }
                self.install(version, *step);
            }
            EventKind::GenerationResumed { version } if Some(*version) != self.version => {
                violations.push(Violation::ResumedOther { seq, version: *version, installed: self.version });
            }
            _ => {}
        }
    }

    fn install(&mut self, version: Version, step: TrainingStep) {
        self.version = Some(version);
        self.highest_begun = self.highest_begun.max(Some(version));
        self.steps_of.insert(version, step);
    }
}
