//! Reading changes nothing.

use anabranch::RunLog;
use anabranch_core::Seq;
use anabranch_log::{Durability, ReadLog};
use tempfile::tempdir;

use crate::scripted::{acked, complete, contents, group, id};

#[test]
fn reading_a_run_leaves_its_directory_byte_for_byte() {
    let directory = tempdir().unwrap();
    // The second session finds what the first wrote in sorted files, and leaves its own in the write-ahead log.
    for session in 0..2 {
        let run = RunLog::options().unsealed().open(directory.path(), Durability::Process).unwrap();
        (0..20).for_each(|row| acked(complete(&run, session * 100 + row)));
        run.close().unwrap();
    }
    let before = contents(directory.path());
    assert!(before.iter().any(|(path, _)| path.extension().is_some_and(|extension| extension == "sst")));

    let log = ReadLog::open(directory.path()).unwrap();
    let second = ReadLog::open(directory.path()).unwrap();
    assert_eq!(log.check().unwrap().payloads, 40);
    assert_eq!(second.payload(&id(105)).unwrap(), group(105));
    assert_eq!(log.resume_state().unwrap().session, 2);
    let segments: Vec<_> = log.segments(Some(Seq(4))).collect::<Result<_, _>>().unwrap();
    assert_eq!(segments[0].first, Seq(5));
    assert_eq!(segments.iter().map(|segment| segment.groups.len()).sum::<usize>(), 38);
    assert!(contents(directory.path()) == before, "while it is read");
    drop((log, second));
    assert!(contents(directory.path()) == before, "after it was read");
}
