//! The event files: names, records, and the state after a kill. `tests/python` reads them with TensorBoard's own
//! reader.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anabranch_core::{Dataset, Fields};
use anabranch_metrics::TensorBoard;
use anabranch_sim::{HashChain, Sim};
use anabranch_stream::{InFlight, RolloutExt, Run, Samples};
use futures::TryStreamExt;

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// The lengths of the records of a file. Panics if they do not fill the file.
fn records(path: &Path) -> Vec<usize> {
    let bytes = fs::read(path).unwrap();
    let mut rest = bytes.as_slice();
    let mut lengths = Vec::new();
    while !rest.is_empty() {
        let length = u64::from_le_bytes(*rest.first_chunk().unwrap()) as usize;
        lengths.push(length);
        rest = &rest[length + 16..];
    }
    lengths
}

#[test]
fn every_record_is_in_the_file_when_its_call_returns() {
    let dir = tempfile::tempdir().unwrap();
    let mut board = TensorBoard::create(dir.path().join("deep/run")).unwrap();
    assert_eq!(records(board.path()).len(), 1, "the format's version");
    for step in 1..4 {
        board.write(step, &[("a".to_owned(), 1.0), ("b".to_owned(), 2.0)]).unwrap();
        assert_eq!(records(board.path()).len(), 2 + step as usize, "and that the session starts");
    }
}

#[test]
fn a_writer_created_later_has_the_later_name() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..3).map(|_| TensorBoard::create(dir.path()).unwrap().path().to_owned()).collect();
    let created: Vec<_> = paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names(dir.path()), created, "TensorBoard reads in the order of names");
    // A file from the future, as if the clock had gone back, and a file of another program.
    fs::write(dir.path().join("events.out.tfevents.9000000000.host.1.0"), "").unwrap();
    fs::write(dir.path().join("notes.txt"), "").unwrap();
    let last = TensorBoard::create(dir.path()).unwrap();
    let last = last.path().file_name().unwrap().to_str().unwrap();
    assert!(last.starts_with("events.out.tfevents.9000000001."), "{last}");
    assert!(last.contains(&format!(".{}.", std::process::id())), "{last}");
}

#[test]
fn an_error_names_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = TensorBoard::create(&file).unwrap_err().to_string();
    assert!(error.contains(file.to_str().unwrap()), "{error}");
}

/// A step trained again comes with the current metrics of the run, which do not belong to that step.
#[tokio::test(start_paused = true)]
async fn a_replayed_step_has_only_what_is_its_own() {
    let (run, engine) = (Run::in_memory(), Sim::fixed(3, Duration::from_millis(1)));
    let rows = (0..2).map(|row| (vec![row], Fields::new())).collect();
    let steps = run
        .prompts(Dataset::new("d", rows).unwrap())
        .generate(&engine, InFlight::groups(2), Samples(2))
        .score(|_| 1.0)
        .batch(2)
        .train(run.restore(HashChain::new(1)).unwrap())
        .publish_every(1, &engine);
    let step = steps.try_collect::<Vec<_>>().await.unwrap().remove(0);
    let dir = tempfile::tempdir().unwrap();
    let tags = |replayed: bool| {
        let mut step = step.clone();
        step.replayed = replayed;
        step.metrics = [("ess".to_owned(), 0.5), ("entropy".to_owned(), 1.0)].into();
        let mut board = TensorBoard::create(dir.path().join(replayed.to_string())).unwrap();
        board.step(&step, &run.metrics()).unwrap();
        let bytes = fs::read(board.path()).unwrap();
        move |tag: &str| bytes.windows(tag.len()).any(|window| window == tag.as_bytes())
    };
    let (new, replayed) = (tags(false), tags(true));
    for tag in ["step/reward_mean", "anabranch_loss", "anabranch_effective_sample_size", "anabranch_learner/entropy"] {
        assert!(new(tag) && replayed(tag), "{tag}");
    }
    for tag in ["anabranch_consumed_total", "anabranch_version", "anabranch_gap/consumed/mean"] {
        assert!(new(tag) && !replayed(tag), "{tag}");
    }
    assert!(!new("anabranch_queue_size"), "without a buffer there is no queue");
}
