//! What format 1 wrote is read, whatever the newest format is.

use std::fs;
use std::path::{Path, PathBuf};

use anabranch::RunLog;
use anabranch_core::{Cursor, Event, resume};
use anabranch_log::{Durability, OpenError, ReadLog};
use anabranch_parquet::{SegmentError, SegmentReader, Segments};
use anabranch_replay::{recompute, verify};
use tempfile::tempdir;

use crate::scripted::{copy, events, files};
use anabranch_testing::scripted::{HandClock, Script};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1")
}

/// Not a test: makes the fixtures, see their README.
#[test]
#[ignore = "makes the fixtures that the tests read"]
fn make() {
    if std::env::var_os("ANABRANCH_WRITE_FIXTURES").is_none() {
        return;
    }
    let directory = tempdir().unwrap();
    let made = directory.path().join("run");
    for session in 0..2 {
        let published = ReadLog::open(&made).ok().and_then(|log| log.resume_state().unwrap().published);
        let clock = HandClock::default();
        let run = RunLog::options()
            .unsealed()
            .name("format-1")
            .clock(clock.session_clock())
            .open(&made, Durability::Process)
            .unwrap();
        let mut script = Script::new((*run).clone(), clock);
        match published {
            Some((version, step, weights)) => script.reinstall(version, step, weights),
            None => script.publish(),
        }
        script.play(9 - session);
        if session == 1 {
            drop(script.run.finish());
        }
        run.journal().checkpoint(&Cursor::default(), &mut |path| Ok(fs::write(path.join("weights"), b"w")?)).unwrap();
        drop(script);
        run.close().unwrap();
    }
    let to = fixtures();
    let log = ReadLog::open(&made).unwrap();
    let all = events(&made);
    let lines: Vec<String> = all.iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect();
    fs::write(to.join("events.jsonl"), lines.concat()).unwrap();
    drop(fs::remove_dir_all(to.join("parquet")));
    let mut segments = Segments::open(to.join("parquet")).unwrap();
    let middle = all.len() / 2;
    for part in [&all[..middle], &all[middle..]] {
        segments.seal(part, |id| Ok(log.payload(id)?)).unwrap();
    }
    drop((segments, log));
    copy(&made, &to.join("run")).unwrap();
    for file in files(&to) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        // Locks and traces of the process that made it.
        if name.starts_with("LOCK") || name.starts_with("LOG") {
            fs::remove_file(file).unwrap();
        }
    }
    let bytes: u64 = files(&to).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!(bytes < 300_000, "{bytes} bytes are too many to commit");
}

fn recorded() -> Vec<Event> {
    let lines = fs::read_to_string(fixtures().join("events.jsonl")).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_of_format_1_is_read_and_goes_on() {
    let scratch = tempdir().unwrap();
    let run = scratch.path().join("run");
    copy(&fixtures().join("run"), &run).unwrap();
    let log = ReadLog::open(&run).unwrap();
    let counts = log.check().unwrap();
    assert!(counts.payloads > 20 && counts.payloads == counts.completed, "{counts:?}");
    let events: Vec<Event> = log.events().collect::<Result<_, _>>().unwrap();
    assert!(events == recorded(), "the events mean what they meant");
    let report = verify(&events);
    assert!(report.is_clean(), "{report}");
    let recomputed = recompute(&events).unwrap();
    assert!(recomputed.batches > 3, "{recomputed:?}");
    let (past, folded) = (log.resume_state().unwrap(), resume(events.clone()).unwrap());
    assert_eq!((&past.queued, &past.batches, past.session), (&folded.queued, &folded.batches, 2));
    assert_eq!(past.checkpoints.len(), 1);
    drop(log);
    let opened = RunLog::options().unsealed().open(&run, Durability::Process).unwrap();
    assert_eq!((opened.found().session, opened.found().events), (2, events.len() as u64));
    opened.close().unwrap();
    assert_eq!(crate::scripted::events(&run)[..events.len()], events);
}

#[test]
fn segments_of_format_1_are_read() {
    let reader = SegmentReader::open(fixtures().join("parquet")).unwrap();
    reader.check_files().unwrap();
    let sealed: Vec<Event> = reader.events().collect::<Result<_, _>>().unwrap();
    assert!(sealed == recorded(), "the events mean what they meant");
    let scratch = tempdir().unwrap();
    let run = scratch.path().join("run");
    copy(&fixtures().join("run"), &run).unwrap();
    let log = ReadLog::open(&run).unwrap();
    let mut payloads = 0;
    for group in reader.groups() {
        let (_, group) = group.unwrap();
        assert!(log.payload(&group.id).unwrap() == group, "{}", group.id);
        payloads += 1;
    }
    assert!(payloads > 20, "{payloads}");
}

#[test]
fn newer_formats_are_refused_by_name() {
    let scratch = tempdir().unwrap();
    let run = scratch.path().join("run");
    copy(&fixtures().join("run"), &run).unwrap();
    let mut head = fs::read(run.join("HEAD")).unwrap();
    head[4] += 1;
    let checksum = crc32c::crc32c(&head[..28]);
    head[28..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(run.join("HEAD"), head).unwrap();
    let error = RunLog::options().unsealed().open(&run, Durability::Process).unwrap_err();
    assert!(matches!(error, OpenError::Head { .. }) && error.to_string().contains("format 2"), "{error}");

    let folder = scratch.path().join("parquet");
    copy(&fixtures().join("parquet"), &folder).unwrap();
    let manifest = folder.join("manifest/00000001.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let newer = text.replacen("\"format\": 1", "\"format\": 2", 1);
    assert_ne!(text, newer);
    fs::write(&manifest, newer).unwrap();
    let error = SegmentReader::open(&folder).unwrap_err();
    assert!(matches!(error, SegmentError::Newer { found: 2, known: 1, .. }), "{error}");
}
