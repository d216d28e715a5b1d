//! `timeline`: the trace is valid JSON, its bars nest, and its numbers are those of the log.

mod recorded;
mod runs;

use std::collections::BTreeMap;
use std::path::Path;

use anabranch_core::{Event, EventKind, OldestVersion, SampleSummary};
use runs::{answer, complaint, events, files, json, killed, killed_while_training};
use serde_json::Value;

/// A bar: start, end, name, arguments; in nanoseconds.
#[derive(Clone, Debug)]
struct Bar {
    start: u64,
    end: u64,
    name: String,
    args: Value,
}

fn nanos(event: &Value, field: &str) -> u64 {
    (event[field].as_f64().unwrap_or_else(|| panic!("{field} of {event}")) * 1e3).round() as u64
}

/// Bars by lane.
type Lanes = BTreeMap<(u64, u64), Vec<Bar>>;

/// The bars of each lane and the counter, after a check of everything that a viewer relies on.
fn check(trace: &Value) -> (Lanes, Vec<(u64, u64)>) {
    let mut lanes = Lanes::new();
    let (mut counter, mut named) = (Vec::new(), Vec::new());
    for event in trace["traceEvents"].as_array().unwrap() {
        let lane = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        match event["ph"].as_str().unwrap() {
            "M" => named.push(lane),
            "X" => {
                let start = nanos(event, "ts");
                let (name, args) = (event["name"].as_str().unwrap().to_owned(), event["args"].clone());
                lanes.entry(lane).or_default().push(Bar { start, end: start + nanos(event, "dur"), name, args });
            }
            "C" => counter.push((nanos(event, "ts"), event["args"]["groups"].as_u64().expect("never below 0"))),
            "i" => assert!(event["ts"].is_number() && event["s"] == "p", "{event}"),
            other => panic!("{other}"),
        }
    }
    for (lane, bars) in &lanes {
        assert!(named.contains(lane), "{lane:?} has no name");
        // Bars of a lane come in order, and each lies within those that are open when it begins.
        let mut open: Vec<&Bar> = Vec::new();
        let mut before = 0;
        for bar in bars {
            assert!(bar.start >= before, "{bar:?} begins before the one before it");
            before = bar.start;
            while open.last().is_some_and(|outer| outer.end <= bar.start && outer.end < bar.end.max(bar.start + 1)) {
                open.pop();
            }
            if let Some(outer) = open.last() {
                assert!(bar.end <= outer.end, "{bar:?} ends after {outer:?}, in which it begins");
            }
            open.push(bar);
        }
    }
    assert!(counter.is_sorted_by_key(|(at, _)| *at), "{counter:?}");
    (lanes, counter)
}

fn traced(run: &Path) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let answered = json(0, &[&"timeline", &run, &"-o", &file, &"--json"]);
    let trace: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(answered["trace_events"], trace["traceEvents"].as_array().unwrap().len());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    let piped = answer(0, &[&"timeline", &run, &"-o", &"-"]);
    assert_eq!(serde_json::from_str::<Value>(&piped).unwrap(), trace);
    trace
}

const GENERATION: u64 = 2;
const LEARNER: (u64, u64) = (4, 0);
const PUBLICATIONS: (u64, u64) = (5, 0);

fn samples(lanes: &Lanes) -> Vec<&Bar> {
    let bars = lanes.iter().filter(|((group, _), _)| *group == GENERATION).flat_map(|(_, bars)| bars);
    bars.filter(|bar| bar.args["sample"].is_number()).collect()
}

#[test]
fn a_pipeline_is_drawn_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let events = recorded::seal(folder.path(), recorded::LIMIT, |_| {});
    let (lanes, counter) = check(&traced(folder.path()));

    // Four groups of two samples run at once: eight slots, and each sample runs when the log says.
    let slots = lanes.keys().filter(|(group, _)| *group == GENERATION).count();
    assert_eq!(slots, 8);
    let mut expected: Vec<(String, u64, u64)> = Vec::new();
    for event in &events {
        let EventKind::Completed { id, summary, .. } = &event.kind else { continue };
        for (sample, index) in summary.samples.iter().zip(0..) {
            let Some(submitted) = sample.times.submitted else { continue };
            expected.push((format!("{id} [{index}]"), submitted, sample.times.ended.unwrap()));
        }
    }
    let mut drawn: Vec<_> = samples(&lanes).iter().map(|bar| (bar.name.clone(), bar.start, bar.end)).collect();
    expected.sort();
    drawn.sort();
    assert_eq!(drawn, expected);

    // A sample that two versions wrote is split at the moment when the second was installed.
    let installed: BTreeMap<u64, u64> = events.iter().filter_map(published).collect();
    let versions = lanes.iter().filter(|((group, _), _)| *group == GENERATION).flat_map(|(_, bars)| bars);
    let versions: Vec<&Bar> = versions.filter(|bar| bar.args["version"].is_number()).collect();
    let starts: Vec<u64> = drawn.iter().map(|(_, start, _)| *start).collect();
    let split: Vec<_> = versions.iter().filter(|bar| !starts.contains(&bar.start)).collect();
    assert!(!split.is_empty(), "some sample saw a publication");
    for bar in split {
        assert_eq!(bar.start, installed[&bar.args["version"].as_u64().unwrap()], "{bar:?}");
    }
    // A sample that several versions wrote shows them one after another, from the oldest to the newest.
    let mut crossed = 0;
    for (name, oldest, newest) in events.iter().flat_map(versions_of) {
        let bars = lanes.values().find(|bars| bars.iter().any(|bar| bar.name == name)).unwrap();
        let place = bars.iter().position(|bar| bar.name == name).unwrap();
        let within = bars[place + 1..].iter().take_while(|bar| bar.args["version"].is_number());
        let within: Vec<(u64, &Bar)> = within.map(|bar| (bar.args["version"].as_u64().unwrap(), bar)).collect();
        assert_eq!(
            within.first().map(|(version, bar)| (*version, bar.start)),
            Some((oldest, bars[place].start)),
            "{name}"
        );
        assert_eq!(within.last().map(|(version, bar)| (*version, bar.end)), Some((newest, bars[place].end)), "{name}");
        assert!(
            within.is_sorted_by(|(a, before), (b, after)| a < b && before.end == after.start),
            "{name}: {within:?}"
        );
        crossed += 1;
    }
    assert!(crossed > 4, "{crossed} samples that several versions wrote");

    let audit = anabranch_replay::audit(&events);
    let total = |lane: (u64, u64), name: &str| {
        let bars = lanes[&lane].iter().filter(|bar| bar.name.starts_with(name) && bar.args["open"] != true);
        bars.map(|bar| bar.end - bar.start).sum::<u64>()
    };
    assert_eq!(total(LEARNER, "wait"), audit.learner.wait.total_ns);
    assert_eq!(total(LEARNER, "step"), audit.learner.training.total_ns);
    assert_eq!(total(PUBLICATIONS, "generation paused"), audit.publications.pause.total_ns);
    assert_eq!(counter.iter().map(|(_, groups)| *groups).max(), Some(recorded::CAPACITY));
}

/// The samples of a completed group that several versions wrote: name, oldest and newest.
fn versions_of(event: &Event) -> Vec<(String, u64, u64)> {
    let EventKind::Completed { id, summary, .. } = &event.kind else { return Vec::new() };
    let several = |(sample, index): (&SampleSummary, u32)| match (sample.oldest, sample.newest) {
        (Some(OldestVersion::Known(oldest)), Some(newest)) if oldest < newest => {
            Some((format!("{id} [{index}]"), oldest.0, newest.0))
        }
        _ => None,
    };
    summary.samples.iter().zip(0..).filter_map(several).collect()
}

fn published(event: &Event) -> Option<(u64, u64)> {
    if let EventKind::Published { version, .. } = event.kind { Some((version.0, event.at)) } else { None }
}

#[test]
fn a_killed_run_ends_with_its_last_event() {
    let run = tempfile::tempdir().unwrap();
    killed_while_training(run.path());
    let end = events(run.path()).last().unwrap().at;
    let (lanes, _) = check(&traced(run.path()));
    let open: Vec<&Bar> = lanes.values().flatten().filter(|bar| bar.args["open"] == true).collect();
    assert!(open.iter().all(|bar| bar.end == end), "{open:?}");
    let named = |part: &str| open.iter().filter(|bar| bar.name.contains(part)).count();
    let in_flight = anabranch_replay::audit(&events(run.path())).groups.in_flight as usize;
    assert_eq!((named("step "), named("publish "), named("in flight")), (1, 1, in_flight));
    assert_eq!(open.len(), 2 + in_flight);
    assert!(lanes.values().flatten().all(|bar| bar.end <= end));
}

#[test]
fn sessions_follow_each_other() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    let first = events(run.path()).last().unwrap().at;
    runs::record(run.path(), 8, |_, _| {});
    let second = events(run.path()).last().unwrap().at;
    let (lanes, _) = check(&traced(run.path()));
    let last = lanes.values().flatten().map(|bar| bar.end).max().unwrap();
    assert!(last > first && last <= first + second, "{first} + {second}: {last}");
}

#[test]
fn nothing_is_written_into_the_run() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    let before = files(run.path());
    let error = complaint(&[&"timeline", &run.path(), &"-o", &run.path().join("trace.json")]);
    assert!(error.contains("is inside the run, which this command must not change"), "{error}");
    let error = complaint(&[&"timeline", &run.path(), &"-o", &"/nowhere/at/all/trace.json"]);
    assert!(error.contains("create it first"), "{error}");
    assert!(files(run.path()) == before);
}
