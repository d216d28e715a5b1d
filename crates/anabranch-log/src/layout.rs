//! Where things lie in a run's directory.
//!
//! ```text
//! RUN/LOCK          who writes it
//! RUN/HEAD          how far the log must reach
//! RUN/log/          the database
//! RUN/checkpoints/  step-000020/ and so on: the learner's files and cursor.json
//! RUN/parquet/      sealed segments, written by others
//! ```

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) fn log(run: &Path) -> PathBuf {
    run.join("log")
}

pub(crate) fn head(run: &Path) -> PathBuf {
    run.join("HEAD")
}

pub(crate) fn checkpoints(run: &Path) -> PathBuf {
    run.join("checkpoints")
}

pub(crate) fn segments(run: &Path) -> PathBuf {
    run.join("parquet")
}

/// Makes the directory of a run and those above it, durably: a run whose name a power loss takes is lost whole.
pub(crate) fn make(run: &Path) -> io::Result<()> {
    let made: Vec<&Path> =
        run.ancestors().take_while(|above| !above.as_os_str().is_empty() && !above.exists()).collect();
    std::fs::create_dir_all(run)?;
    // The name of one that is there already may be as new as a process that was killed here.
    let named = if made.is_empty() { vec![run] } else { made };
    for directory in named {
        if let Some(parent) = directory.parent() {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}
