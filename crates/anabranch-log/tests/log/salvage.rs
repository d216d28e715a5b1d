//! Salvage: everything that is provably good of a damaged run comes along, the rest is named, and the run is left alone.

use std::fs;
use std::path::Path;

use anabranch::RunLog;
use anabranch_core::{Cursor, Digest, Event, EventKind, TrainingStep};
use anabranch_log::{Durability, ReadLog, SalvageError, Salvaged, Sealed, salvage};
use anabranch_parquet::{SegmentReader, Segments};
use tempfile::{TempDir, tempdir};

use crate::damage::named;
use crate::scripted::{Numbers, acked, admit, complete, contents, copy, events, files, group, take};

/// Two sessions, with batches and a checkpoint; the first lies in sorted files and blobs, the second in the write-ahead log.
fn run() -> TempDir {
    let directory = tempdir().unwrap();
    for session in 0..2 {
        let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
        let first = session * 100;
        for row in first..first + 12 {
            acked(complete(&run, row));
            acked(admit(&run, row));
        }
        acked(take(&run, session + 1, &[first, first + 1]));
        let cursor = Cursor { step: TrainingStep(session), weights: Digest::of(b"w"), ..Cursor::default() };
        let mut write = |path: &Path| Ok(fs::write(path.join("weights"), vec![7; 1000])?);
        run.journal().checkpoint(&cursor, &mut write).unwrap();
        run.close().unwrap();
    }
    directory
}

/// Salvages a damaged copy of `whole`, and checks what holds whatever the damage is.
fn salvaged(damaged: &Path, whole: &[Event], sealed: Sealed<'_>, what: &str) -> (Salvaged, TempDir) {
    let before = contents(damaged);
    let scratch = tempdir().unwrap();
    let to = scratch.path().join("new");
    let salvaged = salvage(damaged, &to, sealed).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(contents(damaged) == before, "{what}: the damaged run was changed");
    let missing: u64 = salvaged.missing.iter().map(|(first, last)| last.0 - first.0 + 1).sum();
    let unknown = whole.len() as u64 - (salvaged.events + salvaged.beyond + missing);
    assert!(unknown == 0 || salvaged.acknowledged.is_none(), "{what}: {salvaged:?} of {}", whole.len());
    if salvaged.events > 0 {
        let log = ReadLog::open(&to).unwrap_or_else(|error| panic!("{what}: {error}"));
        let kept: Vec<Event> = log.events().collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(kept[..], whole[..salvaged.events as usize], "{what}");
        let mut payloads = 0;
        for event in &kept {
            let EventKind::Completed { id, .. } = &event.kind else { continue };
            let lost = salvaged.missing_payloads.iter().any(|missing| missing.group == *id);
            match log.payload(id) {
                Ok(payload) => assert!(!lost && payload == group(id.prompt.row), "{what}: {id}"),
                Err(_) => assert!(lost, "{what}: the payload of {id} is missing, and nobody said so"),
            }
            payloads += u64::from(!lost);
        }
        assert_eq!(payloads, salvaged.payloads, "{what}");
        drop(log);
        let opened = RunLog::options().unsealed().open(&to, Durability::Process);
        assert_eq!(
            opened.as_ref().err().map(ToString::to_string).is_some(),
            salvaged.not_resumable.is_some(),
            "{what}"
        );
    }
    (salvaged, scratch)
}

#[test]
fn a_whole_run_comes_along_whole() {
    let whole_run = run();
    let whole = events(whole_run.path());
    let (salvaged, scratch) = salvaged(whole_run.path(), &whole, Sealed::none(), "whole");
    assert!(salvaged.is_whole() && salvaged.not_resumable.is_none(), "{salvaged:?}");
    assert_eq!((salvaged.events, salvaged.payloads), (whole.len() as u64, 24));
    assert_eq!(salvaged.checkpoints, ["step-000001", "step-000000"]);
    let error = salvage(whole_run.path(), &scratch.path().join("new"), Sealed::none()).unwrap_err();
    assert!(matches!(error, SalvageError::Target(_)), "{error}");
    let error = salvage(whole_run.path(), &whole_run.path().join("log/inside"), Sealed::none()).unwrap_err();
    assert!(matches!(error, SalvageError::Target(_)), "{error}");
    let open = RunLog::options().unsealed().open(whole_run.path(), Durability::Process).unwrap();
    let error = salvage(whole_run.path(), &scratch.path().join("other"), Sealed::none()).unwrap_err();
    assert!(matches!(error, SalvageError::Run(_)), "{error}");
    drop(open);
}

#[test]
fn flipped_bits_anywhere_cost_what_they_hit() {
    let whole_run = run();
    let whole = events(whole_run.path());
    let scratch = tempdir().unwrap();
    let damaged = scratch.path().join("damaged-run");
    let mut numbers = Numbers::seeded(7);
    let (mut tried, mut some, mut all) = (0, 0, 0);
    for file in files(whole_run.path()) {
        let name = file.strip_prefix(whole_run.path()).unwrap().to_owned();
        let length = fs::metadata(&file).unwrap().len();
        for _ in 0..length.min(3) {
            let bit = numbers.below(length * 8);
            copy(whole_run.path(), &damaged).unwrap();
            let mut bytes = fs::read(damaged.join(&name)).unwrap();
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            fs::write(damaged.join(&name), bytes).unwrap();
            let (salvaged, _) = salvaged(&damaged, &whole, Sealed::none(), &format!("bit {bit} of {}", name.display()));
            tried += 1;
            some += u32::from(salvaged.events > 0);
            all += u32::from(salvaged.events == whole.len() as u64);
        }
    }
    assert!(some * 10 >= tried * 8, "of {tried} damaged runs only {some} gave anything");
    assert!(all > 0 && all < tried, "of {tried} damaged runs {all} lost no event");
}

#[test]
fn cut_and_removed_files_cost_what_was_in_them() {
    let whole_run = run();
    let whole = events(whole_run.path());
    let scratch = tempdir().unwrap();
    let damaged = scratch.path().join("damaged-run");
    let damage = |what: &str, harm: &dyn Fn(&Path)| {
        copy(whole_run.path(), &damaged).unwrap();
        harm(&damaged);
        salvaged(&damaged, &whole, Sealed::none(), what).0
    };
    let length = fs::metadata(named(whole_run.path(), ".log")).unwrap().len();
    let cut = |by: u64| {
        move |run: &Path| {
            fs::OpenOptions::new().write(true).open(named(run, ".log")).unwrap().set_len(length - by).unwrap();
        }
    };
    let a_byte = damage("a byte of the log cut", &cut(1));
    assert!(a_byte.events < whole.len() as u64 && a_byte.events + 3 >= whole.len() as u64, "{a_byte:?}");
    assert_eq!(a_byte.missing.last().unwrap().1.0 + 1, whole.len() as u64, "what HEAD knew of is named");
    let half = damage("half of the log cut", &cut(length / 2));
    assert!(half.events < a_byte.events && half.events > 30, "{half:?}");
    assert_eq!(half.checkpoints, ["step-000000"], "the newer one relies on what is missing");
    assert_eq!(half.checkpoints_left, ["step-000001"]);
    let first_session = whole.iter().take_while(|event| event.session == 0).count() as u64;
    let removed = damage("the log removed", &|run| fs::remove_file(named(run, ".log")).unwrap());
    assert_eq!(removed.events, first_session, "{removed:?}");
    let blob = damage("a blob file removed", &|run| fs::remove_file(named(run, ".blob")).unwrap());
    assert!(!blob.missing_payloads.is_empty(), "{blob:?}");
    damage("a sorted file removed", &|run| fs::remove_file(named(run, ".sst")).unwrap());
    let current = damage("CURRENT removed", &|run| fs::remove_file(named(run, "CURRENT")).unwrap());
    assert!(current.database.is_some() && current.events > 0, "{current:?}");
    let head = damage("HEAD removed", &|run| fs::remove_file(run.join("HEAD")).unwrap());
    assert_eq!((head.events, head.acknowledged), (whole.len() as u64, None));
}

#[test]
fn sealed_segments_stand_in_for_a_log_that_is_gone() {
    let whole_run = run();
    let whole = events(whole_run.path());
    let scratch = tempdir().unwrap();
    let folder = scratch.path().join("parquet");
    let log = ReadLog::open(whole_run.path()).unwrap();
    let mut segments = Segments::open(&folder).unwrap();
    segments.seal(&whole, |id| Ok(log.payload(id)?)).unwrap();
    drop((segments, log));
    let damaged = scratch.path().join("damaged-run");
    for what in ["log", "log/CURRENT"] {
        copy(whole_run.path(), &damaged).unwrap();
        let path = damaged.join(what);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        let reader = SegmentReader::open(&folder).unwrap();
        let sealed = Sealed {
            events: Box::new(reader.events().map_while(Result::ok)),
            payload: Box::new(|id| reader.payload(id).ok().flatten()),
        };
        let (salvaged, _) = salvaged(&damaged, &whole, sealed, what);
        assert!(salvaged.is_whole() && salvaged.not_resumable.is_none(), "{what}: {salvaged:?}");
        assert_eq!((salvaged.events, salvaged.payloads), (whole.len() as u64, 24));
    }
}
