//! The demo is killed while it trains and started again with the same command. It resumes: no group is lost or trained
//! twice, versions and steps continue, and the log proves it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anabranch::parquet::Segments;
use anabranch::replay::verify;
use anabranch::{Event, EventKind};

use demo::{demo, events, kill_after, succeeded};

mod demo;

const STEPS: u64 = 9;
const FLAGS: [&str; 8] = ["--steps", "9", "--in-flight", "4", "--capacity", "6", "--checkpoint-every", "4"];

fn count(events: &[Event], name: &str) -> usize {
    events.iter().filter(|event| event.kind.name() == name).count()
}

#[test]
fn a_killed_demo_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");

    kill_after(&run_dir, 2, &FLAGS);
    kill_after(&run_dir, 6, &FLAGS);
    let killed = events(&run_dir);
    assert!(verify(&killed).is_clean(), "{}", verify(&killed));
    assert_eq!(count(&killed, "run_closed"), 0);

    let text = succeeded(&demo(&run_dir, &FLAGS).output().unwrap());
    assert!(text.contains("resuming the run"), "{text}");
    let last = text.trim_end().lines().last().unwrap();
    let parts: Vec<&str> = last.split(" | ").collect();
    assert!(parts[0].starts_with("accuracy ") && parts[0].contains("% -> "), "{last}");
    assert_eq!(parts[1], format!("steps {STEPS}"), "{last}");
    assert!(parts[2].starts_with("wall ") && parts[2].ends_with('s'), "{last}");
    assert_eq!(parts[3], format!("log {}", run_dir.display()), "{last}");

    let all = events(&run_dir);
    assert!(verify(&all).is_clean(), "{}", verify(&all));
    assert_eq!(all[..killed.len()], killed[..], "events logged before the kill are unchanged");
    assert_eq!((count(&all, "run_resumed"), count(&all, "run_closed")), (2, 1));
    let mut consumed = BTreeMap::new();
    let (mut stepped, mut published) = (Vec::new(), Vec::new());
    for event in &all {
        match &event.kind {
            EventKind::BatchTaken { groups, .. } => {
                for group in groups {
                    *consumed.entry(group.id.clone()).or_insert(0) += 1;
                }
            }
            EventKind::Stepped { step, .. } => stepped.push(step.0),
            EventKind::Published { version, .. } => published.push(version.0),
            EventKind::Restepped { equal, step, .. } => assert!(equal, "step {step} gave other weights"),
            _ => {}
        }
    }
    assert!(consumed.values().all(|&times| times == 1), "{consumed:?}");
    assert_eq!(stepped, (1..=STEPS).collect::<Vec<_>>());
    assert!(published.is_sorted_by(|a, b| a < b), "{published:?}");

    let sealed: Vec<Event> =
        Segments::open(run_dir.join("parquet")).unwrap().reader().events().map(Result::unwrap).collect();
    assert_eq!(sealed, all, "the Parquet segments hold the whole log, once");

    let text = succeeded(&demo(&run_dir, &FLAGS).output().unwrap());
    assert!(text.contains("has finished its 9 steps") && text.contains("--steps"), "{text}");
}

#[test]
fn bad_input_names_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("damaged.jsonl");
    std::fs::write(
        &damaged,
        "{\"prompt\":\"3142=\",\"answer\":\"1234\"}\n{\"prompt\":\"31x2=\",\"answer\":\"1234\"}\n",
    )
    .unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["--train", damaged.to_str().unwrap()], "damaged.jsonl:2"),
        (&["--device", "tpu"], "--device"),
        (&["--steps", "0"], "--steps"),
        (&["--group-size", "1"], "--group-size"),
    ];
    for (arguments, expected) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_async_grpo"));
        let datasets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets");
        let run_dir = dir.path().join("run");
        command.arg("--held-out").arg(datasets.join("sort4-held-out.jsonl")).arg("--run-dir").arg(&run_dir);
        if arguments[0] != "--train" {
            command.arg("--train").arg(datasets.join("sort4.jsonl"));
        }
        let output = command.args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(expected), "{arguments:?}: {errors}");
        assert!(!run_dir.exists(), "{arguments:?} touched the run");
    }
}
