//! What-if answers against what the scripted pipeline really does.

use std::cell::Cell;

use anabranch_replay::Settings;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use pipeline::{any_settings, cases, first_difference, happened, predicted, record, script, steps};

mod pipeline;

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
    }
}

/// Where the log has all work that the other settings need, the answer is what the pipeline does.
#[test]
fn with_other_settings_the_prediction_is_what_happens() {
    let compared = Cell::new(0);
    let strategy = (script(APART), any_settings(), any_settings());
    let run = |(script, settings, others): (pipeline::Script, Settings, Settings)| {
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
