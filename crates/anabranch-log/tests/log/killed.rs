//! G1 and G3: what was acknowledged survives SIGKILL, and a commit is there whole or not at all.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anabranch::RunLog;
use anabranch_core::{Cursor, Digest, EventKind, Seq, TrainingStep};
use anabranch_log::{Durability, OpenError, ReadLog, Sealer};
use anabranch_stream::Run;
use futures::executor::block_on;
use tempfile::tempdir;

use crate::scripted::{Numbers, complete, complete_at_once, group, id};

const DIRECTORY: &str = "ANABRANCH_KILLED_RUN";
const SYNC: &str = "ANABRANCH_KILLED_RUN_SYNCED";
const DEATH: &str = "ANABRANCH_KILLED_RUN_DEATH";
/// A new run begins after so many: runs are killed while they are made, too, and each check reads all of one.
const KILLS_OF_A_RUN: u64 = 6;

/// Prints a line for the process that started this one.
pub fn say(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
}

/// Not a test of its own: the process that the test below starts and kills. It appends groups, several at a time, and
/// prints which were acknowledged, until it is killed or dies by itself.
#[test]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    say("opening");
    // Both durable modes in turn, on one directory.
    let durability = if std::env::var(SYNC).is_ok() { Durability::Sync } else { Durability::Process };
    let options = RunLog::options().sealer(|_| Ok(Sealer::new(None, |_| Ok(()))));
    let run = options.open(&directory, durability).unwrap();
    let mut row = u64::from(run.found().session) * 1_000_000;
    if let Ok(death) = std::env::var(DEATH) {
        die(&run, row, &death);
    }
    for round in 1.. {
        let recorded: Vec<_> = (0..=round % 5).map(|index| (row + index, complete(&run, row + index))).collect();
        row += recorded.len() as u64;
        for (row, recorded) in recorded {
            let seq = recorded.last_seq();
            block_on(recorded.durable).unwrap();
            say(&format!("acked {row} {}", seq.0));
        }
        if round % 8 == 0 {
            let step = TrainingStep(u64::from(run.found().session) * 1000 + round / 8);
            let cursor = Cursor { step, weights: Digest::of(b"weights"), ..Cursor::default() };
            let mut write = |path: &Path| Ok(std::fs::write(path.join("weights"), vec![7; 10_000])?);
            let name = run.journal().checkpoint(&cursor, &mut write).unwrap().unwrap();
            say(&format!("saved {name}"));
        }
    }
}

/// Dies at the worst moments: with a commit of many groups under way, as soon as it is acknowledged, or before. To the
/// log an abort is a SIGKILL: nothing of the process runs any more.
fn die(run: &Run, first: u64, death: &str) {
    let (when, count) = death.split_once(' ').unwrap();
    let count = count.parse().unwrap();
    let recorded = complete_at_once(run, first, count);
    if when == "acknowledged" {
        let last = recorded.last_seq();
        block_on(recorded.durable).unwrap();
        say(&format!("acked {} {}", first + count - 1, last.0));
    }
    std::process::abort();
}

/// What the children said.
#[derive(Default)]
struct Said {
    /// Row and seq of each acknowledged group.
    acked: BTreeMap<u64, u64>,
    /// The last checkpoint.
    saved: String,
}

impl Said {
    fn note(&mut self, line: &str) {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("acked"), Some(row), Some(seq)) => {
                self.acked.insert(row.parse().unwrap(), seq.parse().unwrap());
            }
            (Some("saved"), Some(name), None) => name.clone_into(&mut self.saved),
            _ => {}
        }
    }
}

#[test]
fn acknowledged_groups_survive_a_kill_at_any_moment() {
    let kills: u64 = std::env::var("ANABRANCH_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(40);
    let mut numbers = Numbers::seeded(20_260_601);
    let mut directory = tempdir().unwrap();
    let (mut said, mut survivors) = (Said::default(), 0);
    for kill in 0..kills {
        if kill % KILLS_OF_A_RUN == 0 {
            directory = tempdir().unwrap();
            survivors += std::mem::take(&mut said).acked.len() as u64;
        }
        let at = format!("kill {kill} of {kills}, ANABRANCH_SEED={}", numbers.0);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["killed::child", "--exact", "--nocapture"]).env(DIRECTORY, directory.path());
        if numbers.below(3) == 0 {
            child.env(SYNC, "yes");
        }
        let alone = numbers.below(2) == 0;
        if alone {
            let when = if numbers.below(2) == 0 { "acknowledged" } else { "appended" };
            child.env(DEATH, format!("{when} {}", 1 + numbers.below(2000)));
        }
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "opening"), "the child starts: {at}");
        if !alone {
            // After some acknowledgements and a moment more, or while it opens.
            let wanted = if numbers.below(3) == 0 { 0 } else { numbers.below(120) };
            lines.by_ref().take(2 * wanted as usize).for_each(|line| said.note(&line));
            (0..numbers.below(3_000_000)).for_each(|_| std::hint::spin_loop());
            child.kill().unwrap();
        }
        // What it said before it died counts too. A last line may be cut, unless it died by itself.
        let mut rest: Vec<String> = lines.collect();
        let status = child.wait().unwrap();
        assert!(status.code().is_none(), "it died of a signal, not of {status}: {at}");
        if !alone {
            rest.pop();
        }
        for line in rest {
            said.note(&line);
        }
        check(directory.path(), &said, &at);
    }
    survivors += said.acked.len() as u64;
    assert!(survivors > kills, "the children got somewhere: {survivors} groups");
}

/// Everything acknowledged is there and whole; events, payloads and heads agree.
fn check(directory: &Path, said: &Said, at: &str) {
    let log = match ReadLog::open(directory) {
        // Killed before the run was made.
        Err(OpenError::NoRun { .. }) if said.acked.is_empty() => return,
        opened => opened.unwrap_or_else(|error| panic!("{at}: {error}")),
    };
    let counts = log.check().unwrap_or_else(|error| panic!("{at}: {error}"));
    assert_eq!(counts.completed, counts.payloads, "{at}");
    assert_eq!(log.lost(), 0, "{at}");
    for (&row, &seq) in &said.acked {
        let event = log.events_from(Seq(seq)).next();
        let event = event.unwrap_or_else(|| panic!("{at}: event {seq} is gone")).unwrap();
        assert!(matches!(&event.kind, EventKind::Completed { id: of, .. } if *of == id(row)), "{at}: {event:?}");
    }
    for &row in said.acked.keys().rev().take(50) {
        assert_eq!(log.payload(&id(row)).unwrap(), group(row), "{at}");
    }
    let past = log.resume_state().unwrap();
    if !said.saved.is_empty() {
        let step = |name: &str| name.strip_prefix("step-").unwrap().parse::<u64>().unwrap();
        let newest = past.checkpoints.first().unwrap_or_else(|| panic!("{at}: {} is gone", said.saved));
        assert!(step(&newest.name) >= step(&said.saved), "{at}: {} was made, not {}", said.saved, newest.name);
    }
}
