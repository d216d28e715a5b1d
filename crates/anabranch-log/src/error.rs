//! What can go wrong with a run's directory, where, and what to do.

use std::io;
use std::path::{Path, PathBuf};

use anabranch_core::{BoxError, JournalError, ResumeError, Seq};

/// Part of a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Bytes that are not those that were written.
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
        "{what} in {} has format {found}, this library reads formats up to {known}: open it with the newer library that \
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
    /// The log dropped it once it was sealed, and nothing that reads sealed payloads has it.
    #[error(
        "{what} is not in {}, which dropped the payloads of groups settled before {before} once they were sealed: put \
         back the segments that hold it, under parquet/ of the run", path.display()
    )]
    Dropped {
        /// Which value.
        what: String,
        /// The database that it was in.
        path: PathBuf,
        /// Payloads of groups settled before this event were dropped.
        before: Seq,
    },
    /// What was sealed could not be read.
    #[error("{what} could not be read from what was sealed: {problem}")]
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

/// A run's directory cannot be opened. Whatever is refused before the log is written to, which is all but
/// [`Journal`](Self::Journal), leaves what was in it unchanged.
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
    #[error("{} holds no run: no {} in it", path.display(), missing.display())]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        missing: PathBuf,
    },
    /// Another writer has it open.
    #[error("{} is open for writing by {holder}: a run has one writer; wait for it or end it", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// Who holds it.
        holder: String,
    },
    /// A writer has it open, so that its database cannot be read.
    #[error(
        "{} is open for writing by {holder}, and a database cannot be read beside its writer: read the sealed Parquet \
         segments under {}, or wait until the run ends", path.display(), segments.display()
    )]
    Live {
        /// The lock.
        path: PathBuf,
        /// Who holds it.
        holder: String,
        /// Where sealed segments lie.
        segments: PathBuf,
    },
    /// Somebody is reading it.
    #[error("{} is being read (an audit or an export): wait for that to end", path.display())]
    BeingRead {
        /// The lock.
        path: PathBuf,
    },
    /// The file that says how far the log must reach is gone or damaged.
    #[error(
        "{} is {problem}: without it nobody can tell whether the log is whole; put it back, or accept the log as it is \
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
        "the log in {} is damaged: it holds {found} events, but {} relies on {needed}; restore {} from a backup",
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
    #[error("the log in {}: {source}", log.display())]
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
    #[error("what seals the log of {} could not be opened: {source}", path.display())]
    Sealer {
        /// The run's directory.
        path: PathBuf,
        /// What it said.
        source: BoxError,
    },
    /// What was sealed is less than what the log dropped because it was sealed.
    #[error(
        "{} has dropped payloads because everything before event {dropped} was sealed, but only {sealed} events are: put \
         back the segments under {}", log.display(), segments.display()
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
    /// What seals refused a segment.
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
    #[error("events to be sealed could not be read: {0}")]
    Read(#[from] ReadError),
    /// The log could not be synced.
    #[error(transparent)]
    Journal(#[from] JournalError),
}
