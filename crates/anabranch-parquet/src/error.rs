//! The errors of segments. Each says what failed, where, and what to do.

use std::io;
use std::path::{Path, PathBuf};

use anabranch_core::{BoxError, GroupId, Seq};

/// Segments could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// An operation of the file system failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A Parquet file could not be written or read.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: parquet::errors::ParquetError,
    },
    /// The folder has no segments.
    #[error(
        "{}: expected sealed segments, found none: name a run's Parquet folder (with `manifest/` in it), or seal one \
         with \
         `anabranch export RUN`", .0.display()
    )]
    NoSegments(PathBuf),
    /// A file that a manifest names differs from the sealed file.
    #[error("{}: {what}; restore the file from a copy, or export the run again into another folder", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The difference.
        what: String,
    },
    /// A newer library wrote the segment.
    #[error("{}: expected {what} up to {known}, found {found}: read the folder with a newer anabranch", path.display())]
    Newer {
        /// The manifest.
        path: PathBuf,
        /// The kind of version.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The newest known version.
        known: u32,
    },
    /// Another process seals into this folder.
    #[error("{} is being written by another process: wait for it, or export into another folder", .0.display())]
    Locked(PathBuf),
    /// A segment without events.
    #[error("expected at least one event to seal, found none: seal after the log has grown")]
    Empty,
    /// The events do not follow the sealed ones.
    #[error(
        "expected event {expected} next, found event {found}: segments must follow each other without gap or overlap"
    )]
    Discontinuous {
        /// The expected event.
        expected: Seq,
        /// The event found.
        found: Seq,
    },
    /// The events to be sealed could not be read.
    #[error("cannot read the events to seal: {0}")]
    Events(BoxError),
    /// The payload of a completed group could not be read.
    #[error("payload of group {group}, completed at {seq}: {source}")]
    Payload {
        /// The group.
        group: GroupId,
        /// The group's `Completed` event.
        seq: Seq,
        /// The cause.
        source: BoxError,
    },
    /// Rows could not be made of events.
    #[error("rows of table `{table}`: {source}")]
    Rows {
        /// The table.
        table: &'static str,
        /// The cause.
        source: arrow::error::ArrowError,
    },
    /// An event or a payload could not be encoded or decoded.
    #[error("{what}: {source}")]
    Codec {
        /// What.
        what: String,
        /// The cause.
        source: postcard::Error,
    },
}

impl SegmentError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn parquet<E: Into<parquet::errors::ParquetError>>(path: &Path) -> impl FnOnce(E) -> Self {
        move |source| Self::Parquet { path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }
}
