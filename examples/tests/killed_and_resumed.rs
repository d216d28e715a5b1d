//! The demo, killed while it trains and started again with the same command, goes on where it was: no group lost, none
//! trained twice, versions and steps continued, and its log proves it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anabranch::parquet::Segments;
use anabranch::replay::verify;
use anabranch::{Event, EventKind, ReadLog};

const STEPS: u64 = 9;

fn demo(run_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_async_grpo"));
    let datasets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets");
    command
        .arg("--train")
        .arg(datasets.join("sort4.jsonl"))
        .arg("--held-out")
        .arg(datasets.join("sort4-held-out.jsonl"));
    command.arg("--run-dir").arg(run_dir).args(["--device", "wgpu", "--steps", &STEPS.to_string()]);
    command.args([
        "--batch",
        "4",
        "--group-size",
        "4",
        "--in-flight",
        "4",
        "--capacity",
        "6",
        "--checkpoint-every",
        "4",
    ]);
    command.stdin(Stdio::null());
    command
}

/// Runs the demo until it prints its line about `step`, then kills it.
fn kill_after(run_dir: &Path, step: u64) {
    let mut child = demo(run_dir).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mark = format!("step {step:>4}");
    let reached = lines.map_while(Result::ok).any(|line| line.starts_with(&mark));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(reached, "the demo ended before it had made step {step}");
}

fn events(run_dir: &Path) -> Vec<Event> {
    ReadLog::open(run_dir).unwrap().events().collect::<Result<_, _>>().unwrap()
}

fn count(events: &[Event], name: &str) -> usize {
    events.iter().filter(|event| event.kind.name() == name).count()
}

#[test]
fn a_killed_demo_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");

    kill_after(&run_dir, 2);
    kill_after(&run_dir, 6);
    let killed = events(&run_dir);
    assert!(verify(&killed).is_clean(), "{}", verify(&killed));
    assert_eq!(count(&killed, "run_closed"), 0);

    let output = demo(&run_dir).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("going on with the run"), "{text}");
    let last = text.trim_end().lines().last().unwrap();
    let parts: Vec<&str> = last.split(" | ").collect();
    assert!(parts[0].starts_with("accuracy ") && parts[0].contains("% -> "), "{last}");
    assert_eq!(parts[1], format!("steps {STEPS}"), "{last}");
    assert!(parts[2].starts_with("wall ") && parts[2].ends_with('s'), "{last}");
    assert_eq!(parts[3], format!("log {}", run_dir.display()), "{last}");

    let all = events(&run_dir);
    assert!(verify(&all).is_clean(), "{}", verify(&all));
    assert_eq!(all[..killed.len()], killed[..], "what was logged before the kill is there, unchanged");
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
            EventKind::Restepped { equal, step, .. } => assert!(equal, "step {step} came out otherwise"),
            _ => {}
        }
    }
    assert!(consumed.values().all(|&times| times == 1), "{consumed:?}");
    assert_eq!(stepped, (1..=STEPS).collect::<Vec<_>>());
    assert!(published.is_sorted_by(|a, b| a < b), "{published:?}");

    let sealed: Vec<Event> =
        Segments::open(run_dir.join("parquet")).unwrap().reader().events().map(Result::unwrap).collect();
    assert_eq!(sealed, all, "the Parquet segments hold the whole log, once");

    let again = demo(&run_dir).output().unwrap();
    assert!(again.status.success());
    let text = String::from_utf8_lossy(&again.stdout);
    assert!(text.contains("has made its 9 steps") && text.contains("--steps"), "{text}");
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
