//! Faults at every step of the order of operations, each once as the death of the process and once as an error: whatever
//! failed, the log is whole and lawful, and the run then goes on to its end and trains each consumed group once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anabranch::{RunLog, RunLogOptions};
use anabranch_core::{BoxError, Dataset, Event, EventKind, Fields, GroupId, Learner};
use anabranch_log::{Durability, OpenError, ReadLog, Sealer, Segment};
use anabranch_parquet::{SegmentReader, Segments};
use anabranch_replay::{recompute, verify};
use anabranch_sim::{HashChain, Sim};
use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Samples, Unused, tokio_clock};
use futures::TryStreamExt;
use tempfile::tempdir;

const DIRECTORY: &str = "ANABRANCH_FAILING_RUN";
const POINT: &str = "ANABRANCH_FAILING_AT";
const SEED: u64 = 7;
/// What the child ends with where the pipeline ended with an error.
const REFUSED: i32 = 3;

/// Each point, and at which of its visits it strikes.
const FRESH: &[(&str, u32)] = &[
    ("database-made", 1),
    ("database-named", 1),
    ("head-made", 1),
    ("commit", 1),
    ("commit", 9),
    ("committed", 1),
    ("committed", 8),
    ("head-written", 1),
    ("head-written", 10),
    ("synced", 1),
    ("synced", 2),
    ("append-run_opened", 1),
    ("append-configured", 2),
    ("append-leased", 5),
    ("appended-leased", 5),
    ("append-completed", 4),
    ("appended-completed", 4),
    ("append-admitted", 3),
    ("appended-admitted", 3),
    ("append-excluded", 1),
    ("appended-excluded", 1),
    ("append-batch_taken", 3),
    ("appended-batch_taken", 3),
    ("append-stepped", 3),
    ("appended-stepped", 3),
    ("append-publishing", 1),
    ("append-publishing", 3),
    ("appended-publishing", 3),
    ("append-published", 1),
    ("append-published", 3),
    ("appended-published", 3),
    ("append-generation_resumed", 3),
    ("appended-generation_resumed", 3),
    ("append-checkpointed", 1),
    ("append-checkpointed", 2),
    ("appended-checkpointed", 2),
    ("append-run_closed", 1),
    ("appended-run_closed", 1),
    ("checkpoint-filled", 1),
    ("checkpoint-filled", 3),
    ("checkpoint-recorded", 2),
    ("checkpoint-rename", 1),
    ("checkpoint-rename", 3),
    ("checkpoint-renamed", 1),
    ("checkpoint-renamed", 2),
    ("checkpoint-pruned", 1),
    ("segment-written", 1),
    ("segment-written", 7),
    ("segment-rename", 3),
    ("segment-renamed", 8),
    ("manifest-written", 1),
    ("manifest-written", 2),
    ("manifest-named", 1),
];

/// The points of a resume: visited by a second session only.
const RESUMED: &[(&str, u32)] = &[
    ("commit", 1),
    ("head-written", 2),
    ("append-run_resumed", 1),
    ("append-reissued", 1),
    ("appended-reissued", 1),
    ("append-restepped", 1),
    ("appended-restepped", 1),
    ("append-reinstalled", 1),
    ("appended-reinstalled", 1),
    ("append-batch_taken", 1),
    ("append-stepped", 1),
    ("checkpoint-rename", 1),
    ("manifest-written", 1),
];

const CHECKPOINT_EVERY: u64 = 2;

fn options() -> RunLogOptions {
    let sealer = |run: &Path| -> Result<Sealer, BoxError> {
        let mut segments = Segments::open(run.join("parquet"))?;
        Ok(Sealer::new(segments.sealed_through(), move |segment: &Segment| {
            let mut payloads = segment.groups.iter().cloned();
            let next = |_: &_| payloads.next().ok_or_else(|| BoxError::from("a payload is missing"));
            segments.seal(&segment.events, next).map(|_| ()).map_err(BoxError::from)
        }))
    };
    RunLog::options().clock(tokio_clock()).keep_checkpoints(2).sealer(sealer)
}

/// A session to the end of the dataset; prints each step that it sees.
async fn session(directory: &str) -> Result<(), BoxError> {
    let run = options().open(directory, Durability::Process)?;
    let engine = Sim::random(SEED, 1..=9, 1..=20).install_time(Duration::from_millis(3));
    let rows = (0..10).map(|row| (vec![row], Fields::new())).collect();
    let mut steps = run
        .prompts(Dataset::new("d", rows)?)
        .epochs(4)
        .unused(Unused::Retry { max_attempts: 3 })
        .generate(&engine, InFlight::groups(5), Samples(2))
        .score(|response| f64::from(response.response().len() as u32))
        .admit("length", |group| group.generated() != 4)
        .log(&run)
        .buffer(Capacity::groups(4))
        .fresh(MaxStaleness(1))
        .batch(3)
        .train(run.restore(HashChain::new(SEED))?)
        .checkpoint_every(CHECKPOINT_EVERY)
        .publish_every(1, &engine);
    while let Some(step) = steps.try_next().await? {
        assert_ne!(step.equal, Some(false), "{step}");
        println!("\ntook {}", step.step.0);
    }
    drop(steps);
    Ok(run.close()?)
}

/// Not a test of its own: the process that fails.
#[test]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    if let Ok(point) = std::env::var(POINT) {
        let words: Vec<&str> = point.split(' ').collect();
        let [name, visit, fault] = words[..] else { panic!("{point}") };
        let before = visit.parse::<u32>().unwrap() - 1;
        let skip = if before == 0 { String::new() } else { format!("{before}*off->") };
        if fault == "error" {
            fail::cfg(name, &format!("{skip}1*return->off")).unwrap();
        } else {
            let (visited, name) = (std::sync::atomic::AtomicU32::new(0), name.to_owned());
            let die = move || {
                if visited.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == before {
                    eprintln!("failpoint {name}");
                    std::process::abort();
                }
            };
            fail::cfg_callback(words[0], die).unwrap();
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    if let Err(error) = runtime.block_on(session(&directory)) {
        eprintln!("refused: {error}");
        std::process::exit(REFUSED);
    }
}

fn run(directory: &Path, point: Option<&str>) -> Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["child", "--exact", "--nocapture"]).env(DIRECTORY, directory).env("RUST_BACKTRACE", "0");
    child.envs(point.map(|point| (POINT, point))).output().unwrap()
}

fn steps_taken(output: &Output) -> Vec<u64> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.strip_prefix("took ")?.parse().ok()).collect()
}

/// All events of the run, which is whole and lawful; none where it was never made.
fn events(directory: &Path, at: &str) -> Vec<Event> {
    let log = match ReadLog::open(directory) {
        Err(OpenError::NoRun { .. }) => return Vec::new(),
        opened => opened.unwrap_or_else(|error| panic!("{at}: {error}")),
    };
    let counts = log.check().unwrap_or_else(|error| panic!("{at}: {error}"));
    assert_eq!((counts.completed, log.lost()), (counts.payloads, 0), "{at}");
    let events: Vec<Event> = log.events().collect::<Result<_, _>>().unwrap();
    let report = verify(&events);
    assert!(report.is_clean(), "{at}: {report}");
    recompute(&events).unwrap_or_else(|difference| panic!("{at}: {difference}"));
    events
}

/// A session that died with a lease open and a step to be made again.
fn a_first_session(directory: &Path, at: &str) -> Vec<Event> {
    for visit in 20.. {
        assert!(visit < 36, "{at}: no session left anything to be made again");
        // The group that is completing when the process dies is still in flight to the log.
        run(directory, Some(&format!("append-completed {visit} abort")));
        let events = events(directory, at);
        // Of a step that has a checkpoint the directory may be there already, though not its record.
        let uncovered = events.iter().rev().find_map(|event| match event.kind {
            EventKind::Stepped { step, .. } => Some(!step.0.is_multiple_of(CHECKPOINT_EVERY)),
            _ => None,
        });
        // A lease that was not written when the process died was never issued.
        let mut open = BTreeSet::new();
        for event in &events {
            match &event.kind {
                EventKind::Leased { id, .. } => _ = open.insert(id),
                EventKind::Completed { id, .. } => _ = open.remove(id),
                _ => {}
            }
        }
        if uncovered == Some(true) && !open.is_empty() {
            return events;
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
    unreachable!()
}

/// Strikes at a point, then lets the run go on to its end.
fn strike(point: &str, visit: u32, fault: &str, resumed: bool) {
    let at = format!("{fault} at visit {visit} of {point}, resumed: {resumed}");
    let directory = tempdir().unwrap();
    let directory = directory.path().join("run");
    let before = if resumed { a_first_session(&directory, &at) } else { Vec::new() };
    let struck = run(&directory, Some(&format!("{point} {visit} {fault}")));
    let said = String::from_utf8_lossy(&struck.stderr).into_owned();
    assert!(said.contains(&format!("failpoint {point}")), "{at} was never reached: {said}");
    match (fault, struck.status.code()) {
        ("abort", None) => {}
        // The log tells its user at once; a seal that failed is tried again, an old checkpoint removed later.
        ("error", Some(REFUSED)) => assert!(said.contains("refused: "), "{at}: {said}"),
        ("error", Some(0)) => {
            let mended = ["segment", "manifest", "checkpoint-pruned"].iter().any(|kind| point.starts_with(kind));
            assert!(mended, "{at}: nobody was told");
        }
        (_, code) => panic!("{at}: {code:?}: {said}"),
    }
    let after = events(&directory, &at);
    assert_eq!(after[..before.len()], before[..], "{at}: what was recorded before is there, unchanged");
    for step in steps_taken(&struck) {
        let taken = |event: &Event| matches!(&event.kind, EventKind::BatchTaken { step: of, .. } if of.0 == step);
        assert!(after.iter().any(taken), "{at}: the batch of step {step} was handed out and is gone");
    }

    let finished = run(&directory, None);
    assert!(finished.status.success(), "{at}: {}", String::from_utf8_lossy(&finished.stderr));
    let log = events(&directory, &at);
    assert_eq!(log[..after.len()], after[..], "{at}");
    assert!(log.iter().any(|event| matches!(event.kind, EventKind::RunClosed { .. })), "{at}: it came to its end");
    each_group_once(&log, &at);
    let sealed = SegmentReader::open(directory.join("parquet")).unwrap();
    sealed.check_files().unwrap();
    let sealed: Vec<Event> = sealed.events().collect::<Result<_, _>>().unwrap();
    assert_eq!(sealed, log, "{at}: the segments hold the whole log, once");
}

/// G6: the surviving weights are the chain over the recorded batches, each group in one of them.
fn each_group_once(log: &[Event], at: &str) {
    let (mut consumed, mut batches, mut weights) = (BTreeMap::<GroupId, u32>::new(), Vec::new(), None);
    for event in log {
        match &event.kind {
            EventKind::BatchTaken { groups, .. } => {
                for group in groups {
                    *consumed.entry(group.id.clone()).or_default() += 1;
                }
                batches.push(groups.iter().map(|group| group.id.clone()).collect::<Vec<_>>());
            }
            EventKind::Stepped { weights: after, .. } => weights = Some(*after),
            _ => {}
        }
    }
    assert!(consumed.values().all(|&times| times == 1), "{at}: {consumed:?}");
    assert!(batches.len() > 8, "{at}: only {} batches", batches.len());
    let chain = HashChain::over(SEED, batches.iter().map(Vec::as_slice)).digest().unwrap();
    assert_eq!(weights, Some(chain), "{at}: the surviving weights");
}

#[test]
fn the_process_dies_at_every_step() {
    for (point, visit) in FRESH {
        strike(point, *visit, "abort", false);
    }
}

/// A record that fails after it was appended fails for good; if no caller waits for it, a later call reports the failure.
fn can_fail(point: &str) -> bool {
    !point.starts_with("appended-")
}

#[test]
fn every_step_fails() {
    for (point, visit) in FRESH.iter().filter(|(point, _)| can_fail(point)) {
        strike(point, *visit, "error", false);
    }
}

#[test]
fn a_resume_dies_or_fails_at_every_step() {
    for (point, visit) in RESUMED {
        strike(point, *visit, "abort", true);
    }
    for (point, visit) in RESUMED.iter().filter(|(point, _)| can_fail(point)) {
        strike(point, *visit, "error", true);
    }
}
