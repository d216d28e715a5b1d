//! G2: under `Durability::Sync` what was acknowledged survives a power loss. The system calls of a process are recorded,
//! and at each of its syncs the disk is rebuilt as a power loss just before it would have left it: without anything that
//! was not synced by then, and with a part of it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anabranch::{RunLog, RunLogOptions};
use anabranch_core::{BoxError, Cursor, Digest, TrainingStep};
use anabranch_log::{Durability, OpenError, ReadLog, Sealer, Segment};
use anabranch_parquet::{SegmentReader, Segments};
use futures::executor::block_on;
use tempfile::{tempdir, tempdir_in};

use crate::damage::reboot;
use crate::disk::Luck;
use crate::scripted::{Numbers, complete, group, id};
use crate::traced::{CALLS, Player};

const DIRECTORY: &str = "ANABRANCH_POWER_LOSS_RUN";
const ROUNDS: u64 = 16;

fn sealing() -> RunLogOptions {
    RunLog::options().sealer(|run| {
        let mut segments = Segments::open(run.join("parquet"))?;
        Ok(Sealer::new(segments.sealed_through(), move |segment: &Segment| {
            let mut payloads = segment.groups.iter().cloned();
            let next = |_: &_| payloads.next().ok_or_else(|| BoxError::from("a payload is missing"));
            segments.seal(&segment.events, next).map(|_| ()).map_err(BoxError::from)
        }))
    })
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
}

/// Not a test of its own: the process whose system calls are recorded. Two sessions, so that what opening a run moves
/// around is recorded too.
#[test]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    for session in 0..2 {
        let run = sealing().open(&directory, Durability::Sync).unwrap();
        let mut row = session * 1000;
        for round in 1..=ROUNDS {
            let recorded: Vec<_> = (0..=round % 3).map(|index| (row + index, complete(&run, row + index))).collect();
            row += recorded.len() as u64;
            for (row, recorded) in recorded {
                let seq = recorded.last_seq();
                block_on(recorded.durable).unwrap();
                say(&format!("acked {row} {}", seq.0));
            }
            if round % 5 == 0 {
                let step = TrainingStep(session * 100 + round);
                let cursor = Cursor { step, weights: Digest::of(b"weights"), ..Cursor::default() };
                let mut write = |path: &Path| Ok(std::fs::write(path.join("weights"), vec![7; 1000])?);
                run.journal().checkpoint(&cursor, &mut write).unwrap().unwrap();
                say(&format!("saved {}", step.0));
            }
            if round % 7 == 0 {
                run.seal_now().unwrap();
                let sealed = SegmentReader::open(Path::new(&directory).join("parquet")).unwrap();
                say(&format!("sealed {}", sealed.sealed_through().unwrap().0));
            }
        }
        run.close().unwrap();
    }
}

/// What the process had said by some moment.
#[derive(Default)]
struct Said {
    acked: Vec<(u64, u64)>,
    saved: Option<u64>,
    sealed: Option<u64>,
}

fn said(bytes: &[u8]) -> Said {
    let mut said = Said::default();
    let text = String::from_utf8_lossy(bytes);
    // A last line without its end may not have been heard.
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let mut words = line.split(' ');
        let kind = words.next();
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        match (kind, numbers[..].as_ref()) {
            (Some("acked"), [row, seq]) => said.acked.push((*row, *seq)),
            (Some("saved"), [step]) => said.saved = Some(*step),
            (Some("sealed"), [seq]) => said.sealed = Some(*seq),
            _ => {}
        }
    }
    said
}

#[test]
#[ignore = "needs strace: scripts/test.sh runs it as the check `strace`"]
fn acknowledged_groups_survive_a_power_loss_at_every_sync() {
    let version = Command::new("strace").arg("-V").output();
    assert!(version.is_ok(), "strace is missing: scripts/install-packages.sh test installs it");
    let root = tempdir().unwrap();
    let root_path = root.path().canonicalize().unwrap();
    let recording = root_path.with_extension("strace");
    let mut child = Command::new("strace");
    child.args(["-f", "-xx", "-s", "100000000", "-e", CALLS, "-e", "signal=none", "-o"]).arg(&recording);
    child.arg(std::env::current_exe().unwrap()).args(["power_loss::child", "--exact", "--nocapture"]);
    let status = child.env(DIRECTORY, root_path.join("run")).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "the recorded process: {status}");
    let text = std::fs::read_to_string(&recording).unwrap();
    std::fs::remove_file(&recording).unwrap();

    let mut player = Player::new(&root_path);
    let mut numbers = Numbers::seeded(20_261_130);
    let (mut losses, mut whole) = (0, Said::default());
    for line in text.lines() {
        if player.is_sync(line) {
            whole = said(&player.said);
            let mut lose = |luck: &mut Luck<'_>, what: &str| {
                // In memory where that can be had: opening a run waits for the disk many times.
                let scratch = tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap();
                player.disk.after_power_loss(scratch.path(), luck);
                check(&scratch.path().join("run"), &whole, &format!("loss {losses}, {what}"));
                losses += 1;
            };
            lose(&mut Luck::None, "nothing unsynced survives");
            let at = format!("a part of it survives, ANABRANCH_SEED={}", numbers.0);
            lose(&mut Luck::Some(&mut numbers), &at);
        }
        player.play(line);
    }
    let all = said(&player.said);
    assert!(losses > 2 * 60, "only {losses} power losses");
    assert!(
        all.acked.len() as u64 > ROUNDS && all.saved.is_some() && all.sealed.is_some(),
        "the process got somewhere"
    );
    assert!(whole.acked.len() + 3 > all.acked.len(), "the last acknowledgements are followed by syncs");
}

/// Everything acknowledged is there and whole, and the run continues.
fn check(run: &Path, said: &Said, at: &str) {
    if run.join("HEAD").exists() {
        reboot(run);
    }
    match ReadLog::open(run) {
        // The power went before the run was made.
        Err(OpenError::NoRun { .. }) if said.acked.is_empty() => {}
        opened => {
            let log = opened.unwrap_or_else(|error| panic!("{at}: {error}"));
            let counts = log.check().unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!((counts.completed, log.lost()), (counts.payloads, 0), "{at}");
            for &(row, seq) in &said.acked {
                assert!(seq < counts.events, "{at}: event {seq}, acknowledged, is gone; there are {}", counts.events);
                assert_eq!(log.payload(&id(row)).unwrap(), group(row), "{at}");
            }
            let newest = log.resume_state().unwrap().checkpoints.first().map(|checkpoint| checkpoint.cursor.step.0);
            assert!(newest >= said.saved, "{at}: checkpoint {newest:?}, {:?} was made", said.saved);
        }
    }
    if let Some(sealed) = said.sealed {
        let segments = SegmentReader::open(run.join("parquet")).unwrap_or_else(|error| panic!("{at}: {error}"));
        assert!(segments.sealed_through().map(|seq| seq.0) >= Some(sealed), "{at}: sealed segments are gone");
        segments.check_files().unwrap_or_else(|error| panic!("{at}: {error}"));
    }
    let again = sealing().open(run, Durability::Sync).unwrap_or_else(|error| panic!("{at}: {error}"));
    block_on(complete(&again, 1_000_000).durable).unwrap_or_else(|error| panic!("{at}: {error}"));
    again.close().unwrap_or_else(|error| panic!("{at}: {error}"));
}
