//! Where things lie in a run's directory.
//!
//! ```text
//! RUN/LOCK          who writes it
//! RUN/HEAD          how far the log must reach
//! RUN/log/          the database
//! RUN/checkpoints/  step-000020/ and so on: the learner's files and cursor.json
//! RUN/parquet/      sealed segments, written by others
//! ```

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
