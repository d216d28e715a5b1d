//! What-if answers agree with what the scripted pipeline does under the other settings.

use std::cell::Cell;
use std::collections::BTreeSet;

use anabranch_core::{Event, EventKind, WeightSync};
use anabranch_replay::{Fate, Order, Settings};
use anabranch_testing::pipeline::{
    Delays, Script, any_settings, cases, first_difference, happened, predicted, record, script, steps,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Milliseconds of a token: no two moments of a run fall together, but those that the pipeline makes.
const APART: u64 = 100_000;

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn with_the_recorded_settings_the_prediction_is_the_log((script, settings) in (script(APART), any_settings())) {
        let events = script.events(&settings);
        if steps(&events).is_empty() {
            return Ok(());
        }
        let recording = record(&events);
        let prediction = recording.predict(recording.settings(), 1).unwrap();
        let difference = first_difference(&happened(&events), &predicted(&prediction));
        prop_assert!(difference.is_none(), "{}", difference.unwrap());
        let told: Vec<_> = prediction.steps.iter().map(|s| (s.taken_ns, s.stepped_ns, s.published_ns)).collect();
        prop_assert_eq!(told, steps(&events));
        let modelled = prediction.outcome.modelled;
        prop_assert_eq!((modelled.groups.part, modelled.steps.part, modelled.publications.part), (0, 0, 0));
        prop_assert_eq!(prediction.outcome.wall_ns, events.last().unwrap().at);
        let reproduction = recording.reproduction().unwrap();
        let all = happened(&events).len() as u64;
        prop_assert_eq!((reproduction.fates.part, reproduction.times.part, reproduction.first), (all, all, None));
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// A log may end anywhere: what it shows up to its last step is told as it was. (With a slot a sample it does not
    /// show the ends of single samples of groups that never completed.)
    #[test]
    fn a_log_that_was_cut_off_is_replayed_up_to_its_last_step(
        (script, settings) in (script(APART), any_settings()),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut events = script.events(&Settings { slot_per_sample: false, ..settings });
        let first = events.iter().position(|event| matches!(event.kind, EventKind::Stepped { .. }));
        let Some(first) = first else { return Ok(()) };
        events.truncate(first + 1 + cut.index(events.len() - first));
        let closed = matches!(events.last().unwrap().kind, EventKind::RunClosed { .. });
        let recording = record(&events);
        let stepped = steps(&events).iter().filter(|step| step.1 > 0).count() as u64;
        prop_assert_eq!(recording.settings().steps, (!closed).then_some(stepped));
        let reproduction = recording.reproduction().unwrap();
        prop_assert_eq!(reproduction.fates.part, reproduction.fates.of, "{:?}", reproduction.first);
        prop_assert_eq!(reproduction.times.part, reproduction.times.of, "{:?}", reproduction.first);
        prop_assert!(reproduction.fates.of >= stepped, "every batch has groups");
        prop_assert_eq!(recording.outcome(recording.settings(), 0).unwrap().steps, stepped);
    }

    /// No group leaves the buffer while one that comes first is in it.
    #[test]
    fn groups_leave_in_the_order_asked_for(
        (script, settings) in (script(APART), any_settings()),
        capacity in 2..9_usize,
        freshest in any::<bool>(),
    ) {
        let events = script.events(&settings);
        if steps(&events).is_empty() {
            return Ok(());
        }
        let order = if freshest { Order::Freshest } else { Order::Stalest };
        let asked = Settings { capacity: Some(capacity), order, ..settings };
        let prediction = record(&events).predict(&asked, 0).unwrap();
        let buffered: Vec<(u64, u64, u64)> = prediction
            .groups
            .iter()
            .filter_map(|group| Some((group.admitted_ns?, group.dequeued_ns.unwrap_or(u64::MAX), group.oldest?)))
            .collect();
        for &(_, left, oldest) in buffered.iter().filter(|(_, left, _)| *left < u64::MAX) {
            let first = |other: u64| if freshest { other > oldest } else { other < oldest };
            let passed = buffered.iter().find(|(came, leaves, other)| *came < left && left < *leaves && first(*other));
            prop_assert!(passed.is_none(), "{oldest} left at {left} before {passed:?}");
        }
    }

    /// Samples that a publication aborts end in an order that no log tells; without retries nothing depends on it.
    #[test]
    fn an_aborting_publication_strikes_what_it_struck((script, settings) in (script(APART), any_settings())) {
        let settings = Settings { mode: Some(WeightSync::Abort), max_attempts: None, ..settings };
        let events = script.events(&settings);
        if steps(&events).is_empty() {
            return Ok(());
        }
        let recording = record(&events);
        let prediction = recording.predict(recording.settings(), 1).unwrap();
        let difference = first_difference(&happened(&events), &predicted(&prediction));
        prop_assert!(difference.is_none(), "{}", difference.unwrap());
        prop_assert_eq!(prediction.outcome.modelled.groups.part, 0);
    }
}

fn delays() -> impl Strategy<Value = Delays> {
    let up_to = |most: u64| prop_oneof![Just(0), 1..most];
    (up_to(2 * APART), up_to(APART / 10), up_to(2 * APART), any::<bool>())
        .prop_map(|(scoring, ack, between, late_tokens)| Delays { scoring, ack, between, late_tokens })
}

/// Two groups whose records become durable together wait for the learner's loop; the later one is stale, and so is told
/// of before the batch that has the other.
#[test]
fn groups_that_were_admitted_together_leave_in_their_order() {
    let delays = Delays { scoring: 93_392, ack: 7_211, between: 65_210, late_tokens: false };
    let script = Script {
        rows: 35,
        pace: APART,
        tokens: 1,
        training: 70_394,
        steady: false,
        install: 0,
        aborts: 36,
        filter: 6,
        seed: 11_764_082_710_194_031_939,
        delays,
    };
    let settings = Settings {
        in_flight: 2,
        samples: 3,
        capacity: Some(2),
        max_staleness: Some(1),
        emit_partial: true,
        max_attempts: Some(2),
        ..anabranch_testing::pipeline::settings()
    };
    let events = script.events(&settings);
    let happened = happened(&events);
    let [first, second] = [(34, 0), (32, 0)].map(|group| &happened[&group]);
    assert!(first.admitted == second.admitted && first.dequeued == second.dequeued, "{first:?} {second:?}");
    let recording = record(&events);
    let prediction = recording.predict(recording.settings(), 1).unwrap();
    assert_eq!(first_difference(&happened, &predicted(&prediction)), None);
}

/// Returns whether a sample ended at the very moment at which its engine paused or resumed, or a lease went out when it
/// paused. If rewards and acknowledgements come later, the log does not tell which of the two came first.
fn coincides(events: &[Event]) -> bool {
    let (mut paused, mut resumed) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        match event.kind {
            EventKind::Published { pause_began, .. } => paused.insert(pause_began),
            EventKind::GenerationResumed { .. } => resumed.insert(event.at),
            _ => false,
        };
    }
    events.iter().any(|event| match &event.kind {
        EventKind::Leased { .. } => paused.contains(&event.at),
        EventKind::Completed { summary, .. } => {
            let mut ends = summary.samples.iter().filter_map(|sample| sample.times.ended);
            ends.any(|ended| paused.contains(&ended) || resumed.contains(&ended))
        }
        _ => false,
    })
}

proptest! {
    #![proptest_config(cases(400))]

    /// Rewards, acknowledgements and the loop around the pipeline take time, and first tokens are told late.
    #[test]
    fn delays_of_all_kinds_are_replayed((script, settings, delays) in (script(APART), any_settings(), delays())) {
        // Without a buffer the log does not tell when the record of a group became durable.
        let ack = if settings.capacity.is_some() { delays.ack } else { 0 };
        let script = Script { delays: Delays { ack, ..delays }, ..script };
        let events = script.events(&settings);
        // Nor does it tell when a group left in an unfinished batch was taken out of the buffer.
        let left = happened(&events).values().any(|group| group.fate == Some(Fate::Left));
        if steps(&events).is_empty() || (left && script.delays.between > 0) || coincides(&events) {
            return Ok(());
        }
        let recording = record(&events);
        let prediction = recording.predict(recording.settings(), 1).unwrap();
        let difference = first_difference(&happened(&events), &predicted(&prediction));
        prop_assert!(difference.is_none(), "{}", difference.unwrap());
        let told: Vec<_> = prediction.steps.iter().map(|s| (s.taken_ns, s.stepped_ns, s.published_ns)).collect();
        prop_assert_eq!(told, steps(&events));
    }
}

/// If the log has all work that the other settings need, the answer is exactly what the pipeline does.
#[test]
fn with_other_settings_the_prediction_is_what_happens() {
    let compared = Cell::new(0);
    let strategy = (script(APART), any_settings(), any_settings());
    let run = |(script, settings, others): (Script, Settings, Settings)| {
        let others = Settings { samples: settings.samples, ..others };
        let events = script.events(&settings);
        if steps(&events).is_empty() {
            return Ok(());
        }
        let prediction = record(&events).predict(&others, 1).unwrap();
        let modelled = prediction.outcome.modelled;
        if modelled.groups.part > 0 || (modelled.steps.part > 0 && !script.steady) {
            return Ok(());
        }
        let events = script.events(&others);
        let difference = first_difference(&happened(&events), &predicted(&prediction));
        prop_assert!(difference.is_none(), "{}", difference.unwrap());
        let told: Vec<_> = prediction.steps.iter().map(|s| (s.taken_ns, s.stepped_ns, s.published_ns)).collect();
        prop_assert_eq!(told, steps(&events));
        prop_assert_eq!(prediction.outcome.wall_ns, events.last().unwrap().at);
        compared.set(compared.get() + 1);
        Ok(())
    };
    TestRunner::new(cases(600)).run(&strategy, run).unwrap();
    assert!(compared.get() > 200, "only {} of 600 cases needed no unrecorded work", compared.get());
}
