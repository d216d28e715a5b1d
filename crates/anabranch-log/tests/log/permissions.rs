//! Directories that this user may not write, or not read: named, and left as they are.
//!
//! Permissions do not bind root, which tests often run as: then the child runs as a user that owns nothing.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anabranch::RunLog;
use anabranch_log::{Durability, ReadLog};
use tempfile::{TempDir, tempdir};

use crate::scripted::{acked, complete, contents, group, id};

const DIRECTORY: &str = "ANABRANCH_FORBIDDEN_RUN";
const NOBODY: u32 = 65534;

/// Not a test of its own: the process that the tests below start as somebody else.
#[test]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    match RunLog::options().unsealed().open(&directory, Durability::Process) {
        Ok(_) => println!("\nopened"),
        Err(error) => println!("\nrefused={error}"),
    }
    match ReadLog::open(&directory) {
        Ok(log) => {
            assert_eq!(log.payload(&id(1)).unwrap(), group(1));
            println!("read={}", log.check().unwrap().events);
        }
        Err(error) => println!("unread={error}"),
    }
}

/// What the child says of `run`.
fn said(run: &Path) -> String {
    // Somebody else may not be let through to where this binary lies.
    let place = tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = place.path().join("log");
    fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = Command::new(binary);
    child.args(["permissions::child", "--exact", "--nocapture"]).env(DIRECTORY, run);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        child.uid(NOBODY).gid(NOBODY);
    }
    // Another test's child may have been forked while the copy was open for writing, and holds it until it executes.
    let busy =
        |ended: &io::Result<Output>| ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::ExecutableFileBusy);
    let mut tries = std::iter::repeat_with(|| child.output()).take(10_000);
    let child = tries.find(|ended| !busy(ended)).expect("the copy is executable soon").unwrap();
    let out = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{out}{}", String::from_utf8_lossy(&child.stderr));
    out
}

/// A closed run, and a directory around it that everybody may pass.
fn run() -> (TempDir, PathBuf) {
    let around = tempdir().unwrap();
    fs::set_permissions(around.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = around.path().join("run");
    let run = RunLog::options().unsealed().open(&path, Durability::Process).unwrap();
    (0..3).for_each(|row| acked(complete(&run, row)));
    run.close().unwrap();
    (around, path)
}

fn permit(path: &Path, files: u32, directories: u32) {
    let mode = if path.is_dir() { directories } else { files };
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            permit(&entry.unwrap().path(), files, directories);
        }
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_run_that_may_only_be_read_is_read_and_not_opened() {
    let (_around, path) = run();
    let before = contents(&path);
    permit(&path, 0o444, 0o555);
    let said = said(&path);
    permit(&path, 0o644, 0o755);
    let refused = said.lines().find_map(|line| line.strip_prefix("refused=")).unwrap_or_else(|| panic!("{said}"));
    assert!(refused.contains("LOCK") && refused.contains("a directory that this user can write"), "{refused}");
    assert!(said.contains("read=7"), "{said}");
    assert!(contents(&path) == before, "nothing in it has changed");
    let run = RunLog::options().unsealed().open(&path, Durability::Process).unwrap();
    assert_eq!(run.found().events, 7, "it goes on once it may be written again");
    acked(complete(&run, 3));
    run.close().unwrap();
}

#[test]
fn files_that_may_not_be_read_are_named() {
    let (_around, path) = run();
    let before = contents(&path);
    for (file, named) in [("HEAD", "HEAD"), ("log/CURRENT", "log"), ("LOCK", "LOCK")] {
        permit(&path, 0o666, 0o777);
        fs::set_permissions(path.join(file), fs::Permissions::from_mode(0o000)).unwrap();
        let said = said(&path);
        for line in
            [said.lines().find(|line| line.starts_with("refused=")), said.lines().find(|l| l.starts_with("unread="))]
        {
            let line = line.unwrap_or_else(|| panic!("{file}: {said}"));
            assert!(line.contains(&*path.join(named).to_string_lossy()), "{file}: {line}");
            assert!(line.to_lowercase().contains("permission denied"), "{file}: {line}");
        }
    }
    permit(&path, 0o644, 0o755);
    let unchanged = |kept: &(PathBuf, Vec<u8>)| fs::read(&kept.0).unwrap() == kept.1 || kept.0.ends_with("LOCK");
    assert!(before.iter().all(unchanged), "nothing in it has changed, but who last held the lock");
    RunLog::options().unsealed().open(&path, Durability::Process).unwrap().close().unwrap();
}
