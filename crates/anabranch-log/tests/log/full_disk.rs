//! A disk that takes no more: the log is poisoned, and says so to everybody; what was acknowledged stays.

use std::process::Command;

use anabranch::RunLog;
use anabranch_log::{Durability, ReadLog};
use futures::executor::block_on;
use tempfile::tempdir;

use crate::scripted::{complete, group, id};

const DIRECTORY: &str = "ANABRANCH_FULL_RUN";

/// Not a test of its own: the process that the test below starts under a limit on the size of files.
#[test]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let run = RunLog::options().unsealed().open(&directory, Durability::Process).unwrap();
    let mut row = 0;
    let failure = loop {
        match block_on(complete(&run, row).durable) {
            Ok(()) => row += 1,
            Err(failure) => break failure.to_string(),
        }
        assert!(row < 1_000_000, "the limit is never met");
    };
    let next = block_on(complete(&run, row + 1).durable).unwrap_err().to_string();
    assert_eq!(next, failure, "everything after it is refused with the same words");
    let payload_of_acked = run.payload(&id(0)).unwrap();
    assert_eq!(payload_of_acked, group(0));
    run.sync().unwrap_err();
    let closing = run.close().unwrap_err().to_string();
    println!("\nrow={row}\nfailure={failure}\nclosing={closing}");
}

#[test]
fn a_write_error_poisons_the_log_and_loses_nothing_acknowledged() {
    let directory = tempdir().unwrap();
    // The shell ignores the signal that the limit sends, and so does what it starts: writes then fail with an error.
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 400; exec \"$0\" full_disk::child --exact --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(DIRECTORY, directory.path())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{out}{}", String::from_utf8_lossy(&child.stderr));
    let said = |name: &str| {
        let line = out.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {out}"));
        line.to_owned()
    };
    let acked: u64 = said("row=").parse().unwrap();
    assert!(acked > 0);
    let failure = said("failure=");
    assert!(failure.contains("is it full?") && failure.contains(&*directory.path().to_string_lossy()), "{failure}");
    assert_eq!(said("closing="), failure);

    let log = ReadLog::open(directory.path()).unwrap();
    let counts = log.check().unwrap();
    assert!(counts.completed >= acked, "{counts:?}, {acked} acknowledged");
    for row in 0..acked {
        assert_eq!(log.payload(&id(row)).unwrap(), group(row));
    }
    drop(log);
    // There is room again: the run continues, and what the error left behind does no harm.
    let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
    assert_eq!((run.found().session, run.found().events), (1, counts.events));
    for row in acked + 1000..acked + 1020 {
        block_on(complete(&run, row).durable).unwrap();
    }
    run.close().unwrap();
    let again = ReadLog::open(directory.path()).unwrap().check().unwrap();
    assert_eq!(again.completed, counts.completed + 20);
    assert_eq!(again.payloads, again.completed);
}
