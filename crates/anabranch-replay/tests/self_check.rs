//! The schedule of a log adds up, and every change of the schedule is found and named.

use anabranch_core::{Cause, Event, EventKind, Moment, Seq};
use anabranch_replay::{Mismatch, WhatIfError, recompute, self_check, what_if};
use anabranch_testing::pipeline::{any_settings, cases, script};
use proptest::prelude::*;

/// Milliseconds of a token: many moments fall together.
const CROWDED: u64 = 12;

/// Whether the log tells when `moment` was: a group may end after it, or stay in a batch that is never full.
fn is_told(events: &[Event], moment: Moment) -> bool {
    let of = events[moment.seq().0 as usize].kind.group();
    events.iter().any(|event| match (moment, &event.kind) {
        (Moment::Event(_), _) => true,
        (Moment::SampleEnd { .. } | Moment::Scored { .. }, EventKind::Completed { id, .. }) => Some(id) == of,
        (Moment::Dequeued { .. }, EventKind::Excluded { id, dequeued, .. }) => Some(id) == of && dequeued.is_some(),
        (Moment::Dequeued { .. }, EventKind::BatchTaken { groups, .. }) => {
            groups.iter().any(|taken| Some(&taken.id) == of)
        }
        _ => false,
    })
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn every_event_happens_when_its_last_enabler_and_delay_say((script, settings) in (script(CROWDED), any_settings())) {
        let events = script.events(&settings);
        prop_assert_eq!(self_check(&events), Ok(()));
        let batches = events.iter().filter(|event| matches!(event.kind, EventKind::BatchTaken { .. })).count();
        prop_assert_eq!(recompute(&events).map(|recomputed| recomputed.batches), Ok(batches as u64));
    }

    #[test]
    fn a_changed_delay_is_caught_and_named(
        (script, settings) in (script(CROWDED), any_settings()),
        pick in any::<prop::sample::Index>(),
        by in 1..9_u64,
    ) {
        let mut events = script.events(&settings);
        let judged: Vec<usize> = (0..events.len())
            .filter(|&index| events[index].enablers.iter().all(|enabler| is_told(&events, enabler.moment)))
            .collect();
        let open = judged[pick.index(judged.len())];
        events[open].delay += by;
        let mismatch = self_check(&events).unwrap_err();
        prop_assert_eq!(mismatch.seq(), events[open].seq, "{}", mismatch);
        prop_assert_eq!(what_if(&events, |_| {}, 0).unwrap_err(), WhatIfError::Mismatch(mismatch));
    }

    #[test]
    fn a_changed_enabler_is_caught_and_named(
        (script, settings) in (script(CROWDED), any_settings()),
        pick in any::<prop::sample::Index>(),
    ) {
        let mut events = script.events(&settings);
        // The last enabler of an event, replaced by an event of another time: its own cannot be the time it had.
        let at = |events: &[Event], moment: Moment| moment.event().map(|seq| events[seq.0 as usize].at);
        let changeable: Vec<usize> = (0..events.len())
            .filter(|&index| events[index].enablers.len() == 1 && events[index].at > 0)
            .filter(|&index| at(&events, events[index].enablers[0].moment).is_some_and(|at| at > 0))
            .collect();
        prop_assume!(!changeable.is_empty());
        let changed = changeable[pick.index(changeable.len())];
        events[changed].enablers[0].moment = Moment::Event(Seq(0));
        let mismatch = self_check(&events).unwrap_err();
        prop_assert_eq!(mismatch.seq(), events[changed].seq, "{}", mismatch);
    }
}

fn log() -> Vec<Event> {
    let script = anabranch_testing::pipeline::Script {
        rows: 40,
        pace: 50,
        tokens: 4,
        training: 90,
        steady: false,
        install: 7,
        aborts: 9,
        filter: 5,
        seed: 3,
        delays: anabranch_testing::pipeline::Delays::default(),
    };
    script.events(&anabranch_testing::pipeline::settings())
}

fn position(events: &[Event], name: &str) -> usize {
    events.iter().rposition(|event| event.kind.name() == name).unwrap()
}

#[test]
fn mismatches_print_as_sentences() {
    let events = log();
    let mut delayed = events.clone();
    let stepped = position(&events, "stepped");
    delayed[stepped].delay += 5;
    let text = self_check(&delayed).unwrap_err().to_string();
    let (seq, at) = (events[stepped].seq, events[stepped].at);
    assert!(text.starts_with(&format!("{seq} (stepped) is recorded at {at} ns")), "{text}");
    assert!(text.contains(&format!("; expected {} ns from its enablers", at + 5)), "{text}");

    let mut other = events.clone();
    let admitted = position(&events, "admitted");
    let enabler = other[admitted].enablers.iter_mut().find(|enabler| enabler.cause == Cause::Completed).unwrap();
    let first = events.iter().find(|event| event.kind.name() == "completed").unwrap().seq;
    enabler.moment = Moment::Event(first);
    let mismatch = self_check(&other).unwrap_err();
    assert!(
        matches!(mismatch, Mismatch::EnablerOther { cause: Cause::Completed, found, .. } if found == first),
        "{mismatch}"
    );

    let mut later = events.clone();
    later[stepped].enablers[0].moment = Moment::Event(events[stepped].seq);
    assert!(matches!(self_check(&later).unwrap_err(), Mismatch::EnablerLater { .. }));

    let mut missing = events.clone();
    missing.remove(admitted);
    assert!(matches!(self_check(&missing).unwrap_err(), Mismatch::NotDense { .. }));

    let mut rootless = events;
    rootless[stepped].enablers.clear();
    assert!(matches!(self_check(&rootless).unwrap_err(), Mismatch::NoEnabler { .. }));
}

#[test]
fn a_departure_before_the_admission_is_caught() {
    let mut events = log();
    let taken = position(&events, "batch_taken");
    if let EventKind::BatchTaken { groups, .. } = &mut events[taken].kind {
        groups[0].dequeued = Some(0);
    }
    let mismatch = self_check(&events).unwrap_err();
    assert!(mismatch.to_string().contains("it left the buffer at 0 ns"), "{mismatch}");
}
