//! G4: damage is refused, never skipped. Whatever is flipped, cut or removed: the run opens whole, or is refused with a
//! message that names the place.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch::RunLog;
use anabranch_core::{Event, EventKind};
use anabranch_log::{Durability, OpenError};
use tempfile::{TempDir, tempdir};

use crate::scripted::{Numbers, acked, complete, copy, events, files, read_all};

/// A run of two sessions: the first lies in sorted files and blobs, the second in the write-ahead log. Nothing was synced
/// at intervals, so that HEAD counts as unsynced what was not synced otherwise.
fn run(durability: Durability) -> TempDir {
    let directory = tempdir().unwrap();
    for session in 0..2 {
        let options = RunLog::options().unsealed().sync_every(Duration::from_secs(1_000_000));
        let run = options.open(directory.path(), durability).unwrap();
        (0..12).for_each(|row| acked(complete(&run, session * 100 + row)));
        run.close().unwrap();
    }
    directory
}

pub fn named(path: &Path, suffix: &str) -> PathBuf {
    let mut found: Vec<PathBuf> =
        files(path).into_iter().filter(|file| file.to_string_lossy().ends_with(suffix)).collect();
    found.sort_by_key(|file| fs::metadata(file).unwrap().len());
    found.pop().unwrap_or_else(|| panic!("no file ends in {suffix}"))
}

/// Opens a damaged run both ways: each must give `whole`, or be refused naming a path of the run. Says whether it was
/// refused.
fn refused(damaged: &Path, whole: &[Event], what: &str) -> bool {
    let name = damaged.file_name().unwrap().to_string_lossy().into_owned();
    let read = read_all(damaged);
    match &read {
        Ok(events) => assert_eq!(events, whole, "{what}: read without an error"),
        Err(error) => assert!(error.to_string().contains(&name), "{what}: {error}"),
    }
    match RunLog::options().unsealed().open(damaged, Durability::Process) {
        Ok(run) => {
            assert_eq!(run.found().events, whole.len() as u64, "{what}: opened");
            assert_eq!(run.found().lost, 0, "{what}: opened");
            run.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            let again = read_all(damaged);
            let kept = again.as_ref().is_ok_and(|events| events[..whole.len()] == *whole);
            assert!(kept || again.is_err(), "{what}: opened, but not whole");
        }
        Err(error) => assert!(error.to_string().contains(&name), "{what}: {error}"),
    }
    read.is_err()
}

#[test]
fn a_flipped_bit_anywhere_is_refused_or_harmless() {
    let whole_run = run(Durability::Process);
    let whole = events(whole_run.path());
    let scratch = tempdir().unwrap();
    let damaged = scratch.path().join("damaged-run");
    let mut numbers = Numbers::seeded(4);
    let mut refusals = std::collections::BTreeMap::<String, (u32, u32)>::new();
    for file in files(whole_run.path()) {
        let name = file.strip_prefix(whole_run.path()).unwrap().to_owned();
        let length = fs::metadata(&file).unwrap().len();
        for _ in 0..length.min(10) {
            let bit = numbers.below(length * 8);
            copy(whole_run.path(), &damaged).unwrap();
            let mut bytes = fs::read(damaged.join(&name)).unwrap();
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            fs::write(damaged.join(&name), bytes).unwrap();
            let what = format!("bit {bit} of {}", name.display());
            let kind = name.extension().or(name.file_name()).unwrap().to_string_lossy().into_owned();
            let (tried, refusals) = refusals.entry(kind).or_default();
            *tried += 1;
            *refusals += u32::from(refused(&damaged, &whole, &what));
        }
    }
    // What holds acknowledged data must never be damaged without a refusal; a bit of padding or of a statistic may.
    let (tried, refusals_of_head) = refusals["HEAD"];
    assert_eq!(tried, refusals_of_head, "every bit of HEAD is covered by its checksum");
    let (tried, refusals_of_log) = refusals["log"];
    assert_eq!(tried, refusals_of_log, "every bit of the write-ahead log is covered by its checksums");
    assert!(refusals["sst"].1 > 0 && refusals["blob"].1 > 0, "{refusals:?}");
}

#[test]
fn a_cut_log_is_refused_however_little_is_missing() {
    let whole_run = run(Durability::Process);
    let whole = events(whole_run.path());
    let scratch = tempdir().unwrap();
    let damaged = scratch.path().join("damaged-run");
    let length = fs::metadata(named(whole_run.path(), ".log")).unwrap().len();
    for cut in [1, 10, 100, 1000, length / 2, length - 1, length] {
        copy(whole_run.path(), &damaged).unwrap();
        let wal = fs::OpenOptions::new().write(true).open(named(&damaged, ".log")).unwrap();
        wal.set_len(length - cut).unwrap();
        assert!(refused(&damaged, &whole, &format!("{cut} bytes cut")));
    }
    for suffix in [".log", ".sst", ".blob", "CURRENT"] {
        copy(whole_run.path(), &damaged).unwrap();
        fs::remove_file(named(&damaged, suffix)).unwrap();
        assert!(refused(&damaged, &whole, &format!("{suffix} removed")));
    }
    copy(whole_run.path(), &damaged).unwrap();
    fs::remove_dir_all(damaged.join("log")).unwrap();
    let error = RunLog::options().unsealed().open(&damaged, Durability::Process).unwrap_err();
    assert!(matches!(error, OpenError::Behind { .. }), "{error}");
    for cut in [1, 31, 32] {
        copy(whole_run.path(), &damaged).unwrap();
        fs::OpenOptions::new().write(true).open(damaged.join("HEAD")).unwrap().set_len(32 - cut).unwrap();
        let error = RunLog::options().unsealed().open(&damaged, Durability::Process).unwrap_err();
        assert!(matches!(error, OpenError::Head { .. }), "{error}");
    }
}

/// Makes HEAD say that it was written before the last boot.
pub fn reboot(run: &Path) {
    let head = run.join("HEAD");
    let mut bytes = fs::read(&head).unwrap();
    bytes[16] ^= 1;
    let checksum = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(head, bytes).unwrap();
}

fn cut_log(run: &Path) {
    let wal = named(run, ".log");
    let length = fs::metadata(&wal).unwrap().len();
    fs::OpenOptions::new().write(true).open(wal).unwrap().set_len(length - 1).unwrap();
}

#[test]
fn after_a_power_loss_the_lost_events_are_counted_and_reported() {
    let directory = run(Durability::Process);
    let whole = events(directory.path());
    reboot(directory.path());
    cut_log(directory.path());
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
    let found = run.found();
    assert!(found.lost > 0 && found.lost + found.events == whole.len() as u64, "{found:?}");
    run.close().unwrap();
    let kept = events(directory.path());
    assert_eq!(kept[..found.events as usize], whole[..found.events as usize]);
    let resumed = &kept[found.events as usize].kind;
    assert!(matches!(resumed, EventKind::RunResumed { lost, .. } if *lost == found.lost), "{resumed:?}");
    assert_eq!(
        RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap().found().lost,
        0,
        "reported once"
    );
}

#[test]
fn what_was_synced_cannot_be_lost_to_a_power_loss() {
    let directory = run(Durability::Sync);
    reboot(directory.path());
    cut_log(directory.path());
    // How the run is opened now does not matter: the promise was made when the events were acknowledged.
    let error = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap_err();
    assert!(matches!(error, OpenError::Behind { .. }), "{error}");

    let directory = tempdir().unwrap();
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
    (0..5).for_each(|row| acked(complete(&run, row)));
    run.sync().unwrap();
    // The next commit tells HEAD how far the sync got.
    acked(complete(&run, 5));
    run.close().unwrap();
    reboot(directory.path());
    let wal = named(directory.path(), ".log");
    let length = fs::metadata(&wal).unwrap().len();
    fs::OpenOptions::new().write(true).open(wal).unwrap().set_len(length / 2).unwrap();
    let error = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap_err();
    assert!(matches!(error, OpenError::Behind { .. }), "{error}");
}
