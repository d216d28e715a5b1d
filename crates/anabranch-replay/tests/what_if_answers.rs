//! Which questions are refused, and the form of an answer.

use anabranch_core::{Event, EventKind};
use anabranch_replay::{Order, Settings, what_if};

fn log() -> Vec<Event> {
    let script = anabranch_testing::pipeline::Script {
        rows: 60,
        pace: 1000,
        tokens: 6,
        training: 3_000,
        steady: false,
        install: 200,
        aborts: 20,
        filter: 9,
        seed: 5,
        delays: anabranch_testing::pipeline::Delays::default(),
    };
    script.events(&anabranch_testing::pipeline::settings())
}

#[test]
fn questions_no_pipeline_can_have_are_refused_by_name() {
    let events = log();
    let ask = |change: fn(&mut Settings)| what_if(&events, change, 0).unwrap_err().to_string();
    assert_eq!(ask(|settings| settings.capacity = Some(0)), "capacity: expected at least 1, found 0");
    assert_eq!(ask(|settings| settings.update_interval = Some(0)), "update_interval: expected at least 1, found 0");
    assert_eq!(ask(|settings| settings.samples = 5), "samples: expected 2 samples a group, as in the log, found 5");
    let before = events.iter().position(|event| matches!(event.kind, EventKind::Stepped { .. })).unwrap();
    let error = what_if(&events[..before], |_| {}, 0).unwrap_err();
    assert_eq!(error.to_string(), "expected at least one training step in the log, found none");
}

#[test]
fn an_answer_is_json() {
    let change = |settings: &mut Settings| (settings.order, settings.max_staleness) = (Order::Freshest, Some(0));
    let outcome = what_if(&log(), change, 3).unwrap();
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!((&json["settings"]["order"], &json["settings"]["mode"]), (&"freshest".into(), &"Retract".into()));
    assert_eq!(json["wasted"]["stale"]["groups"], outcome.wasted["stale"].groups);
    assert_eq!((&json["seed"], &json["wall_ns"]), (&3.into(), &outcome.wall_ns.into()));
    assert_eq!(
        "newest".parse::<Order>().unwrap_err().to_string(),
        "expected fifo, freshest or stalest, found `newest`"
    );
}
