//! One writer at a time, named to whoever comes second; and HEAD, which must be there.

use std::fs;

use anabranch::RunLog;
use anabranch_log::{Durability, OpenError, ReadLog};
use tempfile::tempdir;

use crate::scripted::{acked, complete, events, id};

#[test]
fn a_second_writer_is_told_who_the_first_is() {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
    let refused = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap_err();
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())) && text.contains("LOCK"), "{text}");
    acked(complete(&run, 1));
    drop(run);
    RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
}

#[test]
fn a_reader_beside_a_writer_is_sent_to_the_segments() {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
    let refused = ReadLog::open(directory.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Live { .. }) && refused.to_string().contains("parquet"), "{refused}");
    drop(run);
    let reader = ReadLog::open(directory.path()).unwrap();
    let refused = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap_err();
    assert!(matches!(refused, OpenError::BeingRead { .. }), "{refused}");
    drop(reader);
    RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
}

#[test]
fn a_missing_head_is_refused_unless_accepted() {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
    acked(complete(&run, 1));
    run.close().unwrap();
    let before = events(directory.path());
    fs::remove_file(directory.path().join("HEAD")).unwrap();

    for refused in [
        RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap_err(),
        ReadLog::open(directory.path()).unwrap_err(),
    ] {
        assert!(matches!(refused, OpenError::Head { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("HEAD is missing") && text.contains("--accept-missing-head"), "{text}");
    }
    assert_eq!(ReadLog::open_without_head(directory.path()).unwrap().events().count(), before.len());
    let options = RunLog::options().unsealed().accept_missing_head(true);
    let run = options.open(directory.path(), Durability::Process).unwrap();
    assert_eq!(run.found().events, before.len() as u64);
    assert_eq!(run.payload(&id(1)).unwrap().id, id(1));
    run.close().unwrap();
    RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
}

#[test]
fn a_directory_without_a_run_is_no_log_to_read() {
    let directory = tempdir().unwrap();
    let refused = ReadLog::open(directory.path()).unwrap_err();
    assert!(matches!(refused, OpenError::NoRun { .. }), "{refused}");
    let refused = ReadLog::open(directory.path().join("nowhere")).unwrap_err();
    assert!(matches!(refused, OpenError::NoRun { .. }), "{refused}");
}
