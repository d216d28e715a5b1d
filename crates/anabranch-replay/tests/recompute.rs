//! The schedule is a pure function of the log: it can be computed again from completions, admissions, publications and
//! settings, and every change of one of these is found and named.

#[macro_use]
mod sound;

use std::sync::Arc;

use anabranch_core::{Event, EventKind, MemoryJournal, OldestVersion, Order, Reason, Version};
use anabranch_replay::{Difference, recompute};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};
use proptest::prelude::*;
use sound::{log, position, positions, renumber, taken};

fn difference(log: &[Event]) -> Difference {
    recompute(log).expect_err("the change is caught")
}

/// Whether the log says something of the group after `index` that the schedule decides.
fn scheduled(log: &[Event], index: usize) -> bool {
    let group = log[index].kind.group().unwrap();
    log[index..].iter().any(|event| match &event.kind {
        EventKind::BatchTaken { groups, .. } => groups.iter().any(|taken| taken.id == *group),
        EventKind::Excluded { id, reason: Reason::Stale { .. }, .. } => id == group,
        _ => false,
    })
}

#[test]
fn the_schedule_of_a_sound_log_comes_out_the_same() {
    let log = log();
    let recomputed = recompute(&log).unwrap();
    let batches = positions(&log, |kind| matches!(kind, EventKind::BatchTaken { .. })).len() as u64;
    let stale = |kind: &EventKind| matches!(kind, EventKind::Excluded { reason: Reason::Stale { .. }, .. });
    assert_eq!(recomputed.batches, batches);
    assert_eq!(recomputed.consumed, batches * anabranch_testing::scripted::BATCH as u64);
    assert_eq!(recomputed.excluded, positions(&log, stale).len() as u64);
    assert!(recomputed.batches > 10 && recomputed.excluded > 2, "{recomputed:?}");
    for end in 0..log.len() {
        recompute(&log[..end]).unwrap_or_else(|difference| panic!("a log cut at {end}: {difference}"));
    }
}

#[test]
fn in_every_order_of_the_buffer_the_verdicts_come_out_the_same() {
    for order in [Order::Freshest, Order::Stalest] {
        let (journal, clock) = (Arc::new(MemoryJournal::new()), HandClock::default());
        let run = Run::builder("scripted").journal(journal.clone()).clock(clock.session_clock()).open().unwrap();
        let mut script = Script::ordered(run, clock, order);
        script.publish();
        script.play(40);
        let recomputed = recompute(&journal.events()).unwrap();
        assert!(recomputed.batches > 5 && recomputed.excluded > 0, "{recomputed:?}");
    }
}

#[test]
fn two_admissions_swapped_are_caught_and_named() {
    let sound = log();
    let mut swapped = 0;
    for pair in positions(&sound, |kind| matches!(kind, EventKind::Admitted { .. })).windows(2) {
        let [a, b] = *pair else { unreachable!() };
        let consumed = |index: usize| {
            let group = sound[index].kind.group();
            let takes = |kind: &EventKind| match kind {
                EventKind::BatchTaken { groups, .. } => groups.iter().any(|taken| Some(&taken.id) == group),
                _ => false,
            };
            sound.iter().any(|event| takes(&event.kind))
        };
        if !consumed(a) || !consumed(b) {
            continue;
        }
        let mut log = sound.clone();
        (log[a].kind, log[b].kind) = (sound[b].kind.clone(), sound[a].kind.clone());
        let ids = [sound[a].kind.group(), sound[b].kind.group()];
        match difference(&log) {
            Difference::Place { group, expected, .. } => {
                assert!(ids.contains(&Some(&group)) || ids.contains(&expected.as_ref()), "{group}, {ids:?}");
            }
            // The group is in the queue only after the batch that took it.
            Difference::NotQueued { group, .. } => assert!(ids.contains(&Some(&group)), "{group}, {ids:?}"),
            other => panic!("{other}"),
        }
        swapped += 1;
    }
    assert!(swapped > 20, "only {swapped} pairs");
}

#[test]
fn a_changed_span_is_caught_and_named() {
    let sound = log();
    let mut changed = 0;
    for index in positions(&sound, |kind| matches!(kind, EventKind::Completed { .. })) {
        if !scheduled(&sound, index) {
            continue;
        }
        let mut log = sound.clone();
        let EventKind::Completed { id, summary, .. } = &mut log[index].kind else { unreachable!() };
        let Some(OldestVersion::Known(oldest)) = summary.oldest() else { continue };
        let Some(older) = oldest.0.checked_sub(1) else { continue };
        summary.samples[0].oldest = Some(OldestVersion::Known(Version(older)));
        let id = id.clone();
        match difference(&log) {
            Difference::Gap { group, .. } | Difference::Verdict { group, .. } | Difference::Position { group, .. } => {
                assert_eq!(group, id);
            }
            other => panic!("{id}: {other}"),
        }
        changed += 1;
    }
    assert!(changed > 20, "only {changed} spans");
}

#[test]
fn a_moved_publication_is_caught_and_named() {
    let sound = log();
    let mut moved = 0;
    for index in positions(&sound, |kind| matches!(kind, EventKind::Published { .. })) {
        // Past the next thing that it is judged by.
        let judged = sound[index..].iter().position(|event| match &event.kind {
            EventKind::BatchTaken { .. } => true,
            EventKind::Excluded { reason, .. } => matches!(reason, Reason::Stale { .. }),
            _ => false,
        });
        let Some(judged) = judged else { continue };
        let mut log = sound.clone();
        let published = log.remove(index);
        log.insert(index + judged, published);
        renumber(&mut log);
        let found = difference(&log);
        let at = log[index + judged - 1].seq;
        assert_eq!(found.seq(), at, "{found}");
        let named = matches!(
            found,
            Difference::Version { .. } | Difference::Gap { .. } | Difference::Verdict { .. } | Difference::Place { .. }
        );
        assert!(named, "{found}");
        moved += 1;
    }
    assert!(moved > 5, "only {moved} publications");
}

#[test]
fn a_changed_batch_is_caught_and_named() {
    let sound = log();
    let batch = positions(&sound, |kind| matches!(kind, EventKind::BatchTaken { .. }))[4];
    let changed = |change: fn(&mut EventKind)| {
        let mut log = sound.clone();
        change(&mut log[batch].kind);
        difference(&log)
    };
    let found = changed(|kind| {
        if let EventKind::BatchTaken { groups, .. } = kind {
            groups.swap(1, 2);
        }
    });
    assert!(matches!(found, Difference::Place { place: 2, .. }), "{found}");
    let found = changed(|kind| {
        if let EventKind::BatchTaken { groups, .. } = kind {
            groups[0].gap = groups[0].gap.map(|gap| gap + 1);
        }
    });
    assert!(matches!(found, Difference::Gap { .. }), "{found}");
    let found = changed(|kind| {
        if let EventKind::BatchTaken { digest, .. } = kind {
            digest.0[7] ^= 1;
        }
    });
    assert!(matches!(found, Difference::BatchDigest { .. }), "{found}");
    let found = changed(|kind| {
        if let EventKind::BatchTaken { version, .. } = kind {
            *version = version.map(|version| Version(version.0 + 1));
        }
    });
    assert!(matches!(found, Difference::Version { .. }), "{found}");
    let mut log = sound.clone();
    taken(&mut log, batch).pop();
    let found = difference(&log);
    assert!(matches!(found, Difference::BatchDigest { .. } | Difference::Size { .. }), "{found}");
    let stale = position(&sound, |kind| matches!(kind, EventKind::Excluded { reason: Reason::Stale { .. }, .. }));
    let mut log = sound.clone();
    let EventKind::Excluded { reason: Reason::Stale { gap }, .. } = &mut log[stale].kind else { unreachable!() };
    *gap += 1;
    let found = difference(&log);
    assert!(matches!(found, Difference::Gap { .. }) && found.seq() == sound[stale].seq, "{found}");
}

proptest! {
    #![proptest_config(anabranch_testing::pipeline::cases(60))]

    /// On real pipelines of all kinds: a limit that was another one changes a verdict, where it changes any.
    #[test]
    fn another_limit_is_caught(
        (script, mut settings) in (anabranch_testing::pipeline::script(12), anabranch_testing::pipeline::any_settings()),
        limit in 0..3_u64,
    ) {
        settings.max_staleness = Some(limit);
        let sound = script.events(&settings);
        let recomputed = recompute(&sound).unwrap();
        let mut log = sound.clone();
        for event in &mut log {
            if let EventKind::Configured { operator, settings } = &mut event.kind && operator == "fresh" {
                settings.insert("max_staleness".to_owned(), (limit + 1).into());
            }
        }
        let over = sound.iter().any(|event| {
            matches!(event.kind, EventKind::Excluded { reason: Reason::Stale { gap }, .. } if gap == limit + 1)
        });
        prop_assert!(recomputed.excluded > 0 || !over);
        match recompute(&log) {
            Err(found) => prop_assert!(matches!(found, Difference::Verdict { .. }), "{}", found),
            Ok(_) => prop_assert!(!over, "a group of gap {} is excluded within the limit", limit + 1),
        }
    }
}
