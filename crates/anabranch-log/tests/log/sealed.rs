//! Sealing: every event and payload once, in order, whatever fails in between.

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use anabranch::RunLog;
use anabranch_core::{Cursor, Seq};
use anabranch_log::{Durability, OpenError, ReadLog, SealError, Sealer, Segment};
use tempfile::tempdir;

use crate::scripted::{acked, complete, events, group};

type Kept = Arc<Mutex<Vec<Segment>>>;

fn open(path: &Path, kept: &Kept) -> RunLog {
    let (kept, through) = (kept.clone(), kept.lock().unwrap().last().map(|segment| segment.last));
    let options = RunLog::options().sealer(move |_| {
        Ok(Sealer::new(through, move |segment| {
            kept.lock().unwrap().push(segment.clone());
            Ok(())
        }))
    });
    options.open(path, Durability::Process).unwrap()
}

/// The segments follow each other without a gap and hold the whole log.
fn assert_whole(path: &Path, kept: &Kept) {
    let kept = kept.lock().unwrap();
    let sealed: Vec<_> = kept.iter().flat_map(|segment| segment.events.clone()).collect();
    assert_eq!(sealed, events(path));
    for segment in kept.iter() {
        assert_eq!(segment.first, segment.events[0].seq);
        assert_eq!(segment.last, segment.events.last().unwrap().seq);
        assert!(segment.groups.len() <= 256);
    }
    let rows = kept.iter().flat_map(|segment| &segment.groups).map(|group| group.id.prompt.row);
    for row in rows {
        let group_of = kept.iter().flat_map(|segment| &segment.groups).filter(|group| group.id.prompt.row == row);
        assert_eq!(group_of.collect::<Vec<_>>(), [&group(row)]);
    }
}

#[test]
fn the_whole_log_is_sealed_over_sessions() {
    let directory = tempdir().unwrap();
    let kept = Kept::default();
    for session in 0..3 {
        let run = open(directory.path(), &kept);
        (0..40).for_each(|row| acked(complete(&run, session * 1000 + row)));
        run.seal_now().unwrap();
        let through = kept.lock().unwrap().last().unwrap().last;
        assert_eq!(through, Seq(run.found().events + 80), "everything recorded so far, the opening included");
        (40..50).for_each(|row| drop(complete(&run, session * 1000 + row)));
        run.close().unwrap();
        assert_whole(directory.path(), &kept);
    }
}

#[test]
fn many_groups_or_a_checkpoint_make_it_due_and_segments_stay_small() {
    let directory = tempdir().unwrap();
    let (sealed, segments) = mpsc::channel();
    let options = RunLog::options()
        .sealer(move |_| Ok(Sealer::new(None, move |segment: &Segment| Ok(sealed.send(segment.groups.len())?))));
    let run = options.open(directory.path(), Durability::Process).unwrap();
    (0..256).for_each(|row| drop(complete(&run, row)));
    assert!(segments.recv().unwrap() > 0, "without being asked");
    run.seal_now().unwrap();
    assert!(segments.try_iter().sum::<usize>() <= 256);
    acked(complete(&run, 1000));
    run.journal().checkpoint(&Cursor::default(), &mut |_| Ok(())).unwrap();
    assert_eq!(segments.recv().unwrap(), 1, "after a checkpoint");
    (2000..2700).for_each(|row| drop(complete(&run, row)));
    run.close().unwrap();
    let sizes: Vec<usize> = segments.iter().collect();
    assert_eq!(sizes.iter().sum::<usize>(), 700);
    assert!(sizes.iter().all(|&size| size <= 256), "{sizes:?}");
}

#[test]
fn a_failed_seal_is_tried_again_and_surfaces_at_close() {
    let directory = tempdir().unwrap();
    let kept = Kept::default();
    let (broken, keeping) = (Arc::new(Mutex::new(Some("the disk is full"))), kept.clone());
    let breaking = broken.clone();
    let options = RunLog::options().sealer(move |_| {
        Ok(Sealer::new(None, move |segment: &Segment| {
            let problem = *breaking.lock().unwrap();
            match problem {
                Some("panic") => panic!("on purpose"),
                Some(problem) => return Err(problem.into()),
                None => keeping.lock().unwrap().push(segment.clone()),
            }
            Ok(())
        }))
    });
    let run = options.open(directory.path(), Durability::Process).unwrap();
    acked(complete(&run, 1));
    let error = run.seal_now().unwrap_err();
    assert!(matches!(error, SealError::Refused { first: Seq(0), .. }), "{error}");
    assert!(error.to_string().contains("the disk is full"), "{error}");
    *broken.lock().unwrap() = Some("panic");
    let error = run.seal_now().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    acked(complete(&run, 2));
    *broken.lock().unwrap() = None;
    run.seal_now().unwrap();
    assert_eq!(kept.lock().unwrap()[0].first, Seq(0), "from where it failed");
    acked(complete(&run, 3));
    *broken.lock().unwrap() = Some("the disk is full");
    let error = run.close().unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    let sealed = kept.lock().unwrap().last().unwrap().last;
    let log = ReadLog::open(directory.path()).unwrap();
    let rest: Vec<_> = log.segments(Some(sealed)).collect::<Result<_, _>>().unwrap();
    assert_eq!(rest.len(), 1);
    kept.lock().unwrap().extend(rest);
    drop(log);
    assert_whole(directory.path(), &kept);
}

#[test]
fn segments_ahead_of_the_log_are_damage() {
    let directory = tempdir().unwrap();
    RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap().close().unwrap();
    let open = |through: u64| {
        let options = RunLog::options().sealer(move |_| Ok(Sealer::new(Some(Seq(through)), |_| Ok(()))));
        options.open(directory.path(), Durability::Process)
    };
    let error = open(1).unwrap_err();
    assert!(matches!(error, OpenError::Behind { found: 1, needed: 2, .. }), "{error:?}");
    open(0).unwrap();
    let options = RunLog::options().sealer(|_| Err("no manifest".into()));
    let error = options.open(directory.path(), Durability::Process).unwrap_err();
    assert!(error.to_string().contains("no manifest"), "{error}");
}
