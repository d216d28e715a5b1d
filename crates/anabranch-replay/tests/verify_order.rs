//! Verification knows which group must leave the buffer first, in each order.

#[macro_use]
mod sound;

use std::sync::Arc;

use anabranch_core::{Event, EventKind, MemoryJournal, Order, ResumeState, TakenGroup, resume};
use anabranch_metrics::Meter;
use anabranch_replay::{Violation, verify};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};
use sound::{position, positions, taken, violations};

fn open(journal: &Arc<MemoryJournal>, past: ResumeState, order: Order) -> Script {
    let clock = HandClock::default();
    let run = Run::builder("scripted")
        .journal(journal.clone())
        .resume(past, Meter::of(&journal.events()))
        .clock(clock.session_clock())
        .accept_changes(true)
        .open()
        .unwrap();
    Script::ordered(run, clock, order)
}

/// Two sessions, the first ended by a kill with groups in the buffer.
fn log(order: Order) -> Vec<Event> {
    sessions(order, order)
}

fn sessions(first: Order, second: Order) -> Vec<Event> {
    let journal = Arc::new(MemoryJournal::new());
    let mut script = open(&journal, ResumeState::default(), first);
    script.publish();
    script.play(40);
    script.fill();
    drop(script);
    let past = resume(journal.events()).unwrap();
    let (version, step, weights) = past.published.unwrap();
    let mut script = open(&journal, past, second);
    script.reinstall(version, step, weights);
    script.play(30);
    drop(script.run.finish());
    journal.events()
}

/// The same log, its buffer said to have another order.
fn said(order: &str, sound: &[Event]) -> Vec<Event> {
    let mut log = sound.to_vec();
    for event in &mut log {
        if let EventKind::Configured { operator, settings } = &mut event.kind
            && operator == "buffer"
        {
            settings.insert("order".to_owned(), order.into());
        }
    }
    log
}

#[test]
fn each_order_is_sound_by_its_own_rule_and_by_no_other() {
    let orders = [Order::Fifo, Order::Freshest, Order::Stalest];
    for kept in orders {
        let log = log(kept);
        for judged in orders {
            let report = verify(&said(judged.name(), &log));
            assert_eq!(report.limits.order, Some(judged));
            assert_eq!(report.is_clean(), kept == judged, "kept {kept}, judged by {judged}: {report}");
        }
        let report = verify(&said("by the moon", &log));
        assert!(report.is_clean() && report.limits.order.is_none(), "an order from elsewhere is not judged: {report}");
    }
}

#[test]
fn an_order_that_changes_between_sessions_is_judged_in_each_by_its_own() {
    let orders = [Order::Fifo, Order::Freshest, Order::Stalest];
    for (first, second) in orders.into_iter().flat_map(|first| orders.map(|second| (first, second))) {
        let report = verify(&sessions(first, second));
        assert!(report.is_clean(), "{first}, then {second}: {report}");
    }
}

#[test]
fn every_prefix_of_a_reordered_log_is_sound() {
    for order in [Order::Freshest, Order::Stalest] {
        let log = log(order);
        for end in 1..log.len() {
            assert!(verify(&log[..end]).is_clean(), "{}", verify(&log[..end]));
        }
    }
}

#[test]
fn a_group_taken_out_of_its_turn_is_caught() {
    for order in [Order::Freshest, Order::Stalest] {
        let sound = log(order);
        let batches = positions(&sound, |kind| matches!(kind, EventKind::BatchTaken { .. }));
        // Two neighbours of a batch, both in the buffer when the first left, swapped with the times at which they left.
        let was_inside = |log: &[Event], batch: usize, group: &TakenGroup, at: Option<u64>| {
            let admitted = position(log, |kind| matches!(kind, EventKind::Admitted { id } if *id == group.id));
            log[admitted].session == log[batch].session && Some(log[admitted].at) < at
        };
        let mut swapped = 0;
        for batch in batches {
            for place in 0..anabranch_testing::scripted::BATCH - 1 {
                let mut log = sound.clone();
                let groups = taken(&mut log, batch);
                let ids = [groups[place].id.clone(), groups[place + 1].id.clone()];
                let inside =
                    groups[place..place + 2].iter().all(|g| was_inside(&sound, batch, g, groups[place].dequeued));
                if !inside {
                    continue;
                }
                groups.swap(place, place + 1);
                let left = groups[place].dequeued;
                groups[place].dequeued = groups[place + 1].dequeued;
                groups[place + 1].dequeued = left;
                let found = violations(&log);
                let named = found.iter().any(|violation| match violation {
                    Violation::NotDue { group, due, order: by, .. } => {
                        *by == order && (ids.contains(group) || ids.contains(due))
                    }
                    _ => false,
                });
                assert!(named, "{ids:?} swapped: {found:#?}");
                swapped += 1;
            }
        }
        assert!(swapped > 5, "only {swapped} pairs");
    }
}

#[test]
fn a_group_that_left_before_it_came_is_caught() {
    let mut log = log(Order::Freshest);
    let batch = positions(&log, |kind| matches!(kind, EventKind::BatchTaken { .. }))[5];
    let first = &mut taken(&mut log, batch)[0];
    first.dequeued = Some(1);
    let group = first.id.clone();
    caught!(log, Violation::DequeuedUnadmitted { group: found, .. } if *found == group);
}

#[test]
fn a_batch_out_of_dequeue_order_is_caught() {
    for order in [Order::Fifo, Order::Freshest, Order::Stalest] {
        let mut log = log(order);
        let batches = positions(&log, |kind| matches!(kind, EventKind::BatchTaken { .. }));
        let groups = taken(&mut log, batches[5]);
        let (group, after) = (groups[2].id.clone(), groups[1].id.clone());
        groups[1].dequeued = groups[2].dequeued.map(|dequeued| dequeued + 1);
        caught!(log, Violation::DequeuedEarlier { group: found, after: later, .. } if *found == group && *later == after);
    }
}
