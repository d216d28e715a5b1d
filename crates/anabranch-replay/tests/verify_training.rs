//! Verification names every damage to versions, batches and steps.

#[macro_use]
mod sound;

use anabranch_core::{Digest, EventKind, Reason, TakenGroup, TrainingStep, Version};
use anabranch_replay::Violation;
use sound::{log, position, positions, renumber, taken};

#[test]
fn a_changed_version_is_caught() {
    let sound = log();
    let begun = positions(&sound, |kind| matches!(kind, EventKind::Publishing { .. }));
    let mut log = sound.clone();
    if let EventKind::Publishing { version, .. } = &mut log[begun[2]].kind {
        *version = Version(1);
    }
    caught!(log, Violation::VersionOrder { version: Version(1), expected: Version(2), .. });

    let mut log = sound.clone();
    let published = positions(&log, |kind| matches!(kind, EventKind::Published { .. }))[2];
    if let EventKind::Published { version, .. } = &mut log[published].kind {
        *version = Version(9);
    }
    caught!(log, Violation::PublishedUnbegun { version: Version(9), .. });

    let mut log = sound.clone();
    if let EventKind::Published { weights, .. } = &mut log[published].kind {
        *weights = Digest::of(b"other");
    }
    caught!(log, Violation::PublishedDiffers { version: Version(2), what: "digest of weights", .. });

    let mut log = sound.clone();
    let resumed = position(&log, |kind| matches!(kind, EventKind::GenerationResumed { .. }));
    log[resumed].kind = EventKind::GenerationResumed { version: Version(5) };
    caught!(log, Violation::ResumedOther { version: Version(5), .. });

    let mut log = sound;
    let again = position(&log, |kind| matches!(kind, EventKind::Reinstalled { .. }));
    if let EventKind::Reinstalled { weights, .. } = &mut log[again].kind {
        *weights = Digest::of(b"other");
    }
    caught!(log, Violation::ReinstalledDiffers { .. });
}

#[test]
fn a_publication_moved_before_a_batch_changes_its_gaps() {
    let mut log = log();
    let batch = positions(&log, |kind| matches!(kind, EventKind::BatchTaken { .. }))[4];
    let published = (batch..log.len()).find(|&at| matches!(log[at].kind, EventKind::Publishing { .. })).unwrap();
    // The whole publication, three records, goes before the batch.
    log[batch..published + 3].rotate_right(3);
    renumber(&mut log);
    let seq = log[batch + 3].seq;
    caught!(log, Violation::BatchVersion { seq: found, .. } if *found == seq);
    caught!(log, Violation::GapDiffers { seq: found, .. } if *found == seq);
}

#[test]
fn batches_keep_their_laws() {
    let sound = log();
    let batches = positions(&sound, |kind| matches!(kind, EventKind::BatchTaken { .. }));
    let mutate = |change: &dyn Fn(&mut Vec<TakenGroup>)| {
        let mut log = sound.clone();
        change(taken(&mut log, batches[5]));
        log
    };
    let third = taken(&mut sound.clone(), batches[5])[2].id.clone();

    let log = mutate(&|groups| groups[2].gap = groups[2].gap.map(|gap| gap + 1));
    caught!(log, Violation::GapDiffers { group, .. } if *group == third);
    let log = mutate(&|groups| groups[2].step_lag = Some(77));
    caught!(log, Violation::StepLagDiffers { group, recorded: Some(77), .. } if *group == third);
    let log = mutate(&|groups| groups.swap(2, 3));
    caught!(log, Violation::OutOfOrder { group, .. } if *group == third);
    caught!(log, Violation::BatchDigest { .. });
    let log = mutate(&|groups| groups.truncate(3));
    caught!(log, Violation::BatchSize { size: 3, configured: 4, .. });

    let mut log = sound.clone();
    if let EventKind::BatchTaken { digest, .. } = &mut log[batches[5]].kind {
        *digest = Digest::of(b"other");
    }
    assert_eq!(caught!(log, Violation::BatchDigest { .. }).len(), 1, "nothing else is wrong");

    // The limit is tightened behind the log's back: groups with gap 1 are over it.
    let mut log = sound.clone();
    let fresh = position(&log, |kind| matches!(kind, EventKind::Configured { operator, .. } if operator == "fresh"));
    if let EventKind::Configured { settings, .. } = &mut log[fresh].kind {
        settings.insert("max_staleness".to_owned(), 0_u32.into());
    }
    caught!(log, Violation::GapOverLimit { gap: 1, limit: 0, .. });

    let mut log = sound.clone();
    let stale = position(&log, |kind| matches!(kind, EventKind::Excluded { reason: Reason::Stale { .. }, .. }));
    let group = log[stale].kind.group().unwrap().clone();
    if let EventKind::Excluded { reason, .. } = &mut log[stale].kind {
        *reason = Reason::Stale { gap: 1 };
    }
    caught!(log, Violation::StaleGapDiffers { group: found, recorded: 1, .. } if *found == group);
    caught!(log, Violation::StaleWithinLimit { gap: 1, limit: 1, .. });

    // A span that reaches into the future.
    let mut log = sound.clone();
    let first = taken(&mut log, batches[5])[0].id.clone();
    let completed = position(&log, |kind| matches!(kind, EventKind::Completed { id, .. } if *id == first));
    if let EventKind::Completed { summary, .. } = &mut log[completed].kind {
        summary.samples[0].newest = Some(Version(50));
    }
    caught!(log, Violation::FutureVersion { group, version: Version(50), .. } if *group == first);
}

#[test]
fn steps_follow_their_batches_once() {
    let sound = log();
    let steps = positions(&sound, |kind| matches!(kind, EventKind::Stepped { .. }));
    let mut log = sound.clone();
    log.insert(steps[3] + 1, sound[steps[3]].clone());
    renumber(&mut log);
    caught!(log, Violation::SteppedTwice { step: TrainingStep(4), .. });

    let mut log = sound.clone();
    log.remove(steps[3]);
    renumber(&mut log);
    caught!(log, Violation::BatchEarly { step: TrainingStep(5), unmade: TrainingStep(4), .. });
    caught!(log, Violation::StepOrder { step: TrainingStep(5), expected: TrainingStep(4), .. });

    let mut log = sound.clone();
    let batch = (0..steps[3]).rev().find(|&at| matches!(log[at].kind, EventKind::BatchTaken { .. })).unwrap();
    let step = log.remove(steps[3]);
    log.insert(batch, step);
    renumber(&mut log);
    caught!(log, Violation::SteppedUntaken { step: TrainingStep(4), .. });

    let mut log = sound.clone();
    if let EventKind::Stepped { step, weights, .. } = sound[steps[3]].kind.clone() {
        log[steps[5]].kind = EventKind::Restepped { step, weights: Digest::of(b"other"), equal: false };
        caught!(log, Violation::RestepDiffers { step: TrainingStep(4), .. });
        log[steps[5]].kind = EventKind::Restepped { step, weights: Digest::of(b"other"), equal: true };
        caught!(log, Violation::RestepDiffers { step: TrainingStep(4), .. });
        log[steps[5]].kind = EventKind::Restepped { step: TrainingStep(90), weights, equal: true };
        caught!(log, Violation::RestepUnknown { step: TrainingStep(90), .. });
    }
}

#[test]
fn batches_that_no_learner_trains_are_all_for_the_first_step() {
    let mut log = log();
    log.retain(|event| !matches!(event.kind, EventKind::Stepped { .. } | EventKind::Restepped { .. }));
    renumber(&mut log);
    for event in &mut log {
        if let EventKind::BatchTaken { step, .. } = &mut event.kind {
            *step = TrainingStep(1);
        }
    }
    let found = sound::violations(&log);
    let ordered =
        |violation: &Violation| !matches!(violation, Violation::BatchOrder { .. } | Violation::BatchEarly { .. });
    assert!(found.iter().all(ordered), "{found:#?}");
    let second = positions(&log, |kind| matches!(kind, EventKind::BatchTaken { .. }))[1];
    if let EventKind::BatchTaken { step, .. } = &mut log[second].kind {
        *step = TrainingStep(3);
    }
    caught!(log, Violation::BatchOrder { step: TrainingStep(3), expected: TrainingStep(2), .. });
}
