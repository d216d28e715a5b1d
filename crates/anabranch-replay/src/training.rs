//! The laws of batches and training steps.

use std::collections::{BTreeSet, HashMap};

use anabranch_core::{Batch, Digest, Event, EventKind, GroupId, Order, Reason, Seq, TakenGroup, TrainingStep, Version};

use crate::Violation;
use crate::configuration::Limits;
use crate::installed::Installed;
use crate::ledger::Ledger;

/// The batches taken and the training steps made, up to some place of the log.
#[derive(Debug, Default)]
pub(crate) struct Training {
    taken: Option<TrainingStep>,
    /// The violation of the last batch if it was smaller than configured. Such a batch must be the last of its session.
    short: Option<(u32, Violation)>,
    steps: HashMap<TrainingStep, (Seq, Digest)>,
    last_step: Option<TrainingStep>,
    /// Groups already reported as passed over, by their `Admitted` record.
    passed_over: BTreeSet<Seq>,
}

impl Training {
    /// Adds the next event. The ledger and the versions must not have it yet.
    pub(crate) fn apply(
        &mut self,
        event: &Event,
        limits: &Limits,
        ledger: &Ledger,
        installed: &Installed,
        violations: &mut Vec<Violation>,
    ) {
        let seq = event.seq;
        match &event.kind {
            EventKind::BatchTaken { step, version, groups, digest } => {
                self.batch_order(event, *step, violations);
                self.batch_size(event, *step, groups.len() as u64, limits, violations);
                if *version != installed.version() {
                    let (version, installed) = (*version, installed.version());
                    violations.push(Violation::BatchVersion { seq, step: *step, version, installed });
                }
                for group in groups {
                    judge(seq, *step, group, limits, ledger, installed, violations);
                }
                let payload = |group: &TakenGroup| ledger.get(&group.id).map_or_else(Digest::default, |e| e.payload);
                let recomputed = Batch::digest_of(groups.iter().map(|group| (&group.id, payload(group))));
                if recomputed != *digest {
                    violations.push(Violation::BatchDigest { seq, step: *step, recorded: *digest, recomputed });
                }
                if limits.order == Some(Order::Fifo) {
                    self.first_in_first_out(seq, groups, ledger, violations);
                }
            }
            EventKind::Excluded { id, reason: Reason::Stale { gap }, .. } => {
                stale(seq, id, *gap, limits, ledger, installed, violations);
            }
            EventKind::Stepped { step, weights, .. } => self.step(seq, *step, *weights, violations),
            EventKind::Restepped { step, weights, equal } => match self.steps.get(step) {
                None => violations.push(Violation::RestepUnknown { seq, step: *step }),
                Some((_, recorded)) if recorded != weights || !equal => {
                    let (found, recorded) = (*weights, *recorded);
                    violations.push(Violation::RestepDiffers { seq, step: *step, found, recorded });
                }
                Some(_) => {}
            },
            _ => {}
        }
    }

    fn batch_order(&mut self, event: &Event, step: TrainingStep, violations: &mut Vec<Violation>) {
        let seq = event.seq;
        let expected = self.taken.map_or(TrainingStep(1), TrainingStep::next);
        // A pipeline without an anabranch learner takes every batch for the first step, and records no steps.
        let untrained = self.last_step.is_none() && step == TrainingStep(1);
        if step != expected && !untrained {
            violations.push(Violation::BatchOrder { seq, step, expected });
        }
        if let (Some(unmade), Some(last)) = (self.taken, self.last_step)
            && last < unmade
        {
            violations.push(Violation::BatchEarly { seq, step, unmade });
        }
        self.taken = Some(step);
    }

    fn batch_size(
        &mut self,
        event: &Event,
        step: TrainingStep,
        size: u64,
        limits: &Limits,
        violations: &mut Vec<Violation>,
    ) {
        // This batch shows that the short batch before it was not the last of its session.
        violations.extend(self.short.take().filter(|(session, _)| *session == event.session).map(|(_, short)| short));
        let Some(configured) = limits.batch.filter(|configured| *configured != size) else { return };
        let violation = Violation::BatchSize { seq: event.seq, step, size, configured };
        if limits.partial && size > 0 && size < configured {
            self.short = Some((event.session, violation));
        } else {
            violations.push(violation);
        }
    }

    fn step(&mut self, seq: Seq, step: TrainingStep, weights: Digest, violations: &mut Vec<Violation>) {
        if let Some((first, _)) = self.steps.get(&step) {
            return violations.push(Violation::SteppedTwice { seq, step, first: *first });
        }
        if self.taken.is_none_or(|taken| taken < step) {
            violations.push(Violation::SteppedUntaken { seq, step });
        }
        let expected = self.last_step.map_or(TrainingStep(1), TrainingStep::next);
        if step != expected {
            violations.push(Violation::StepOrder { seq, step, expected });
        }
        self.steps.insert(step, (seq, weights));
        self.last_step = self.last_step.max(Some(step));
    }

    /// Checks a batch of a first-in, first-out buffer: it has its groups in the order of admission, and passes over
    /// none.
    fn first_in_first_out(
        &mut self,
        seq: Seq,
        groups: &[TakenGroup],
        ledger: &Ledger,
        violations: &mut Vec<Violation>,
    ) {
        let mut last: Option<(Seq, &GroupId)> = None;
        let mut in_batch = BTreeSet::new();
        for TakenGroup { id, .. } in groups {
            let entry = ledger.get(id).filter(|entry| entry.settled.is_none());
            let Some(admitted) = entry.and_then(|entry| entry.admitted) else { continue };
            in_batch.insert(admitted);
            match last {
                Some((before, after)) if admitted < before => {
                    violations.push(Violation::OutOfOrder { seq, group: id.clone(), after: after.clone() });
                }
                _ => last = Some((admitted, id)),
            }
        }
        let Some((until, taken)) = last else { return };
        for (&admitted, group) in ledger.queue.range(..until) {
            if !in_batch.contains(&admitted) && self.passed_over.insert(admitted) {
                let (group, taken) = (group.clone(), taken.clone());
                violations.push(Violation::PassedOver { seq, group, admitted, taken });
            }
        }
    }
}

/// Checks one group of a batch: its recorded gap and lag must be those of its spans, and within the limit.
fn judge(
    seq: Seq,
    step: TrainingStep,
    taken: &TakenGroup,
    limits: &Limits,
    ledger: &Ledger,
    installed: &Installed,
    violations: &mut Vec<Violation>,
) {
    // The ledger reports a group that was never completed.
    let Some(entry) = ledger.get(&taken.id).filter(|entry| entry.completed.is_some()) else { return };
    let group = || taken.id.clone();
    let gap = installed.gap(entry.oldest);
    if taken.gap != gap {
        violations.push(Violation::GapDiffers { seq, group: group(), recorded: taken.gap, recomputed: gap });
    }
    let lag = installed.step_lag(entry.oldest, TrainingStep(step.0.saturating_sub(1)));
    if taken.step_lag != lag {
        violations.push(Violation::StepLagDiffers { seq, group: group(), recorded: taken.step_lag, recomputed: lag });
    }
    if let (Some(gap), Some(limit)) = (gap, limits.max_staleness)
        && gap > limit
    {
        violations.push(Violation::GapOverLimit { seq, group: group(), gap, limit });
    }
    future(seq, &taken.id, entry.newest, installed.version(), violations);
}

fn future(
    seq: Seq,
    group: &GroupId,
    newest: Option<Version>,
    installed: Option<Version>,
    violations: &mut Vec<Violation>,
) {
    if let (Some(version), Some(installed)) = (newest, installed)
        && version > installed
    {
        violations.push(Violation::FutureVersion { seq, group: group.clone(), version, installed });
    }
}

/// Checks a group excluded as stale: its gap must be that of its spans, and over the limit.
fn stale(
    seq: Seq,
    group: &GroupId,
    recorded: u64,
    limits: &Limits,
    ledger: &Ledger,
    installed: &Installed,
    violations: &mut Vec<Violation>,
) {
    let Some(entry) = ledger.get(group).filter(|entry| entry.completed.is_some()) else { return };
    let recomputed = installed.gap(entry.oldest);
    if recomputed != Some(recorded) {
        violations.push(Violation::StaleGapDiffers { seq, group: group.clone(), recorded, recomputed });
    }
    if let Some(limit) = limits.max_staleness.filter(|limit| recorded <= *limit) {
        violations.push(Violation::StaleWithinLimit { seq, group: group.clone(), gap: recorded, limit });
    }
}
