//! What can go wrong with a run's directory, where, and what to do.

use std::io;
use std::path::{Path, PathBuf};

use anabranch_core::{BoxError, JournalError, ResumeError, Seq};

/// Part of a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Its bytes are not those that were written.
    #[error("{what} in {} is damaged: {problem}; restore the run from a backup", path.display())]
    Damaged {
        /// Which value or file.
        what: String,
        /// The database or directory that it is in.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A newer library wrote it.
    #[error(
        "{what} in {} has format {found}, but this library reads formats up to {known}: open it with the newer library that \
         wrote it", path.display()
    )]
    Newer {
        /// Which value or file.
        what: String,
        /// The database or directory that it is in.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this library reads.
        known: u32,
    },
    /// It is not there.
    #[error("{what} is not in {}", path.display())]
    Missing {
        /// Which value or file.
        what: String,
        /// The database or directory that it should be in.
        path: PathBuf,
    },
    /// The log dropped it once it was sealed, and the sealed segments do not hold it.
    #[error(
        "{what} is not in {}, which dropped the payloads of groups settled before {before} once they were sealed: put \
         back the segments that hold it, in parquet/ of the run", path.display()
    )]
    Dropped {
        /// Which value.
        what: String,
        /// The database that it was in.
        path: PathBuf,
        /// Payloads of groups settled before this event were dropped.
        before: Seq,
    },
    /// The sealed segments could not be read.
    #[error("{what} could not be read from the sealed segments: {problem}")]
    Sealed {
        /// Which value.
        what: String,
        /// What its reader said.
        problem: String,
    },
    /// The database refused.
    #[error("reading {} failed: {problem}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// What it said.
        problem: String,
    },
}

/// A run's directory cannot be opened. Every error except [`Journal`](Self::Journal) is found before the log is written
/// to, and leaves the log unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A file or directory could not be made, read or written.
    #[error("{what} {} failed: {source}; the run needs a directory that this user can write, on a disk with room", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no run.
    #[error("expected a run in {}, but it holds no {}", path.display(), missing.display())]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        missing: PathBuf,
    },
    /// Another writer has it open.
    #[error("{} is open for writing by {holder}: a run has one writer; wait until that process ends, or end it", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// Who holds it.
        holder: String,
    },
    /// A writer has it open, so that its database cannot be read.
    #[error(
        "{} is open for writing by {holder}, and the database cannot be read meanwhile: read the sealed Parquet segments in \
         {}, or wait until the run ends", path.display(), segments.display()
    )]
    Live {
        /// The lock.
        path: PathBuf,
        /// Who holds it.
        holder: String,
        /// Where sealed segments lie.
        segments: PathBuf,
    },
    /// An audit or an export is reading it.
    #[error("{} is being read by an audit or an export: wait until that ends", path.display())]
    BeingRead {
        /// The lock.
        path: PathBuf,
    },
    /// The file that says how far the log must reach is gone or damaged.
    #[error(
        "{} is {problem}: it says how many events the log must hold; put the file back, or accept the log as it is \
         (`accept_missing_head`, on the command line --accept-missing-head)", path.display()
    )]
    Head {
        /// The file.
        path: PathBuf,
        /// `missing`, or what is wrong with it.
        problem: String,
    },
    /// The log ends before something that was made durable after it.
    #[error(
        "the log in {} is damaged: expected at least the {needed} events that {} relies on, found {found}; restore {} from a \
         backup",
        log.display(), witness.display(), log.display()
    )]
    Behind {
        /// The database.
        log: PathBuf,
        /// How many events it holds.
        found: u64,
        /// The file that says that there were more.
        witness: PathBuf,
        /// How many there were.
        needed: u64,
    },
    /// The log contradicts itself.
    #[error("the log in {} contradicts itself: {source}", log.display())]
    Contradiction {
        /// The database.
        log: PathBuf,
        /// What is wrong.
        source: ResumeError,
    },
    /// Part of it cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The run was opened with other settings than those recorded.
    #[error(transparent)]
    Changed(anabranch_core::Error),
    /// The sealer could not be opened.
    #[error("the sealer of the log of {} could not be opened: {source}", path.display())]
    Sealer {
        /// The run's directory.
        path: PathBuf,
        /// What it said.
        source: BoxError,
    },
    /// The log dropped payloads that it had sealed, and the segments that held them are gone.
    #[error(
        "{} has dropped payloads because all events before {dropped} were sealed, but now only {sealed} events are: put back \
         the segments in {}", log.display(), segments.display()
    )]
    Unsealed {
        /// The database.
        log: PathBuf,
        /// Where the segments should be.
        segments: PathBuf,
        /// How many events were sealed when it dropped payloads.
        dropped: Seq,
        /// How many events are sealed.
        sealed: u64,
    },
    /// The opening record could not be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl OpenError {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { what, path, source }
    }
}

/// Sealed segments could not be brought up to the log. The log itself is untouched, and the next seal tries again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The sealer refused a segment.
    #[error("events {first} to {last} could not be sealed: {problem}; they stay in the log")]
    Refused {
        /// The first event of the segment.
        first: Seq,
        /// Its last.
        last: Seq,
        /// What it said.
        problem: String,
    },
    /// The events could not be read back.
    #[error("the events to be sealed could not be read: {0}")]
    Read(#[from] ReadError),
    /// The log could not be synced.
    #[error(transparent)]
    Journal(#[from] JournalError),
}
