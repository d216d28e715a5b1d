//! Verification finds no violation in a sound log, and names every damage to sequence, leases and retries.

#[macro_use]
mod sound;

use anabranch_core::{EventKind, GroupId, Reason, Seq, Then};
use anabranch_replay::{Violation, verify};
use sound::{log, position, positions, renumber, taken, violations};

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
    assert_eq!(report.limits.max_staleness, Some(anabranch_testing::scripted::LIMIT));
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
