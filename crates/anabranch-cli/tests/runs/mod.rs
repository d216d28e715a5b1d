//! Recorded runs, and the binary that reads them.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;

use anabranch::RunLog;
use anabranch_core::{Event, EventKind, GroupId};
use anabranch_log::{Durability, ReadLog};
use anabranch_stream::Run;
use anabranch_stream::by_hand::RunByHand;
use anabranch_testing::scripted::{HandClock, Script};
use serde_json::Value;

/// Held while a process is spawned. Between fork and exec the child shares every open file of this process, including
/// locks, so that a test that opens a run at that moment would find it locked.
static SPAWNING: Mutex<()> = Mutex::new(());

/// Spawns a process while no test opens a run.
pub fn spawn(command: &mut Command) -> Child {
    let _held = SPAWNING.lock();
    command.spawn().unwrap()
}

pub fn open(run: &Path) -> (RunLog, HandClock) {
    let _held = SPAWNING.lock();
    let clock = HandClock::default();
    let log = RunLog::options().unsealed().clock(clock.session_clock()).open(run, Durability::Process).unwrap();
    (log, clock)
}

/// Plays a run into `run` and leaves it open, killed (dropped without being closed) or closed, as `end` does.
pub fn record(run: &Path, turns: usize, end: impl FnOnce(Script, &RunLog)) {
    let (log, clock) = open(run);
    let mut script = Script::new(Run::clone(&log), clock);
    script.publish();
    script.play(turns);
    log.sync().unwrap();
    end(script, &log);
}

pub fn killed(run: &Path) {
    record(run, 20, |_, _| {});
}

/// A run killed in the middle of a training step, after a publication that was begun but never made.
pub fn killed_while_training(run: &Path) {
    record(run, 11, |mut script, log| {
        let weights = anabranch_testing::scripted::weights(anabranch_core::TrainingStep(2));
        assert!(script.take(), "enough is buffered for a batch");
        drop(script.run.begin_publication(weights, anabranch_core::WeightSync::Retract, Vec::new()));
        log.sync().unwrap();
    });
}

pub fn anabranch(arguments: &[&dyn AsRef<OsStr>]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(arguments.iter().map(AsRef::as_ref)).env_remove("NO_COLOR");
    spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())).wait_with_output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output of a command that must end with `status`.
pub fn answer(status: i32, arguments: &[&dyn AsRef<OsStr>]) -> String {
    let output = anabranch(arguments);
    assert_eq!(output.status.code(), Some(status), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Standard error of a command that must fail.
pub fn complaint(arguments: &[&dyn AsRef<OsStr>]) -> String {
    let output = anabranch(arguments);
    assert_eq!(output.status.code(), Some(2), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    text(&output.stderr)
}

pub fn json(status: i32, arguments: &[&dyn AsRef<OsStr>]) -> Value {
    serde_json::from_str(&answer(status, arguments)).unwrap()
}

/// Opens a run whose writer is gone.
pub fn read(run: &Path) -> ReadLog {
    let _held = SPAWNING.lock();
    ReadLog::open(run).unwrap()
}

pub fn events(run: &Path) -> Vec<Event> {
    read(run).events().map(Result::unwrap).collect()
}

/// The first group of the first batch.
pub fn consumed(run: &Path) -> GroupId {
    let first = |event: &Event| match &event.kind {
        EventKind::BatchTaken { groups, .. } => Some(groups[0].id.clone()),
        _ => None,
    };
    events(run).iter().find_map(first).unwrap()
}

/// Every file below `folder` and what is in it.
pub fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

/// Lines that a terminal of 100 columns would break.
pub fn assert_narrow(text: &str) {
    // The line that names the run's directory is as long as that is.
    let wide = text.lines().filter(|line| !line.contains("read  ")).find(|line| line.chars().count() > 100);
    assert_eq!(wide, None, "in\n{text}");
}
