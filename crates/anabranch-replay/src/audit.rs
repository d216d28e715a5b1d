//! The audit: a summary of a run in numbers.

use std::collections::BTreeMap;

use anabranch_core::{Event, EventKind, GroupId, OldestVersion, Reason, Seq, Then, TrainingStep, Version};
use serde::Serialize;

use crate::configuration::Limits;
use crate::installed::Installed;
use crate::learner_free::LearnerFree;
use crate::ledger::{Balance, Ledger};
use crate::series::{Change, Durations, Series, Tenths};

/// A summary of a run in numbers. Its `Display` prints a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Audit {
    /// The version of the library that opened the run.
    pub library: String,
    /// The version of the event format.
    pub format: u32,
    /// How many events were read.
    pub events: u64,
    /// The last event.
    pub last: Option<Seq>,
    /// The wall time of the first event, in milliseconds since the Unix epoch.
    pub first_wall_ms: u64,
    /// The wall time of the last event, in milliseconds since the Unix epoch.
    pub last_wall_ms: u64,
    /// How long the run was open, over all sessions, in nanoseconds.
    pub open_ns: u64,
    /// How many sessions the run had.
    pub sessions: u32,
    /// Whether the pipeline ended and closed the run.
    pub closed: bool,
    /// How many acknowledged events were lost in power losses.
    pub lost: u64,
    /// The limits in force at the log's end.
    pub limits: Limits,
    /// How many groups are in each place.
    pub groups: Balance,
    /// How many groups each user filter excluded.
    pub filters: BTreeMap<String, u64>,
    /// How many leases were issued again after a restart.
    pub reissued: u64,
    /// How many leases each attempt had. The first attempt is 0.
    pub attempts: BTreeMap<u32, u64>,
    /// How many prompts had all their attempts used up.
    pub exhausted: u64,
    /// How many tokens were generated.
    pub tokens: Tokens,
    /// The version gaps, in series that are never mixed.
    pub gap: Gaps,
    /// The step lag of consumed groups.
    pub step_lag: Series,
    /// What the learner did.
    pub learner: LearnerAudit,
    /// The publications, and the other installations of weights.
    pub publications: PublicationAudit,
    /// The mean reward of all completed groups, over the first tenth of them and over the last.
    pub reward: Option<Change>,
}

/// The generated tokens of completed groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Tokens {
    /// Tokens of all completed groups.
    pub generated: u64,
    /// Tokens of consumed groups.
    pub consumed: u64,
    /// Tokens of excluded groups, by reason.
    pub wasted: BTreeMap<&'static str, u64>,
}

/// The version gaps of a run's groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Gaps {
    /// Gaps of consumed groups, when their batch was taken.
    pub consumed: Series,
    /// The part of those gaps that arose before the groups were completed.
    pub consumed_generation: Series,
    /// Gaps of groups in the buffer, at the log's end.
    pub buffered: Series,
    /// Gaps of excluded groups, when they were excluded.
    pub excluded: Series,
}

/// What the learner did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LearnerAudit {
    /// How many batches the learner took.
    pub batches: u64,
    /// How many training steps it made.
    pub steps: u64,
    /// How many optimizer updates it made.
    pub updates: u64,
    /// How many steps it made again from the log.
    pub restepped: u64,
    /// How many of these repeated steps gave other weights than at first.
    pub restepped_unequal: u64,
    /// How many checkpoints it saved.
    pub checkpoints: u64,
    /// How long the learner, once free, waited for each batch.
    pub wait: Durations,
    /// How long each training step took after its batch was taken.
    pub training: Durations,
    /// The mean loss, over the first tenth of the steps and over the last.
    pub loss: Option<Change>,
}

/// The publications of a run, and the other installations of weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PublicationAudit {
    /// How many versions were published, including the initial installation.
    pub published: u64,
    /// How often the last published weights were installed again after a restart.
    pub reinstalled: u64,
    /// How many versions were begun and never published.
    pub burned: u64,
    /// The version installed at the log's end.
    pub version: Option<Version>,
    /// How long each publication paused generation.
    pub pause: Durations,
}

/// Computes an [`Audit`], event by event.
#[derive(Debug, Default)]
pub struct Auditor {
    audit: Audit,
    ledger: Ledger,
    installed: Installed,
    rewards: Tenths,
    losses: Tenths,
    begun: u64,
    session_end: u64,
    free: LearnerFree,
    taken_at: Option<u64>,
    pause_began: Option<u64>,
}

impl Auditor {
    /// Creates an auditor that has seen no event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next event of the run.
    pub fn push(&mut self, event: &Event) {
        let audit = &mut self.audit;
        if audit.events == 0 {
            audit.first_wall_ms = event.wall_ms;
        }
        audit.events += 1;
        audit.last = Some(event.seq);
        audit.last_wall_ms = event.wall_ms;
        audit.limits.apply(event);
        self.sessions(event);
        self.groups(event);
        self.training(event);
        self.publications(event);
        // Only the verifier reports what is wrong with a log.
        let mut violations = Vec::new();
        self.installed.apply(event, &mut violations);
        self.ledger.apply(event, &mut violations);
        if let EventKind::Completed { id, .. } = &event.kind
            && let Some(entry) = self.ledger.get_mut(id)
        {
            entry.completed_under = self.installed.version();
        }
        self.session_end = event.at;
    }

    /// Returns the audit of the events so far.
    #[must_use]
    pub fn finish(self) -> Audit {
        let mut audit = self.audit;
        audit.open_ns += self.session_end;
        audit.groups = self.ledger.balance().clone();
        for id in self.ledger.queue.values() {
            audit.gap.buffered.add(self.ledger.get(id).and_then(|entry| self.installed.gap(entry.oldest)));
        }
        audit.publications.version = self.installed.version();
        audit.publications.burned = self.begun.saturating_sub(audit.publications.published);
        audit.reward = self.rewards.change();
        audit.learner.loss = self.losses.change();
        audit
    }

    fn sessions(&mut self, event: &Event) {
        let audit = &mut self.audit;
        match &event.kind {
            EventKind::RunOpened { library, format, .. } => {
                (audit.library, audit.format, audit.sessions) = (library.clone(), *format, 1);
            }
            EventKind::RunResumed { lost, .. } => {
                audit.sessions += 1;
                audit.lost += lost;
                audit.open_ns += std::mem::take(&mut self.session_end);
                (self.taken_at, self.pause_began) = (None, None);
            }
            EventKind::RunClosed { .. } => {}
            _ => return,
        }
        audit.closed = matches!(event.kind, EventKind::RunClosed { .. });
    }

    fn groups(&mut self, event: &Event) {
        let audit = &mut self.audit;
        match &event.kind {
            EventKind::Leased { id, .. } => *audit.attempts.entry(id.attempt).or_default() += 1,
            EventKind::Reissued { .. } => audit.reissued += 1,
            EventKind::Completed { summary, .. } => {
                audit.tokens.generated += summary.generated();
                summary.reward_mean().into_iter().for_each(|mean| self.rewards.add(mean));
            }
            EventKind::Excluded { id, reason, then, .. } => {
                if let Reason::Filtered { name } = reason {
                    *audit.filters.entry(name.clone()).or_default() += 1;
                }
                audit.exhausted += u64::from(*then == Then::Exhausted);
                if let Some(entry) = self.ledger.get(id) {
                    *audit.tokens.wasted.entry(reason.name()).or_default() += entry.tokens;
                    if entry.oldest.is_some() {
                        audit.gap.excluded.add(self.installed.gap(entry.oldest));
                    }
                }
            }
            EventKind::BatchTaken { step, groups, .. } => {
                for group in groups {
                    self.consume(*step, &group.id);
                }
            }
            _ => {}
        }
    }

    fn consume(&mut self, step: TrainingStep, id: &GroupId) {
        let Some(entry) = self.ledger.get(id) else { return };
        let audit = &mut self.audit;
        audit.tokens.consumed += entry.tokens;
        audit.gap.consumed.add(self.installed.gap(entry.oldest));
        audit.gap.consumed_generation.add(match (entry.completed_under, entry.oldest) {
            (Some(version), Some(OldestVersion::Known(oldest))) => Some(version.since(oldest)),
            _ => None,
        });
        let now = TrainingStep(step.0.saturating_sub(1));
        audit.step_lag.add(self.installed.step_lag(entry.oldest, now));
    }

    fn training(&mut self, event: &Event) {
        let free_since = self.free.see(event);
        let learner = &mut self.audit.learner;
        match &event.kind {
            EventKind::BatchTaken { .. } => {
                learner.batches += 1;
                learner.wait.add(event.at - free_since.unwrap_or(event.at));
                self.taken_at = Some(event.at);
            }
            EventKind::Stepped { updates, loss, .. } => {
                learner.steps += 1;
                learner.updates = *updates;
                self.losses.add(*loss);
                if let Some(taken_at) = self.taken_at.take() {
                    learner.training.add(event.at.saturating_sub(taken_at));
                }
            }
            EventKind::Restepped { equal, .. } => {
                learner.restepped += 1;
                learner.restepped_unequal += u64::from(!equal);
            }
            EventKind::Checkpointed { .. } => {
                learner.checkpoints += 1;
            }
            _ => {}
        }
    }

    fn publications(&mut self, event: &Event) {
        let publications = &mut self.audit.publications;
        match &event.kind {
            EventKind::Publishing { .. } => self.begun += 1,
            EventKind::Published { pause_began, .. } => {
                publications.published += 1;
                self.pause_began = Some(*pause_began);
            }
            EventKind::Reinstalled { .. } => {
                publications.reinstalled += 1;
            }
            EventKind::GenerationResumed { .. } => {
                if let Some(began) = self.pause_began.take() {
                    publications.pause.add(event.at.saturating_sub(began));
                }
            }
            _ => {}
        }
    }
}

/// Audits all events of a run, in order.
#[must_use]
pub fn audit<'a>(events: impl IntoIterator<Item = &'a Event>) -> Audit {
    let mut auditor = Auditor::new();
    events.into_iter().for_each(|event| auditor.push(event));
    auditor.finish()
}
