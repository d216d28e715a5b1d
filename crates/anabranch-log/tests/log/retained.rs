//! Retention: what is sealed and behind the oldest of the last checkpoints leaves the database, and nothing else does;
//! it is read out of what was sealed from then on.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anabranch::RunLog;
use anabranch_core::{Cursor, EventKind, Group, GroupId, Reason, Seq, Then, TrainingStep};
use anabranch_log::{Durability, OpenError, ReadError, ReadLog, Sealer, Segment};
use anabranch_stream::Run;
use anabranch_stream::by_hand::{Draft, RecordReceipt, RunByHand};
use tempfile::tempdir;

use crate::scripted::{Numbers, acked, complete, complete_these, files, group, id, take};

/// Stands in for the Parquet segments.
#[derive(Default)]
struct Kept {
    sealed: Option<Seq>,
    groups: HashMap<GroupId, Group>,
    /// How many were read back.
    read: usize,
    /// Whether payloads are thrown away: for tests that count bytes.
    forgetful: bool,
}

type Shared = Arc<Mutex<Kept>>;

fn open(path: &Path, kept: &Shared) -> RunLog {
    try_open(path, kept).unwrap()
}

fn try_open(path: &Path, kept: &Shared) -> Result<RunLog, OpenError> {
    let (sealing, reading, through) = (kept.clone(), kept.clone(), kept.lock().unwrap().sealed);
    let sealer = Sealer::new(through, move |segment: &Segment| {
        let mut kept = sealing.lock().unwrap();
        kept.sealed = Some(segment.last);
        if !kept.forgetful {
            kept.groups.extend(segment.groups.iter().map(|group| (group.id.clone(), group.clone())));
        }
        Ok(())
    });
    let sealer = sealer.reading(move |id| {
        let mut kept = reading.lock().unwrap();
        kept.read += 1;
        Ok(kept.groups.get(id).cloned())
    });
    RunLog::options().keep_checkpoints(2).sealer(move |_| Ok(sealer)).open(path, Durability::Process)
}

/// Takes the groups of `rows` for `step`, and makes a checkpoint after it.
fn train(run: &RunLog, step: u64, rows: &[u64]) {
    let taken = take(run, step, rows).last_seq();
    save(run, step, taken);
}

fn save(run: &RunLog, step: u64, taken: Seq) {
    let cursor = Cursor { step: TrainingStep(step), taken: Some(taken), ..Cursor::default() };
    run.journal().checkpoint(&cursor, &mut |path| Ok(std::fs::write(path.join("weights"), b"w")?)).unwrap();
}

fn exclude(run: &Run, row: u64) -> RecordReceipt {
    let kind = EventKind::Excluded { id: id(row), reason: Reason::Stale { gap: 9 }, then: Then::Drop, dequeued: None };
    run.record(vec![Draft::new(kind, Vec::new())], &[])
}

/// Which of the rows the database itself still holds.
fn held(path: &Path, rows: std::ops::Range<u64>) -> Vec<u64> {
    let log = ReadLog::open(path).unwrap();
    rows.filter(|row| match log.payload(&id(*row)) {
        Ok(read) => read == group(*row),
        Err(error) => {
            assert!(matches!(error, ReadError::Dropped { .. } | ReadError::Missing { .. }), "{error}");
            false
        }
    })
    .collect()
}

#[test]
fn payloads_go_once_every_late_checkpoint_is_past_them_and_are_read_from_what_was_sealed() {
    let directory = tempdir().unwrap();
    let kept = Shared::default();
    let run = open(directory.path(), &kept);
    (0..20).for_each(|row| acked(complete(&run, row)));
    acked(exclude(&run, 3));
    train(&run, 1, &[0, 1]);
    train(&run, 2, &[2, 4]);
    acked(exclude(&run, 19));
    train(&run, 3, &[5, 6]);
    assert_eq!(run.payload(&id(0)).unwrap(), group(0));
    run.close().unwrap();
    // Of the last two checkpoints the older is that of step 2. Its batch is in the weights; what came after is not.
    let left: Vec<u64> = (5..20).collect();
    assert_eq!(held(directory.path(), 0..20), left);
    let log = ReadLog::open(directory.path()).unwrap();
    let counts = log.check().unwrap();
    assert_eq!((counts.completed, counts.payloads, counts.dropped), (20, 15, 5));
    let error = log.payload(&id(3)).unwrap_err();
    assert!(matches!(error, ReadError::Dropped { .. }) && error.to_string().contains("parquet/"), "{error}");
    let reading = kept.clone();
    let log = log.reading(move |id| Ok(reading.lock().unwrap().groups.get(id).cloned()));
    assert_eq!(log.payload(&id(3)).unwrap(), group(3), "excluded groups keep their payload");
    let exported: Vec<Group> = log.segments(None).flat_map(|segment| segment.unwrap().groups).collect();
    assert_eq!(exported, (0..20).map(group).collect::<Vec<_>>(), "what was dropped is exported with the rest");
    drop(log);

    let run = open(directory.path(), &kept);
    for row in 0..20 {
        let before = kept.lock().unwrap().read;
        assert_eq!(run.payload(&id(row)).unwrap(), group(row));
        assert_eq!(kept.lock().unwrap().read > before, row < 5, "row {row} is read where it lies");
    }
    assert!(run.payload(&id(99)).is_err());
    run.close().unwrap();
}

#[test]
fn nothing_goes_that_is_not_sealed_or_has_no_reader() {
    let directory = tempdir().unwrap();
    let sealer = Sealer::new(None, |_: &Segment| Err("no room for segments".into()));
    let options = RunLog::options().unsealed().keep_checkpoints(1);
    let options = options.sealer(move |_| Ok(sealer.reading(|_| Ok(None))));
    let run = options.open(directory.path(), Durability::Process).unwrap();
    (0..4).for_each(|row| acked(complete(&run, row)));
    train(&run, 1, &[0, 1]);
    run.close().unwrap_err();
    assert_eq!(held(directory.path(), 0..4), [0, 1, 2, 3], "the segments refused");
    let options = RunLog::options().keep_checkpoints(1).sealer(|_| Ok(Sealer::new(None, |_: &Segment| Ok(()))));
    let run = options.open(directory.path(), Durability::Process).unwrap();
    train(&run, 2, &[2]);
    run.close().unwrap();
    assert_eq!(held(directory.path(), 0..4), [0, 1, 2, 3], "nothing could read them back");
}

#[test]
fn a_group_adopted_again_keeps_its_new_payload() {
    let directory = tempdir().unwrap();
    let kept = Shared::default();
    let run = open(directory.path(), &kept);
    acked(complete(&run, 0));
    acked(complete(&run, 1));
    train(&run, 1, &[0, 1]);
    acked(complete(&run, 0));
    run.seal_now().unwrap();
    run.close().unwrap();
    assert_eq!(held(directory.path(), 0..2), [0], "its second payload is not settled");
    ReadLog::open(directory.path()).unwrap().check().unwrap();
}

#[test]
fn segments_that_the_log_relies_on_must_be_there() {
    let directory = tempdir().unwrap();
    let kept = Shared::default();
    let run = open(directory.path(), &kept);
    acked(complete(&run, 0));
    train(&run, 1, &[0]);
    run.close().unwrap();
    let lost = Shared::default();
    let error = try_open(directory.path(), &lost).unwrap_err();
    assert!(matches!(error, OpenError::Unsealed { sealed: 0, .. }), "{error}");
    assert!(error.to_string().contains("parquet"), "{error}");
    open(directory.path(), &kept).close().unwrap();
}

/// The bound: living payloads and about 1 KB a group, whatever has passed through. `ANABRANCH_RETAINED_GROUPS` makes it
/// larger. A third of the groups waits long before it is taken, so that living payloads lie between dead ones.
#[test]
fn the_database_stays_small() {
    let groups = std::env::var("ANABRANCH_RETAINED_GROUPS").ok().and_then(|groups| groups.parse().ok());
    let groups: u64 = groups.unwrap_or(24_000);
    let directory = tempdir().unwrap();
    let kept = Shared::default();
    kept.lock().unwrap().forgetful = true;
    let run = open(directory.path(), &kept);
    let mut waiting = VecDeque::new();
    let mut excess = 0;
    for (first, step) in (0..groups).step_by(BATCH as usize).zip(1..) {
        acked(complete_these(&run, &(first..first + BATCH).map(noise).collect::<Vec<_>>()));
        waiting.extend((first..first + BATCH).filter(|row| row % 3 == 0));
        let late = if waiting.len() > 2_000 { waiting.drain(..BATCH as usize / 3).collect() } else { Vec::new() };
        let rows: Vec<u64> = (first..first + BATCH).filter(|row| row % 3 != 0).chain(late).collect();
        let taken = take(&run, step, &rows).last_seq();
        if step % 4 == 0 {
            save(&run, step, taken);
            run.seal_now().unwrap();
            let bound = bound(first + BATCH, waiting.len() as u64);
            excess = excess.max(size(directory.path()).saturating_sub(bound));
        }
    }
    run.close().unwrap();
    let (size, live) = (size(directory.path()), waiting.len() as u64);
    let bound = bound(groups, live);
    println!(
        "{groups} groups of {PAYLOAD} bytes, {live} of them alive: {size} bytes in the database, at most {bound}; while \
         it ran at most {excess} more than its bound then (as fast as rounds and compactions came along)"
    );
    assert!(size < bound, "{size} bytes, at most {bound} for {live} living payloads");
    assert!(groups * PAYLOAD > 2 * bound, "all payloads are much more than the bound");
    let counts = ReadLog::open(directory.path()).unwrap().check().unwrap();
    assert_eq!((counts.completed, counts.payloads + counts.dropped), (groups, groups));
}

const BATCH: u64 = 250;
/// Tokens and log-probs of a group that [`noise`] makes.
const PAYLOAD: u64 = 8 * 1000;
/// A group that does not compress.
fn noise(row: u64) -> Group {
    let mut group = group(row);
    let mut numbers = Numbers(row);
    let sample = &mut group.samples[0];
    sample.tokens.truncate(3);
    sample.tokens.extend((0..1000).map(|_| numbers.below(1 << 32) as u32));
    sample.logprobs = (0..1000).map(|_| -(numbers.below(1 << 32) as f32)).collect();
    sample.loss_mask = vec![true; 1000];
    sample.spans[0].end = 1000;
    group.samples.truncate(1);
    group.expected = 1;
    group
}

/// Living payloads are those that wait, and those of the steps after the older one of the two checkpoints: at most eight.
/// A quarter more may be dead. The rest is events.
fn bound(groups: u64, live: u64) -> u64 {
    (live + 8 * BATCH) * PAYLOAD * 5 / 4 + 1000 * groups
}

fn size(run: &Path) -> u64 {
    files(&run.join("log")).iter().filter_map(|file| std::fs::metadata(file).ok()).map(|file| file.len()).sum()
}
