//! The audit: what a run came to, in numbers.

use std::collections::BTreeMap;

use anabranch_core::{Event, EventKind, GroupId, OldestVersion, Reason, Seq, Then, TrainingStep, Version};
use serde::Serialize;

use crate::configuration::Limits;
use crate::installed::Installed;
use crate::learner_free::LearnerFree;
use crate::ledger::{Balance, Ledger};
use crate::series::{Change, Durations, Series, Tenths};

/// What a run came to. Prints as a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Audit {
    /// Version of the library that opened the run.
    pub library: String,
    /// Version of the event format.
    pub format: u32,
    /// Events read.
    pub events: u64,
    /// The last of them.
    pub last: Option<Seq>,
    /// Wall time of the first event, in milliseconds since the Unix epoch.
    pub first_wall_ms: u64,
    /// Wall time of the last event.
    pub last_wall_ms: u64,
    /// Time that the run was open, over all sessions, in nanoseconds.
    pub open_ns: u64,
    /// How often it was opened.
    pub sessions: u32,
    /// Whether the pipeline ended and closed it.
    pub closed: bool,
    /// Acknowledged events that power losses took.
    pub lost: u64,
    /// The limits in force at the end.
    pub limits: Limits,
    /// Where the groups are.
    pub groups: Balance,
    /// Groups excluded by each user filter.
    pub filters: BTreeMap<String, u64>,
    /// Leases issued again after a restart.
    pub reissued: u64,
    /// Leases by attempt; 0 is the first.
    pub attempts: BTreeMap<u32, u64>,
    /// Prompts whose attempts were used up.
    pub exhausted: u64,
    /// Generated tokens.
    pub tokens: Tokens,
    /// Version gaps: three series that are never mixed.
    pub gap: Gaps,
    /// Step lag of consumed groups.
    pub step_lag: Series,
    /// What the learner did.
    pub learner: LearnerAudit,
    /// What became of the engines' weights.
    pub publications: PublicationAudit,
    /// Mean reward of completed groups, whatever became of them: the first tenth and the last.
    pub reward: Option<Change>,
}

/// Generated tokens of completed groups, by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tokens {
    /// All.
    pub generated: u64,
    /// Of consumed groups.
    pub consumed: u64,
    /// Of excluded groups, by reason.
    pub wasted: BTreeMap<&'static str, u64>,
}

/// Version gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gaps {
    /// Of consumed groups, when their batch was taken.
    pub consumed: Series,
    /// The part of it that arose before they were completed.
    pub consumed_generation: Series,
    /// Of groups in the buffer, at the log's end.
    pub buffered: Series,
    /// Of excluded groups, when they were excluded.
    pub excluded: Series,
}

/// What the learner did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LearnerAudit {
    /// Batches taken.
    pub batches: u64,
    /// Training steps made.
    pub steps: u64,
    /// Optimizer updates made.
    pub updates: u64,
    /// Steps made again from the log.
    pub restepped: u64,
    /// Those of them that gave other weights.
    pub restepped_unequal: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// How long it waited for each batch, once free.
    pub wait: Durations,
    /// How long each step took, from its batch.
    pub training: Durations,
    /// The loss: the first tenth of the steps and the last.
    pub loss: Option<Change>,
}

/// What became of the engines' weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PublicationAudit {
    /// Publications, the initial installation among them.
    pub published: u64,
    /// Installations of the last published weights after a restart.
    pub reinstalled: u64,
    /// Versions begun and never published.
    pub burned: u64,
    /// The version installed at the end.
    pub version: Option<Version>,
    /// How long generation was paused by each.
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
    /// An auditor that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next event.
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
        // What is wrong with a log is the verifier's to say.
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

    /// The audit of what was seen.
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
pub fn audit<'a>(events: impl IntoIterator<Item = &'a Event>) -> Audit {
    let mut auditor = Auditor::new();
    events.into_iter().for_each(|event| auditor.push(event));
    auditor.finish()
}
