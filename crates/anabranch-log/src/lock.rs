//! The lock of a run's directory: one writer, or any number of readers. It dies with the process that holds it, so that
//! a killed writer leaves none.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::OpenError;

/// The file's name in the run's directory.
pub(crate) const LOCK: &str = "LOCK";

/// A held lock.
#[derive(Debug)]
pub(crate) struct RunLock {
    _file: File,
}

impl RunLock {
    /// The writer's lock. The file names its holder.
    pub(crate) fn write(run: &Path) -> Result<Self, OpenError> {
        let path = run.join(LOCK);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(OpenError::file("opening", &path))?;
        match patiently(|| file.try_lock()) {
            Ok(()) => {
                let written = file.set_len(0).and_then(|()| file.write_all(this_process().as_bytes()));
                written.map_err(OpenError::file("writing", &path))?;
                Ok(Self { _file: file })
            }
            Err(TryLockError::Error(error)) => Err(OpenError::file("locking", &path)(error)),
            // Readers share it, a writer does not.
            Err(TryLockError::WouldBlock) if file.try_lock_shared().is_ok() => Err(OpenError::BeingRead { path }),
            Err(TryLockError::WouldBlock) => Err(OpenError::Locked { holder: holder(&mut file), path }),
        }
    }

    /// Takes a reader's lock; `None` if no writer ever made the file. Changes nothing in the directory.
    pub(crate) fn read(run: &Path, segments: PathBuf) -> Result<Option<Self>, OpenError> {
        let path = run.join(LOCK);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(OpenError::file("opening", &path))?,
        };
        match patiently(|| file.try_lock_shared()) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::Error(error)) => Err(OpenError::file("locking", &path)(error)),
            Err(TryLockError::WouldBlock) => Err(OpenError::Live { holder: holder(&mut file), path, segments }),
        }
    }
}

/// How long a lock that is held is asked for again, and how often.
const PATIENCE: (Duration, u32) = (Duration::from_millis(5), 40);

/// A process that is being started has, for the moment until it runs its own program, every open file of the one that
/// starts it, and with them its locks: a lock held by nobody else is free again at once.
fn patiently(lock: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    let (pause, times) = PATIENCE;
    for _ in 0..times {
        match lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(pause),
            ended => return ended,
        }
    }
    lock()
}

fn this_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let host = if host.is_empty() { String::new() } else { format!(" on {host}") };
    format!("process {}{host}", std::process::id())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.read_to_string(&mut text) {
        Ok(length) if length > 0 => text.trim().to_owned(),
        _ => "a process that has not yet given its name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_or_many_readers() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        let segments = || run.join("parquet");
        assert!(RunLock::read(run, segments()).unwrap().is_none(), "a run that was never opened");
        assert!(!run.join(LOCK).exists());

        let writer = RunLock::write(run).unwrap();
        let refused = RunLock::write(run).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        let refused = RunLock::read(run, segments()).unwrap_err().to_string();
        assert!(refused.contains("parquet") && refused.contains("process"), "{refused}");
        drop(writer);

        let readers = [RunLock::read(run, segments()).unwrap(), RunLock::read(run, segments()).unwrap()];
        let refused = RunLock::write(run).unwrap_err();
        assert!(matches!(refused, OpenError::BeingRead { .. }), "{refused}");
        drop(readers);
        RunLock::write(run).unwrap();
    }

    #[test]
    fn a_lock_held_for_a_moment_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        let inherited = RunLock::write(run).unwrap();
        let started = std::thread::spawn(move || {
            std::thread::sleep(PATIENCE.0 * 2);
            drop(inherited);
        });
        RunLock::write(run).unwrap();
        started.join().unwrap();
    }
}
