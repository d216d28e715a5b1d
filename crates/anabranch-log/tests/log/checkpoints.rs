//! Checkpoints: whole or not there, the last ones kept, damage falls back, and none may be ahead of the log.

use std::fs;
use std::path::Path;

use anabranch::RunLog;
use anabranch_core::{BoxError, Cursor, Digest, Journal, TrainingStep};
use anabranch_log::{Durability, OpenError, ReadError, ReadLog, SalvageError, Sealed, salvage};
use tempfile::tempdir;

use crate::scripted::{acked, complete, copy};

fn cursor(step: u64) -> Cursor {
    Cursor { step: TrainingStep(step), weights: Digest::of(&step.to_le_bytes()), ..Cursor::default() }
}

fn weights(step: u64) -> impl FnMut(&Path) -> Result<(), BoxError> {
    move |path| {
        assert_eq!(fs::read_dir(path)?.count(), 0, "it is handed an empty directory");
        fs::create_dir(path.join("optimizer"))?;
        fs::write(path.join("optimizer").join("moments"), vec![step as u8; 5000])?;
        Ok(fs::write(path.join("weights"), step.to_le_bytes())?)
    }
}

fn save(journal: &dyn Journal, step: u64) -> String {
    journal.checkpoint(&cursor(step), &mut weights(step)).unwrap().unwrap()
}

fn names(run: &Path) -> Vec<String> {
    let past = ReadLog::open(run).unwrap().resume_state().unwrap();
    past.checkpoints.iter().map(|checkpoint| checkpoint.name.clone()).collect()
}

#[test]
fn the_first_and_the_last_ones_are_kept_newest_first() {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().keep_checkpoints(2).open(directory.path(), Durability::Process).unwrap();
    for step in [0, 20, 40, 60] {
        acked(complete(&run, step));
        assert_eq!(save(&*run.journal(), step), format!("step-{step:06}"));
    }
    run.close().unwrap();
    assert_eq!(names(directory.path()), ["step-000060", "step-000040", "step-000000"]);
    let past = ReadLog::open(directory.path()).unwrap().resume_state().unwrap();
    assert_eq!(past.checkpoints[0].cursor, cursor(60));
    assert_eq!(fs::read(past.checkpoints[0].path.join("weights")).unwrap(), 60_u64.to_le_bytes());
    let on_disk = fs::read_dir(directory.path().join("checkpoints")).unwrap().count();
    assert_eq!(on_disk, 3, "nothing is left over");
}

#[test]
fn one_that_cannot_be_written_leaves_the_others_and_one_made_again_replaces() {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
    save(&*run.journal(), 0);
    let mut fail = |path: &Path| -> Result<(), BoxError> {
        fs::write(path.join("weights"), b"half")?;
        Err("the learner is broken".into())
    };
    let error = run.journal().checkpoint(&cursor(20), &mut fail).unwrap_err().to_string();
    assert!(error.contains("step-000020") && error.contains("the learner is broken"), "{error}");
    let again = Cursor { updates: 9, ..cursor(0) };
    run.journal().checkpoint(&again, &mut weights(3)).unwrap();
    run.close().unwrap();
    let past = ReadLog::open(directory.path()).unwrap().resume_state().unwrap();
    assert_eq!(past.checkpoints.len(), 1);
    assert_eq!(past.checkpoints[0].cursor, again);
    RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap().close().unwrap();
    assert_eq!(fs::read_dir(directory.path().join("checkpoints")).unwrap().count(), 1, "the half made one is gone");
}

#[test]
fn one_half_replaced_when_the_process_died_is_put_back() {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
    save(&*run.journal(), 0);
    save(&*run.journal(), 20);
    run.close().unwrap();
    let checkpoints = directory.path().join("checkpoints");
    fs::rename(checkpoints.join("step-000020"), checkpoints.join(".old-step-000020")).unwrap();
    copy(&checkpoints.join("step-000000"), &checkpoints.join(".old-step-000000")).unwrap();
    RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap().close().unwrap();
    assert_eq!(names(directory.path()), ["step-000020", "step-000000"]);
    assert_eq!(fs::read_dir(checkpoints).unwrap().count(), 2);
}

#[test]
fn a_damaged_one_is_skipped_for_the_one_before_it() {
    let whole = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(whole.path(), Durability::Process).unwrap();
    for step in [0, 20, 40] {
        save(&*run.journal(), step);
    }
    run.close().unwrap();
    let scratch = tempdir().unwrap();
    let damaged = scratch.path().join("run");
    for file in ["weights", "optimizer/moments", "cursor.json"] {
        let path = Path::new("checkpoints/step-000040").join(file);
        for damage in ["flipped", "cut", "removed"] {
            copy(whole.path(), &damaged).unwrap();
            let mut bytes = fs::read(damaged.join(&path)).unwrap();
            let middle = bytes.len() / 2;
            match damage {
                "flipped" => bytes[middle] ^= 1,
                _ => bytes.truncate(middle),
            }
            fs::write(damaged.join(&path), bytes).unwrap();
            if damage == "removed" {
                fs::remove_file(damaged.join(&path)).unwrap();
            }
            assert_eq!(names(&damaged), ["step-000020", "step-000000"], "{file} {damage}");
            RunLog::options().unsealed().open(&damaged, Durability::Process).unwrap();
        }
    }
}

/// Going on from the one before it would train again what the newer library has trained.
#[test]
fn one_of_a_newer_format_is_refused_by_name_and_a_flipped_bit_is_none() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("run");
    let run = RunLog::options().unsealed().open(&path, Durability::Process).unwrap();
    for step in [0, 20] {
        save(&*run.journal(), step);
    }
    run.close().unwrap();
    let cursor = path.join("checkpoints/step-000020/cursor.json");
    let written = fs::read_to_string(&cursor).unwrap();
    assert!(written.contains("\"format\": 1"), "{written}");
    fs::write(&cursor, written.replace("\"format\": 1", "\"format\": 3")).unwrap();
    assert_eq!(names(&path), ["step-000000"], "one bit of the number is flipped: it is damaged");
    let newer =
        written.replace("\"format\": 1", "\"shards\": [], \"format\": 3").replace("\"watermark\"", "\"relies_on\"");
    for newer in [newer, written.replace("\"format\": 1", "\"format\": 3").replace("\"checksum\": ", "\"checksum\": 1")]
    {
        fs::write(&cursor, newer).unwrap();
        let refused = RunLog::options().unsealed().open(&path, Durability::Process).unwrap_err();
        assert!(matches!(refused, OpenError::Read(ReadError::Newer { found: 3, known: 1, .. })), "{refused:?}");
        assert!(refused.to_string().contains("step-000020"), "{refused}");
        assert!(matches!(ReadLog::open(&path).unwrap().resume_state(), Err(OpenError::Read(ReadError::Newer { .. }))));
        let salvaged = salvage(&path, &directory.path().join("salvaged"), Sealed::none());
        assert!(matches!(salvaged, Err(SalvageError::Newer(_))), "{salvaged:?}");
        fs::remove_dir_all(directory.path().join("salvaged")).unwrap();
    }
}

#[test]
fn one_ahead_of_the_log_is_damage() {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path().join("long"), Durability::Process).unwrap();
    (0..9).for_each(|row| acked(complete(&run, row)));
    save(&*run.journal(), 20);
    run.close().unwrap();
    let short = directory.path().join("short");
    RunLog::options().unsealed().open(&short, Durability::Process).unwrap().close().unwrap();
    copy(&directory.path().join("long/checkpoints"), &short.join("checkpoints")).unwrap();
    let error = RunLog::options().unsealed().open(&short, Durability::Process).unwrap_err();
    assert!(matches!(error, OpenError::Behind { found: 1, needed: 19, .. }), "{error:?}");
    assert!(error.to_string().contains("step-000020"), "{error}");
}
