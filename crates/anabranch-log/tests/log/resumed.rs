//! A run that is closed and opened again continues where it ended.

use anabranch::RunLog;
use anabranch_core::{EventKind, Fields, MemoryJournal, Seq, SessionClock, Value};
use anabranch_log::{Durability, OpenError, ReadLog};
use anabranch_stream::Run;
use futures::executor::block_on;
use tempfile::tempdir;

use crate::scripted::{acked, admit, complete, events, group, id, take};

#[test]
fn what_was_acknowledged_is_there_again_and_the_fold_sees_it() {
    for durability in [Durability::Process, Durability::Sync] {
        let directory = tempdir().unwrap();
        let run = RunLog::options().unsealed().open(directory.path(), durability).unwrap();
        assert_eq!((run.found().session, run.found().events), (0, 0));
        (0..6).for_each(|row| acked(complete(&run, row)));
        for row in [2, 0, 1] {
            acked(admit(&run, row));
        }
        acked(take(&run, 1, &[2]));
        let last = run.adopt(group(9));
        drop(last);
        run.close().unwrap();

        let recorded = events(directory.path());
        let past = ReadLog::open(directory.path()).unwrap().resume_state().unwrap();
        let folded = anabranch_core::resume(recorded.clone()).unwrap();
        assert_eq!(past.queued, folded.queued);
        let queued: Vec<_> = past.queued.iter().map(|group| group.id.prompt.row).collect();
        assert_eq!(queued, [0, 1, 3, 4, 5], "admitted in that order, then completed in that order");
        assert_eq!(past.open.iter().map(|lease| lease.id.clone()).collect::<Vec<_>>(), [id(9)]);
        assert_eq!(past.batches.len(), 1);

        let run = RunLog::options().unsealed().open(directory.path(), durability).unwrap();
        let found = run.found();
        assert_eq!((found.session, found.events, found.lost), (1, recorded.len() as u64, 0));
        for row in 0..6 {
            assert_eq!(run.payload(&id(row)).unwrap(), group(row));
        }
        acked(complete(&run, 10));
        run.close().unwrap();
        let again = events(directory.path());
        assert_eq!(again[..recorded.len()], recorded);
        assert!(matches!(again[recorded.len()].kind, EventKind::RunResumed { lost: 0, .. }));
        assert_eq!(again[recorded.len()].session, 1);
    }
}

/// The same records give the same events in memory and on disk, but for the times.
#[test]
fn memory_and_disk_agree() {
    let directory = tempdir().unwrap();
    let still = || SessionClock::new(|| 5);
    let disk = RunLog::options().unsealed().clock(still()).open(directory.path(), Durability::Process).unwrap();
    let journal = std::sync::Arc::new(MemoryJournal::new());
    let memory = Run::builder("memory").journal(journal.clone()).clock(still()).open().unwrap();
    for run in [&*disk, &memory] {
        (0..4).for_each(|row| acked(complete(run, row)));
        acked(take(run, 1, &[0, 1]));
        drop(run.finish());
    }
    disk.close().unwrap();
    let strip = |mut event: anabranch_core::Event| {
        event.wall_ms = 0;
        event
    };
    let on_disk: Vec<_> = events(directory.path()).into_iter().map(strip).collect();
    assert_eq!(on_disk, journal.events().into_iter().map(strip).collect::<Vec<_>>());
    assert!(ReadLog::open(directory.path()).unwrap().resume_state().unwrap().closed);
}

#[test]
fn without_durability_nothing_is_stored() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("run");
    let run = RunLog::options().unsealed().open(&path, Durability::None).unwrap();
    acked(complete(&run, 3));
    assert_eq!(run.payload(&id(3)).unwrap(), group(3));
    assert_eq!(run.path(), None);
    run.close().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_payload_is_readable_before_it_is_written() {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Sync).unwrap();
    for row in 0..50 {
        let recorded = complete(&run, row);
        assert_eq!(run.payload(&id(row)).unwrap(), group(row));
        acked(recorded);
    }
}

#[test]
fn appends_after_closing_are_refused_and_the_directory_is_free() {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
    let left: Run = (*run).clone();
    acked(complete(&run, 1));
    drop(run);
    let refused = block_on(complete(&left, 2).durable).unwrap_err().to_string();
    assert!(refused.contains("closed"), "{refused}");
    assert!(left.payload(&id(1)).unwrap_err().to_string().contains("closed"));
    RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
}

#[test]
fn other_settings_are_refused_by_name_unless_accepted() {
    let directory = tempdir().unwrap();
    let settings = |seed: i64| Fields::from([("seed".to_owned(), Value::Int(seed))]);
    let open = |seed, accept| {
        let options = RunLog::options().unsealed().settings(settings(seed)).accept_changes(accept);
        options.open(directory.path(), Durability::Process)
    };
    open(7, false).unwrap().close().unwrap();
    open(7, false).unwrap().close().unwrap();
    RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap().close().unwrap();
    let before = events(directory.path());
    let refused = open(8, false).unwrap_err();
    assert!(matches!(refused, OpenError::Changed(_)), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("run.seed = 7") && text.contains('8') && text.contains("--accept-changes"), "{text}");
    assert_eq!(events(directory.path()), before, "a refused opening records nothing");
    open(8, true).unwrap().close().unwrap();
    open(8, false).unwrap().close().unwrap();
    open(7, false).unwrap_err();
}

#[test]
fn a_reader_goes_through_the_log_from_anywhere() {
    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
    (0..5).for_each(|row| acked(complete(&run, row)));
    run.close().unwrap();
    let log = ReadLog::open(directory.path()).unwrap();
    let seqs: Vec<u64> = log.events_from(Seq(8)).map(|event| event.unwrap().seq.0).collect();
    assert_eq!(seqs, [8, 9, 10]);
    assert_eq!(log.events_from(Seq(11)).count(), 0);
    let counts = log.check().unwrap();
    assert_eq!((counts.events, counts.completed, counts.payloads), (11, 5, 5));
    let missing = log.payload(&id(77)).unwrap_err().to_string();
    assert!(missing.contains("scripted/0/77#0"), "{missing}");
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let refused = RunLog::options().unsealed().open(file.join("run"), Durability::Process).unwrap_err();
    assert!(matches!(refused, OpenError::File { .. }) && refused.to_string().contains("file/run"), "{refused}");
}

/// HEAD says how many acknowledged events may not be synced: it stops growing with the log once an interval has passed.
#[test]
fn what_is_acknowledged_without_a_sync_is_synced_at_intervals() {
    let directory = tempdir().unwrap();
    let options = RunLog::options().unsealed().sync_every(std::time::Duration::from_millis(1));
    let run = options.open(directory.path(), Durability::Process).unwrap();
    let synced = (0..100_000).any(|row| {
        acked(complete(&run, row));
        let head = std::fs::read(directory.path().join("HEAD")).unwrap();
        let acked = u64::from_le_bytes(head[8..16].try_into().unwrap());
        let unsynced = u32::from_le_bytes(head[24..28].try_into().unwrap());
        u64::from(unsynced) < acked
    });
    assert!(synced);
}
