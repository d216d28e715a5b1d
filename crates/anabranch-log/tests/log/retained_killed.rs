//! Retention under SIGKILL: whatever the moment, no payload is gone that is not sealed, or that a checkpoint may need.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anabranch::RunLog;
use anabranch_core::{Cursor, EventKind, GroupId, Seq, TrainingStep};
use anabranch_log::{Durability, OpenError, ReadLog, Sealer, Segment};
use anabranch_parquet::{SealedPayloads, Segments};
use tempfile::tempdir;

use crate::killed::say;
use crate::scripted::{Numbers, acked, complete_these, group, id, take};

const DIRECTORY: &str = "ANABRANCH_RETAINED_RUN";
/// Groups of a batch. Rounds of retention begin at 256 settled groups.
const BATCH: u64 = 64;

fn open(run: &Path) -> RunLog {
    let sealer = |run: &Path| {
        let mut segments = Segments::open(run.join("parquet"))?;
        let (through, payloads) = (segments.sealed_through(), SealedPayloads::of(segments.folder()));
        let sealer = Sealer::new(through, move |segment: &Segment| {
            let mut groups = segment.groups.iter().cloned();
            segments.seal(&segment.events, |_| groups.next().ok_or_else(|| "a payload is missing".into()))?;
            Ok(())
        });
        Ok(sealer.reading(move |id| Ok(payloads.read(id)?)))
    };
    RunLog::options().keep_checkpoints(1).sealer(sealer).open(run, Durability::Process).unwrap()
}

/// Not a test of its own: the process that the test below starts and kills. It completes groups, takes them a batch
/// later, and makes a checkpoint every other batch, which has everything before it sealed and then dropped.
#[test]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let trained = ReadLog::open(directory).map_or(0, |log| log.resume_state().unwrap().batches.len() as u64);
    say("opening");
    let run = open(directory);
    let mut first = u64::from(run.found().session) * 1_000_000;
    for step in trained + 1.. {
        acked(complete_these(&run, &(first..first + BATCH).map(group).collect::<Vec<_>>()));
        say(&format!("acked {first}"));
        first += BATCH;
        if step > trained + 1 {
            let rows: Vec<u64> = (first - 2 * BATCH..first - BATCH).collect();
            let taken = take(&run, step - 1, &rows).last_seq();
            if step % 2 == 0 {
                let cursor = Cursor { step: TrainingStep(step - 1), taken: Some(taken), ..Cursor::default() };
                let mut write = |path: &Path| Ok(std::fs::write(path.join("weights"), b"w")?);
                run.journal().checkpoint(&cursor, &mut write).unwrap();
            }
        }
    }
}

#[test]
fn a_kill_at_any_moment_takes_no_payload() {
    let kills: u64 = std::env::var("ANABRANCH_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12);
    let mut numbers = Numbers::seeded(20_261_130);
    let mut directory = tempdir().unwrap();
    let (mut acked, mut dropped) = (BTreeSet::new(), 0);
    for kill in 0..kills {
        if kill % 6 == 0 {
            (directory, acked) = (tempdir().unwrap(), BTreeSet::new());
        }
        let at = format!("kill {kill} of {kills}, ANABRANCH_SEED={}", numbers.0);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["retained_killed::child", "--exact", "--nocapture"]).env(DIRECTORY, directory.path());
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "opening"), "the child starts: {at}");
        let wanted = numbers.below(60) as usize;
        let mut said: Vec<String> = lines.by_ref().take(2 * wanted).collect();
        (0..numbers.below(10_000_000)).for_each(|_| std::hint::spin_loop());
        child.kill().unwrap();
        said.extend(lines);
        assert_eq!(child.wait().unwrap().code(), None, "it died of a signal: {at}");
        // The last line may be cut.
        let whole = &said[..said.len().saturating_sub(1)];
        acked.extend(whole.iter().filter_map(|line| line.strip_prefix("acked ")?.parse::<u64>().ok()));
        dropped += check(directory.path(), &acked, &at);
    }
    assert!(kills < 6 || dropped > 1000, "rounds of retention were killed, too: {dropped} payloads");
}

/// Everything acknowledged is in the log or in the segments, and what training may take again is in the log. Gives how
/// many payloads were dropped.
fn check(run: &Path, acked: &BTreeSet<u64>, at: &str) -> u64 {
    let log = match ReadLog::open(run) {
        Err(OpenError::NoRun { .. }) if acked.is_empty() => return 0,
        opened => opened.unwrap_or_else(|error| panic!("{at}: {error}")),
    };
    let counts = log.check().unwrap_or_else(|error| panic!("{at}: {error}"));
    assert_eq!(counts.completed, counts.payloads + counts.dropped, "{at}");
    let past = log.resume_state().unwrap_or_else(|error| panic!("{at}: {error}"));
    let trained = past.checkpoints.first().and_then(|checkpoint| checkpoint.cursor.taken);
    let mut settled: HashMap<GroupId, Seq> = HashMap::new();
    let mut completed = Vec::new();
    for event in log.events() {
        let event = event.unwrap();
        match event.kind {
            EventKind::Completed { id, .. } => completed.push(id),
            EventKind::BatchTaken { groups, .. } => {
                settled.extend(groups.into_iter().map(|group| (group.id, event.seq)));
            }
            _ => {}
        }
    }
    let needed = completed.iter().filter(|id| settled.get(*id).is_none_or(|seq| Some(*seq) > trained));
    for id in needed {
        assert_eq!(log.payload(id).unwrap_or_else(|error| panic!("{at}: {error}")).id, *id);
    }
    let segments = SealedPayloads::of(run.join("parquet"));
    let log = log.reading(move |id| Ok(segments.read(id)?));
    for row in acked.iter().flat_map(|first| [*first, first + BATCH - 1]) {
        let read = log.payload(&id(row)).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(read, group(row), "{at}");
    }
    counts.dropped
}
