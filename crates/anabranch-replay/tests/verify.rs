//! A sound log is found sound; every kind of damage is caught, and named.

mod scripted;

use std::sync::Arc;

use anabranch_core::{
    Digest, Event, EventKind, Fields, GroupId, MemoryJournal, Past, Reason, Run, Seq, TakenGroup, Then, TrainingStep,
    Version,
};
use anabranch_replay::{Violation, resume, verify};
use scripted::{HandClock, Script};

fn open(journal: &Arc<MemoryJournal>, past: Past) -> Script {
    let clock = HandClock::default();
    Script::new(Run::new("scripted", journal.clone(), past, clock.timer(), Fields::new(), false), clock)
}

/// Two sessions: the first ends with groups in flight and buffered, and a batch taken but not trained.
fn log() -> Vec<Event> {
    let journal = Arc::new(MemoryJournal::new());
    let mut script = open(&journal, Past::default());
    script.publish();
    script.play(31);
    while !script.take() {
        script.fill();
        script.complete(0);
    }
    script.fill();
    drop(script);
    let past = resume(journal.events()).unwrap();
    let (version, step, weights) = past.published.unwrap();
    let unmade = past.batches.iter().find(|batch| batch.stepped.is_none()).unwrap().step;
    let mut script = open(&journal, past);
    script.restep(unmade);
    script.reinstall(version, step, weights);
    script.play(26);
    script.run.finish();
    journal.events()
}

fn violations(log: &[Event]) -> Vec<Violation> {
    verify(log).violations
}

/// Asserts that exactly such a violation, among whatever follows from it, is reported at `seq` with its group named.
macro_rules! caught {
    ($log:expr, $pattern:pat $(if $guard:expr)?) => {{
        let found = violations(&$log);
        assert!(
            found.iter().any(|violation| matches!(violation, $pattern $(if $guard)?)),
            "expected {}, found:\n{}",
            stringify!($pattern),
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        );
        found
    }};
}

fn position(log: &[Event], is: impl Fn(&EventKind) -> bool) -> usize {
    log.iter().position(|event| is(&event.kind)).expect("the scripted log has one")
}

fn positions(log: &[Event], is: impl Fn(&EventKind) -> bool) -> Vec<usize> {
    (0..log.len()).filter(|&index| is(&log[index].kind)).collect()
}

fn renumber(log: &mut [Event]) {
    log.iter_mut().zip(0..).for_each(|(event, seq)| event.seq = Seq(seq));
}

fn taken(log: &mut [Event], index: usize) -> &mut Vec<TakenGroup> {
    match &mut log[index].kind {
        EventKind::BatchTaken { groups, .. } => groups,
        other => panic!("{} is no batch", other.name()),
    }
}

#[test]
fn a_sound_log_is_sound_and_has_everything_in_it() {
    let log = log();
    let report = verify(&log);
    assert!(report.is_clean(), "{report}");
    let balance = &report.balance;
    for reason in ["stale", "filtered", "aborted"] {
        assert!(balance.excluded.get(reason).is_some_and(|&count| count > 2), "{balance:?}");
    }
    assert!(balance.consumed > 40 && balance.in_flight > 0 && balance.buffered + balance.waiting > 0, "{balance:?}");
    let count = |is: fn(&EventKind) -> bool| positions(&log, is).len();
    assert!(count(|kind| matches!(kind, EventKind::Excluded { then: Then::Retry(_), .. })) > 3);
    assert!(count(|kind| matches!(kind, EventKind::Reissued { .. })) > 3);
    assert_eq!(report.limits.max_staleness, Some(scripted::LIMIT));
    assert!(report.to_string().starts_with("sound: "), "{report}");
}

#[test]
fn every_prefix_of_a_sound_log_is_sound() {
    let log = log();
    for end in 1..log.len() {
        assert!(verify(&log[..end]).is_clean(), "{}", verify(&log[..end]));
    }
}

#[test]
fn a_dropped_event_is_missed() {
    let sound = log();
    for index in 0..sound.len() - 1 {
        let mut log = sound.clone();
        let dropped = log.remove(index);
        caught!(log, Violation::NotDense { expected, .. } if *expected == dropped.seq);
    }
}

#[test]
fn a_record_about_a_group_that_is_dropped_and_covered_up_is_missed() {
    let sound = log();
    for (index, event) in sound.iter().enumerate() {
        let Some(group) = event.kind.group() else { continue };
        // Nothing later depends on these: a kill right before them leaves the same log.
        let settles = matches!(event.kind, EventKind::Excluded { then: Then::Drop | Then::Exhausted, .. });
        let later = sound[index + 1..].iter().any(|later| {
            later.kind.group() == Some(group)
                || matches!(&later.kind, EventKind::BatchTaken { groups, .. } if groups.iter().any(|g| g.id == *group))
        });
        if settles || !later {
            continue;
        }
        let mut log = sound.clone();
        log.remove(index);
        renumber(&mut log);
        assert!(!violations(&log).is_empty(), "{} of {group} at {} is not missed", event.kind.name(), event.seq);
    }
}

#[test]
fn two_admissions_swapped_are_caught() {
    let sound = log();
    let admitted = positions(&sound, |kind| matches!(kind, EventKind::Admitted { .. }));
    let settled = |id: &GroupId| {
        sound.iter().any(|event| match &event.kind {
            EventKind::BatchTaken { groups, .. } => groups.iter().any(|group| group.id == *id),
            EventKind::Excluded { id: excluded, .. } => excluded == id,
            _ => false,
        })
    };
    let mut swapped = 0;
    for pair in admitted.windows(2) {
        let [a, b] = *pair else { unreachable!() };
        let (mut log, ids) = (sound.clone(), [a, b].map(|index| sound[index].kind.group().unwrap().clone()));
        if !ids.iter().any(settled) {
            continue;
        }
        // The whole records, links included: only the order gives them away.
        let (kind, enablers) = (log[a].kind.clone(), log[a].enablers.clone());
        (log[a].kind, log[a].enablers) = (log[b].kind.clone(), log[b].enablers.clone());
        (log[b].kind, log[b].enablers) = (kind, enablers);
        let found = violations(&log);
        let named = found.iter().any(|violation| {
            let text = violation.to_string();
            ids.iter().any(|id| text.contains(&id.to_string()))
        });
        assert!(named, "{ids:?} swapped: {found:#?}");
        swapped += 1;
    }
    assert!(swapped > 20, "only {swapped} pairs");
}

#[test]
fn the_names_alone_of_two_admissions_swapped_are_caught_by_their_links() {
    let mut log = log();
    let admitted = positions(&log, |kind| matches!(kind, EventKind::Admitted { .. }));
    // Both groups were complete before either was admitted.
    let completed =
        |id: &GroupId| position(&log, |kind| matches!(kind, EventKind::Completed { id: found, .. } if found == id));
    let both = admitted.windows(2).find(|pair| completed(log[pair[1]].kind.group().unwrap()) < pair[0]);
    let &[a, b] = both.expect("groups waited for room") else { unreachable!() };
    let kind = log[a].kind.clone();
    log[a].kind = std::mem::replace(&mut log[b].kind, kind);
    let group = log[a].kind.group().unwrap().clone();
    caught!(log, Violation::EnablerGroup { group: found, .. } if *found == group);
}

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
fn leases_are_settled_once() {
    let sound = log();
    let leased = position(&sound, |kind| matches!(kind, EventKind::Leased { .. }));
    let group = sound[leased].kind.group().unwrap().clone();
    let mut log = sound.clone();
    log.insert(leased + 1, sound[leased].clone());
    renumber(&mut log);
    caught!(log, Violation::LeasedTwice { group: found, seq, .. } if *found == group && seq.0 == leased as u64 + 1);
    caught!(log, Violation::Unbalanced { .. });

    let excluded = position(&sound, |kind| matches!(kind, EventKind::Excluded { .. }));
    let group = sound[excluded].kind.group().unwrap().clone();
    let mut log = sound.clone();
    log.insert(excluded + 1, sound[excluded].clone());
    renumber(&mut log);
    caught!(log, Violation::SettledTwice { group: found, event: "excluded", .. } if *found == group);

    let batches = positions(&sound, |kind| matches!(kind, EventKind::BatchTaken { .. }));
    let mut log = sound.clone();
    let twice = taken(&mut log, batches[1])[0].clone();
    taken(&mut log, batches[2])[0] = twice.clone();
    caught!(log, Violation::SettledTwice { group, event: "consumed", .. } if *group == twice.id);
    caught!(log, Violation::Unbalanced { .. });

    let mut log = sound.clone();
    let completed = position(&log, |kind| matches!(kind, EventKind::Completed { .. }));
    log.insert(completed + 1, sound[completed].clone());
    renumber(&mut log);
    caught!(log, Violation::CompletedTwice { .. });

    let mut log = sound;
    let end = log.len() - 1;
    log[end].kind = EventKind::RunClosed { left: vec![twice.id.clone()] };
    caught!(log, Violation::LeftSettled { group, .. } if *group == twice.id);
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
fn retries_are_linked() {
    let sound = log();
    let retried = position(&sound, |kind| matches!(kind, EventKind::Excluded { then: Then::Retry(_), .. }));
    let EventKind::Excluded { id, then: Then::Retry(next), .. } = sound[retried].kind.clone() else { unreachable!() };

    let mut log = sound.clone();
    if let EventKind::Excluded { then, .. } = &mut log[retried].kind {
        *then = Then::Drop;
    }
    caught!(log, Violation::RetryUnlinked { group, .. } if *group == next);

    let mut log = sound.clone();
    if let EventKind::Excluded { then, .. } = &mut log[retried].kind {
        *then = Then::Retry(id.clone());
    }
    caught!(log, Violation::RetryMislinked { group, .. } if *group == id);

    let mut log = sound.clone();
    if let EventKind::Excluded { reason, .. } = &mut log[retried].kind {
        *reason = Reason::Malformed;
    }
    caught!(log, Violation::RetryForbidden { group, reason: "malformed", .. } if *group == id);

    let mut log = sound;
    let source = position(&log, |kind| matches!(kind, EventKind::Configured { operator, .. } if operator == "prompts"));
    if let EventKind::Configured { settings, .. } = &mut log[source].kind {
        settings.insert("max_attempts".to_owned(), 1_u32.into());
    }
    caught!(log, Violation::TooManyAttempts { max_attempts: 1, .. });
}

#[test]
fn sessions_time_and_links_are_in_order() {
    let sound = log();
    let mut log = sound.clone();
    log[40].session = 7;
    caught!(log, Violation::Session { seq: Seq(40), expected: 0, found: 7 });

    let mut log = sound.clone();
    log[40].at = 0;
    caught!(log, Violation::TimeBackwards { seq: Seq(40), .. });

    assert!(matches!(violations(&sound[1..])[..], [Violation::NotDense { .. }, Violation::NotOpened { .. }, ..]));

    let mut log = sound.clone();
    let completed = position(&log, |kind| matches!(kind, EventKind::Completed { .. }));
    log[completed].enablers[0].moment = anabranch_core::Moment::Event(Seq(9_999));
    caught!(log, Violation::EnablerLater { enabler: Seq(9_999), .. });
    log[completed].enablers[0].moment = anabranch_core::Moment::Event(Seq(0));
    caught!(log, Violation::EnablerKind { event: "run_opened", .. });
}
