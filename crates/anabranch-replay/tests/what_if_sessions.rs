//! What-if answers for runs that were killed and resumed: each restart carries over everything that is open.

use anabranch_core::{Event, EventKind, Seq, WeightSync};
use anabranch_replay::{Recorder, Settings, self_check, what_if};
use anabranch_testing::pipeline::{
    Delays, Script, any_mode, any_settings, cases, first_difference, happened, predicted, record, script, steps,
};
use proptest::prelude::*;

const APART: u64 = 100_000;

fn told_as_it_was(
    script: &Script,
    settings: &Settings,
    kills: &[u64],
    modes: &[WeightSync],
) -> Result<(), TestCaseError> {
    let events = script.sessions(&Settings { slot_per_sample: false, ..settings.clone() }, kills, modes);
    prop_assert_eq!(self_check(&events), Ok(()));
    if steps(&events).iter().all(|step| step.1 == 0) {
        return Ok(());
    }
    let recording = record(&events);
    let prediction = recording.predict(recording.settings(), 1).unwrap();
    let difference = first_difference(&happened(&events), &predicted(&prediction));
    prop_assert!(difference.is_none(), "{}", difference.unwrap());
    let reproduction = recording.reproduction().unwrap();
    prop_assert_eq!((reproduction.times.part, reproduction.first), (reproduction.times.of, None));
    prop_assert_eq!(prediction.outcome.modelled.groups.part, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..cases(200) })]

    #[test]
    fn a_run_of_several_sessions_is_told_as_it_was(
        (script, settings) in (script(APART), any_settings()),
        // Shrunk, a kill would fall together with other moments.
        kills in proptest::collection::vec(1..40 * APART, 1..7),
        modes in proptest::collection::vec(any_mode(), 0..4),
    ) {
        told_as_it_was(&script, &settings, &kills, &modes)?;
    }
}

#[test]
fn what_is_lost_twice_goes_out_again_in_the_order_of_its_first_leases() {
    // In the second session a retry goes out before what the first left in flight; in the third, both lost, after it.
    let script = Script {
        rows: 97,
        pace: APART,
        tokens: 4,
        training: 90_719,
        steady: true,
        install: 19_760,
        aborts: 23,
        filter: 8,
        seed: 12_017_875_395_860_796_817,
        delays: Delays::default(),
    };
    let settings = Settings {
        in_flight: 3,
        samples: 3,
        capacity: Some(5),
        max_staleness: Some(2),
        batch: 1,
        mode: Some(WeightSync::Drain),
        max_attempts: Some(3),
        ..anabranch_testing::pipeline::settings()
    };
    told_as_it_was(&script, &settings, &[3_110_883, 201_697, 1_347_807], &[]).unwrap();
}

#[test]
fn a_lease_lost_too_often_is_given_up_as_in_the_run() {
    // Each session after the first ends as soon as the lease in flight has gone out again.
    let (script, settings) = killed_once();
    let settings = Settings { in_flight: 1, max_attempts: Some(2), ..settings };
    let kills = [&[9 * APART][..], &[20_001; 4]].concat();
    let events = script.sessions(&settings, &kills, &[]);
    let given_up =
        |event: &&Event| matches!(&event.kind, EventKind::Completed { summary, .. } if summary.expected == 0);
    assert_eq!(events.iter().filter(given_up).count(), 1);
    told_as_it_was(&script, &settings, &kills, &[]).unwrap();
}

fn killed_once() -> (Script, Settings) {
    let script = Script {
        rows: 60,
        pace: APART,
        tokens: 6,
        training: 300_000,
        steady: false,
        install: 20_000,
        aborts: 20,
        filter: 9,
        seed: 5,
        delays: Delays::default(),
    };
    (script, Settings { slot_per_sample: false, ..anabranch_testing::pipeline::settings() })
}

#[test]
fn each_session_may_publish_under_a_mode_of_its_own() {
    let (script, settings) = killed_once();
    let kills = [1_500_000];
    let modes = [WeightSync::Retract, WeightSync::Drain];
    told_as_it_was(&script, &settings, &kills, &modes).unwrap();
    let recording = record(&script.sessions(&settings, &kills, &modes));
    assert_eq!(recording.settings().mode, None);
    let outcome = |mode| recording.outcome(&Settings { mode, ..recording.settings().clone() }, 1).unwrap();
    let stalls = [None, Some(modes[0]), Some(modes[1])].map(|mode| outcome(mode).stall.publication_slot_ns);
    assert!(stalls[1] < stalls[0] && stalls[0] < stalls[2], "a drain stalls generation for longer: {stalls:?}");
    // One that never changed is a setting like the others.
    let recording = record(&script.sessions(&settings, &kills, &[]));
    assert_eq!(recording.settings().mode, settings.mode);
}

#[test]
fn the_first_session_can_be_asked_about_alone() {
    let (script, settings) = killed_once();
    let events = script.sessions(&settings, &[1_500_000], &[]);
    let first: Vec<_> = events.iter().filter(|event| event.session == 0).cloned().collect();
    assert!(first.len() < events.len());
    let mut recorder = Recorder::of_first_session();
    for event in &events {
        recorder.push(event);
    }
    let alone = recorder.finish().unwrap();
    let outcome = alone.outcome(alone.settings(), 0).unwrap();
    assert_eq!(outcome, record(&first).outcome(alone.settings(), 0).unwrap());
    assert_ne!(outcome.steps, record(&events).outcome(&settings, 0).unwrap().steps);
}

#[test]
fn settings_that_changed_on_the_way_are_refused() {
    let (script, settings) = killed_once();
    let mut events = script.events(&settings);
    let again = events
        .iter()
        .find(|event| matches!(&event.kind, EventKind::Configured { operator, .. } if operator == "buffer"));
    let mut again = again.unwrap().clone();
    if let EventKind::Configured { settings, .. } = &mut again.kind {
        settings.insert("groups".to_owned(), 9_u64.into());
    }
    (again.seq, again.at) = (Seq(events.len() as u64), events.last().unwrap().at);
    events.push(again);
    let error = what_if(&events, |_| {}, 0).unwrap_err();
    let told = "changed on the way (`groups` of .buffer from 4 to 9)";
    assert!(error.to_string().contains(told), "{error}");
}
