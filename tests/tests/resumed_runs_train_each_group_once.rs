//! The pipeline of a run is dropped again and again, and each time the run resumes from its log. The engine is
//! scripted, and the weights of the learner are a hash chain over the groups it trained on. At the end the weights
//! equal the chain over the recorded batches, whenever the pipeline was dropped.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anabranch::parquet::Segments;
use anabranch::prelude::*;
use anabranch::replay::verify;
use anabranch::sim::{HashChain, Sim};
use anabranch::{BoxError, Digest, Event, EventKind, Fields, GroupId, ReadLog, RunLogOptions, publish, salvage};

const SEED: u64 = 11;
const BATCH: usize = 3;

fn dataset() -> Dataset {
    Dataset::new("d", (0..10).map(|row| (vec![row], Fields::new())).collect()).expect("ten rows")
}

/// Runs one session: after `stop` steps the pipeline is dropped while groups are in flight. Returns whether the dataset
/// was used up, and the learner's digest after the last step.
async fn session(dir: &Path, stop: usize) -> Result<(bool, Option<Digest>), BoxError> {
    session_with(dir, stop, RunLog::options()).await
}

async fn session_with(dir: &Path, stop: usize, options: RunLogOptions) -> Result<(bool, Option<Digest>), BoxError> {
    let run = options.open(dir, Durability::Process)?;
    let engine = Sim::random(SEED, 1..=9, 1..=20).install_time(Duration::from_millis(3));
    let mut steps = run
        .prompts(dataset())
        .epochs(20)
        .shuffle(SEED)
        .unused(Unused::Retry { max_attempts: 3 })
        .generate(&engine, InFlight::groups(5), Samples(2))
        .score(|response| f64::from(response.response().len() as u32))
        .admit("length", |group| group.generated() != 4)
        .log(&run)
        .buffer(Capacity::groups(4))
        .fresh(MaxStaleness(1))
        .batch(BATCH)
        .train(run.restore(HashChain::new(SEED))?)
        .checkpoint_every(4)
        .publish_every(2, &engine);
    let mut digest = None;
    for _ in 0..stop {
        let Some(step) = steps.try_next().await? else {
            drop(steps);
            run.close()?;
            return Ok((true, digest));
        };
        assert_ne!(step.equal, Some(false), "{step}");
        digest = Some(step.weights);
    }
    drop(steps);
    run.close()?;
    Ok((false, digest))
}

fn events(dir: &Path) -> Vec<Event> {
    ReadLog::open(dir).expect("a log").events().collect::<Result<_, _>>().expect("events")
}

#[tokio::test(start_paused = true)]
async fn a_run_torn_down_anywhere_trains_each_group_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run");
    let mut last = None;
    // Replayed steps are yielded too, so that every session sees at least those after its checkpoint.
    for stop in [1, 3, 2, 7, 6, 5, 9, 8, 1000] {
        let (ended, digest) = session(&path, stop).await.expect("a session");
        last = digest.or(last);
        let log = events(&path);
        let report = verify(&log);
        assert!(report.is_clean(), "after a session of {stop} steps: {report}");
        assert!(!ended || stop == 1000, "the dataset was used up too early to show anything");
    }

    let log = events(&path);
    let mut consumed: BTreeMap<GroupId, u32> = BTreeMap::new();
    let (mut batches, mut stepped) = (Vec::new(), Vec::new());
    for event in &log {
        match &event.kind {
            EventKind::BatchTaken { groups, .. } => {
                batches.push(groups.iter().map(|group| group.id.clone()).collect::<Vec<_>>());
                for group in groups {
                    *consumed.entry(group.id.clone()).or_default() += 1;
                }
            }
            EventKind::Stepped { step, .. } => stepped.push(step.0),
            _ => {}
        }
    }
    assert!(consumed.values().all(|&times| times == 1), "{consumed:?}");
    assert_eq!(stepped, (1..=batches.len() as u64).collect::<Vec<_>>());
    let chain = HashChain::over(SEED, batches.iter().map(Vec::as_slice)).digest().expect("a digest");
    assert_eq!(last, Some(chain), "the surviving weights are the chain over the recorded batches");
    assert!(log.iter().any(|event| event.kind.name() == "restepped"), "no session had to train again from the log");
    assert!(log.iter().any(|event| event.kind.name() == "reinstalled"), "no session installed weights again");

    let sealed: Vec<Event> = Segments::open(path.join("parquet"))
        .expect("segments")
        .reader()
        .events()
        .collect::<Result<_, _>>()
        .expect("sealed events");
    assert_eq!(sealed, log, "the Parquet segments hold the whole log, once");
}

/// Retention drops payloads that only checkpoint 0 needs. If the later checkpoints are damaged, training still begins
/// from checkpoint 0, with the payloads in the segments.
#[tokio::test(start_paused = true)]
async fn with_every_later_checkpoint_damaged_it_trains_again_from_the_first_on_sealed_payloads() {
    const STEPS: usize = 10;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run");
    let options = || RunLog::options().keep_checkpoints(1);
    let (_, trained) = session_with(&path, STEPS, options()).await.expect("a session");
    let counts = ReadLog::open(&path).expect("a log").check().expect("a whole log");
    assert!(counts.dropped >= (BATCH * 8) as u64, "{counts:?}");
    for checkpoint in std::fs::read_dir(path.join("checkpoints")).expect("checkpoints").flatten() {
        if checkpoint.file_name() != "step-000000" {
            let files = std::fs::read_dir(checkpoint.path()).expect("its files").flatten().map(|file| file.path());
            let state = files.into_iter().find(|file| !file.ends_with("cursor.json")).expect("the learner's state");
            std::fs::write(state, b"damaged").expect("a write");
        }
    }

    let before = events(&path).len();
    let (_, again) = session_with(&path, STEPS, options()).await.expect("a session");
    assert_eq!(again, trained, "the same weights after the same steps");
    let equal: Vec<u64> = events(&path)[before..]
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Restepped { step, equal, .. } => equal.then_some(step.0),
            _ => None,
        })
        .collect();
    assert_eq!(equal, (1..=STEPS as u64).collect::<Vec<_>>(), "every step was trained again");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_database_is_gone_is_salvaged_from_its_segments_and_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, new) = (dir.path().join("run"), dir.path().join("new"));
    session(&path, 9).await.expect("a session");
    let recorded = events(&path);
    std::fs::remove_file(path.join("log/CURRENT")).expect("a file");
    let salvaged = salvage(&path, &new).expect("something");
    assert!(salvaged.is_whole() && salvaged.not_resumable.is_none(), "{salvaged:?}");
    assert_eq!(events(&new), recorded);
    session(&new, 9).await.expect("a session");
}

#[tokio::test(start_paused = true)]
async fn other_settings_are_refused_and_accepted_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run");
    session(&path, 2).await.expect("a session");
    for accept in [false, true] {
        let options = RunLog::options().accept_changes(accept);
        let run = options.open(&path, Durability::Process).expect("the run");
        let engine = Sim::random(SEED, 1..=9, 1..=20);
        // If the previous session left no completed group, this one generates a group.
        publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await.expect("weights");
        let first = run
            .prompts(dataset())
            .epochs(21)
            .shuffle(SEED)
            .unused(Unused::Retry { max_attempts: 3 })
            .generate(&engine, InFlight::groups(5), Samples(2))
            .try_next()
            .await;
        match first {
            Err(error) if !accept => {
                let text = error.to_string();
                assert!(text.contains("prompts.epochs = 20") && text.contains("--accept-changes"), "{text}");
            }
            Ok(Some(_)) if accept => {}
            other => panic!("accept_changes({accept}): {other:?}"),
        }
    }
}
