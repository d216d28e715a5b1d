//! `what-if` on recorded runs.

mod recorded;
mod runs;

use anabranch_core::EventKind;
use anabranch_replay::Recorder;
use runs::{answer, assert_narrow, complaint, files, json};
use serde_json::Value;

#[test]
fn a_grid_is_what_the_library_predicts() {
    let folder = tempfile::tempdir().unwrap();
    let events = recorded::seal(folder.path(), recorded::LIMIT, |_| {});
    let before = files(folder.path());
    let arguments: [&dyn AsRef<std::ffi::OsStr>; 10] = [
        &"what-if",
        &folder.path(),
        &"--max-staleness",
        &"none,0..2",
        &"--capacity",
        &"2,8",
        &"--unused",
        &"drop",
        &"--seed",
        &"7",
    ];
    let mut recorder = Recorder::new();
    for event in &events {
        recorder.push(event);
    }
    let recording = recorder.finish().unwrap();
    let json = json(0, &[arguments.as_slice(), &[&"--json"]].concat());
    assert_eq!(json["varied"], serde_json::json!(["max-staleness", "capacity", "unused"]));
    let points = json["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    // The answer went through text, so the expectation does too.
    let told = |outcome: &anabranch_replay::Outcome| -> serde_json::Value {
        serde_json::from_str(&serde_json::to_string(outcome).unwrap()).unwrap()
    };
    let mut place = points.iter();
    for max_staleness in [None, Some(0), Some(1), Some(2)] {
        for capacity in [2, 8] {
            let mut settings = recording.settings().clone();
            (settings.max_staleness, settings.capacity, settings.max_attempts) = (max_staleness, Some(capacity), None);
            let outcome = recording.outcome(&settings, 7).unwrap();
            let point = place.next().unwrap();
            assert_eq!(point["outcome"], told(&outcome), "{settings:?}");
            assert_eq!(point["values"][1], capacity.to_string());
        }
    }
    assert_eq!(points[0]["values"], serde_json::json!(["none", "2", "drop"]));
    let recorded = recording.outcome(recording.settings(), 7).unwrap();
    assert_eq!(json["recorded"], told(&recorded));
    assert_eq!(recorded.consumed.groups, anabranch_replay::audit(&events).groups.consumed);

    let text = answer(0, &arguments);
    assert_narrow(&text);
    let (check, table) = (text.find("self-check  the log's own schedule is consistent"), text.find("max-staleness"));
    assert!(check.unwrap() < table.unwrap(), "{text}");
    assert!(text.contains("with the recorded settings, every group ends as in the log\n"), "{text}");
    let groups = recording.groups();
    let all = serde_json::json!({ "part": groups, "of": groups });
    assert_eq!(json["reproduced"], serde_json::json!({ "fates": all, "times": all, "first": null }));
    assert!(text.contains("No answer knows what other weights would have written"), "{text}");
    assert!(files(folder.path()) == before, "a reader changed the run");
}

/// The demo's recorded run has three sessions, each with its own weight-sync mode.
#[test]
fn a_run_of_several_sessions_is_asked_about_whole_or_by_its_first() {
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../../datasets/recorded/parquet");
    let whole = json(0, &[&"what-if", &run, &"--capacity", &"8", &"--json"]);
    assert_eq!((&whole["recorded"]["settings"]["mode"], &whole["recorded"]["steps"]), (&Value::Null, &Value::from(16)));
    let first = json(0, &[&"what-if", &run, &"--capacity", &"8", &"--first-session", &"--json"]);
    assert_eq!(first["recorded"]["settings"]["mode"], "Retract");
    let steps = first["recorded"]["steps"].as_u64().unwrap();
    assert!((1..16).contains(&steps), "{steps}");
    let told =
        |answer: &Value| (answer["reproduced"]["fates"]["part"].as_u64(), answer["reproduced"]["fates"]["of"].as_u64());
    assert_eq!(told(&first).0, told(&first).1, "every group of the first session ends as in the log");
    assert!(told(&first).1 < told(&whole).1);
    // The log does not tell which samples the abort mode of the third session would hit.
    let share = whole["reproduced"]["fates"]["part"].as_f64().unwrap() / told(&whole).1.unwrap() as f64;
    assert!(share > 0.85, "{share} of all groups end as in the log");
}

#[test]
fn a_log_that_does_not_add_up_is_told_before_any_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut changed = None;
    recorded::seal(folder.path(), recorded::LIMIT, |events| {
        let event = events.iter_mut().rev().find(|event| matches!(event.kind, EventKind::Stepped { .. })).unwrap();
        event.delay += 5;
        changed = Some(event.seq);
    });
    let error = complaint(&[&"what-if", &folder.path(), &"--capacity", &"1..3"]);
    let told = format!("the log's own schedule does not add up: {} (stepped) is recorded at ", changed.unwrap());
    assert!(error.contains(&told), "{error}");
}

#[test]
fn a_heat_map_shows_two_settings() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    recorded::seal(folder.path(), recorded::LIMIT, |_| {});
    let file = elsewhere.path().join("map.svg");
    let path = folder.path();
    let ask = |more: &[&'static str]| {
        let mut arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"what-if", &path, &"--svg", &file];
        arguments.extend(more.iter().map(|argument| argument as &dyn AsRef<std::ffi::OsStr>));
        runs::anabranch(&arguments)
    };
    let output = ask(&["--max-staleness", "0..2", "--capacity", "2,4", "--measure", "gap", "--json"]);
    assert!(output.status.success(), "{}", runs::text(&output.stderr));
    let svg = std::fs::read_to_string(&file).unwrap();
    assert_eq!((svg.matches("<rect x=").count(), svg.matches("<svg").count()), (6, 1), "{svg}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for point in json["points"].as_array().unwrap() {
        let histogram = point["outcome"]["gap"]["histogram"].as_object().unwrap();
        let value = |entry: (&String, &serde_json::Value)| (entry.0.parse::<f64>().unwrap(), entry.1.as_f64().unwrap());
        let (sum, count) = histogram.iter().map(value).fold((0.0, 0.0), |(s, c), (gap, of)| (s + gap * of, c + of));
        let shown = format!(">{:.3}</text>", sum / count);
        assert!(svg.contains(&shown), "{shown} in {svg}");
    }
    std::fs::remove_file(&file).unwrap();
    let output = ask(&["--max-staleness", "0..2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        runs::text(&output.stderr).contains("expected two settings with several values each for a heat map, found 1")
    );
    assert!(!file.exists());
}

#[test]
fn wrong_questions_say_what_to_ask() {
    let folder = tempfile::tempdir().unwrap();
    recorded::seal(folder.path(), recorded::LIMIT, |_| {});
    let path = folder.path();
    for (question, told) in [
        (vec![], "expected at least one setting"),
        (vec!["--capacity", "4..1"], "whose first number is not above its last"),
        (vec!["--capacity", "x"], "a list such as 16,32,64 or a range such as 0..4, found `x`"),
        (vec!["--order", "oldest"], "expected fifo, freshest or stalest, found `oldest`"),
        (vec!["--unused", "retry"], "`retry:3` for three leases"),
        (vec!["--capacity", "0"], "capacity: expected at least 1, found 0"),
        (vec!["--max-staleness", "0..999", "--capacity", "1..999"], "found 999000: give fewer values"),
    ] {
        let mut arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"what-if", &path];
        arguments.extend(question.iter().map(|argument| argument as &dyn AsRef<std::ffi::OsStr>));
        let error = complaint(&arguments);
        assert!(error.contains(told), "{question:?}: {error}");
    }
}
