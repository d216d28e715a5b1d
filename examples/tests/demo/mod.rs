//! The demo in a process of its own, tiny, and what its log says.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anabranch::{Event, ReadLog};

const TINY: [&str; 6] = ["--device", "wgpu", "--batch", "4", "--group-size", "4"];

/// The demo on `run_dir`, with batches of four groups of four samples.
pub fn demo(run_dir: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_async_grpo"));
    let datasets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets");
    command
        .arg("--train")
        .arg(datasets.join("sort4.jsonl"))
        .arg("--held-out")
        .arg(datasets.join("sort4-held-out.jsonl"));
    command.arg("--run-dir").arg(run_dir).args(TINY).args(flags).stdin(Stdio::null());
    command
}

/// Runs the demo until it prints its line about `step`, then kills it.
pub fn kill_after(run_dir: &Path, step: u64, flags: &[&str]) {
    let mut child = demo(run_dir, flags).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mark = format!("step {step:>4}");
    let reached = lines.map_while(Result::ok).any(|line| line.starts_with(&mark));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(reached, "the demo ended before it had made step {step}");
}

/// What a program printed, which must have succeeded.
pub fn succeeded(output: &Output) -> String {
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    text.into_owned()
}

/// All events of the run.
pub fn events(run_dir: &Path) -> Vec<Event> {
    ReadLog::open(run_dir).unwrap().events().collect::<Result<_, _>>().unwrap()
}
