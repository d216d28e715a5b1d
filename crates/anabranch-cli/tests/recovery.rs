//! Damaged runs, and runs whose payloads are only in the segments: what the commands read, salvage and report.

mod runs;

use std::fs;
use std::path::Path;

use anabranch::RunLog;
use anabranch_core::{Cursor, Event, EventKind, GroupId, Seq, TrainingStep};
use anabranch_log::{Durability, Sealer, Segment};
use anabranch_parquet::{SealedPayloads, Segments};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};
use runs::{answer, complaint, events, files, json, killed, read};

/// A run whose log dropped the payloads of all settled groups, and the ids of those that were consumed.
fn dropped(run: &Path) -> Vec<GroupId> {
    let clock = HandClock::default();
    let sealer = |run: &Path| {
        let mut segments = Segments::open(run.join("parquet"))?;
        let payloads = SealedPayloads::of(segments.folder());
        let sealer = Sealer::new(segments.sealed_through(), move |segment: &Segment| {
            let mut groups = segment.groups.iter().cloned();
            segments.seal(&segment.events, |_| groups.next().ok_or_else(|| "no payload".into()))?;
            Ok(())
        });
        Ok(sealer.reading(move |id| Ok(payloads.read(id)?)))
    };
    let log = RunLog::options().clock(clock.session_clock()).sealer(sealer).open(run, Durability::Process).unwrap();
    let mut script = Script::new(Run::clone(&log), clock);
    script.publish();
    script.play(20);
    let cursor = Cursor { step: TrainingStep(1), taken: Some(script.run.finish().last_seq()), ..Cursor::default() };
    log.journal().checkpoint(&cursor, &mut |_| Ok(())).unwrap();
    log.close().unwrap();
    let taken = |event: Event| match event.kind {
        EventKind::BatchTaken { groups, .. } => groups.into_iter().map(|group| group.id).collect(),
        _ => Vec::new(),
    };
    events(run).into_iter().flat_map(taken).collect()
}

#[test]
fn payloads_that_lie_in_the_segments_alone_are_found_there() {
    let (run, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let consumed = dropped(run.path());
    killed(twin.path());
    let (log, whole) = (read(run.path()), read(twin.path()));
    let counts = log.check().unwrap();
    assert!(counts.dropped >= consumed.len() as u64, "{counts:?}");
    let error = log.payload(&consumed[0]).unwrap_err().to_string();
    assert!(error.contains("parquet/"), "{error}");
    let payloads = SealedPayloads::of(run.path().join("parquet"));
    for id in &consumed {
        // The same script makes the same run, which kept its payloads.
        assert_eq!(payloads.read(id).unwrap(), Some(whole.payload(id).unwrap()));
    }
    drop((log, whole));

    let id = consumed[0].to_string();
    let spans = |run: &Path| json(0, &[&"history", &run, &id, &"--json"])["spans"].clone();
    assert_eq!(spans(run.path()), spans(twin.path()));
    let text = answer(0, &[&"verify", &run.path()]);
    assert!(text.contains(&format!("; {} more are only in the segments", counts.dropped)), "{text}");
    let copy = twin.path().join("copy");
    answer(0, &[&"export", &run.path(), &"--to", &copy]);
    let text = answer(0, &[&"verify", &copy]);
    assert!(text.contains(&format!("{} sealed payloads", counts.completed)), "{text}");

    fs::rename(run.path().join("parquet"), run.path().join("lost")).unwrap();
    let text = answer(1, &[&"verify", &run.path()]);
    assert!(text.contains("the log dropped payloads") && text.contains("put the segments back"), "{text}");
    let error = complaint(&[&"history", &run.path(), &id]);
    assert!(error.contains("parquet/"), "{error}");
}

#[test]
fn a_damaged_run_is_salvaged_and_what_is_missing_is_named() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    let whole = events(run.path());
    let new = tempfile::tempdir().unwrap();
    let text = answer(0, &[&"salvage", &run.path(), &"--to", &new.path().join("whole")]);
    assert!(text.contains(&format!("log         {} events", whole.len())) && text.contains("can be opened"), "{text}");
    let error = complaint(&[&"salvage", &run.path(), &"--to", &new.path().join("whole")]);
    assert!(error.contains("exists already"), "{error}");

    // Cut the write-ahead log: events that HEAD counts are missing, and the command names them.
    let log = fs::read_dir(run.path().join("log")).unwrap().map(|entry| entry.unwrap().path());
    let wal = log
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .max_by_key(|path| path.metadata().unwrap().len());
    let wal = fs::OpenOptions::new().write(true).open(wal.unwrap()).unwrap();
    wal.set_len(wal.metadata().unwrap().len() / 2).unwrap();
    let before = files(run.path());
    complaint(&[&"audit", &run.path()]);
    let to = new.path().join("cut");
    let text = answer(1, &[&"salvage", &run.path(), &"--to", &to]);
    let kept = events(&to);
    assert_eq!(kept[..], whole[..kept.len()]);
    let (first, last) = (Seq(kept.len() as u64), Seq(whole.len() as u64 - 1));
    assert!(text.contains(&format!("missing     events {first} to {last}")), "{text}");
    answer(0, &[&"verify", &to]);
    // If the segments were sealed before, nothing is missing.
    let to = new.path().join("sealed");
    answer(0, &[&"export", &new.path().join("whole"), &"--to", &run.path().join("parquet")]);
    let json = json(0, &[&"salvage", &run.path(), &"--to", &to, &"--json"]);
    assert_eq!((json["whole"].as_bool(), json["events"].as_u64()), (Some(true), Some(whole.len() as u64)));
    assert_eq!(events(&to), whole);
    fs::remove_dir_all(run.path().join("parquet")).unwrap();
    assert!(files(run.path()) == before, "salvage changed the damaged run");
}
