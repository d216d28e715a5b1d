//! What can go wrong with segments, where, and what to do.

use std::io;
use std::path::{Path, PathBuf};

use anabranch_core::{BoxError, GroupId, Seq};

/// Segments could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The file system refused.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A Parquet file could not be written or read.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: parquet::errors::ParquetError,
    },
    /// There are no segments there.
    #[error(
        "{} holds no sealed segment: name a run's Parquet folder (the one with `manifest/` in it), or seal one with \
         `anabranch export RUN`", .0.display()
    )]
    NoSegments(PathBuf),
    /// A file named by a manifest is not what was sealed.
    #[error("{}: {what}; restore the file from a copy, or export the run again into another folder", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Written by a newer library.
    #[error("{}: {what} {found}, this library knows up to {known}: read it with a newer anabranch", path.display())]
    Newer {
        /// Which manifest.
        path: PathBuf,
        /// Which version it is about.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The newest one known.
        known: u32,
    },
    /// Somebody else seals into this folder.
    #[error("{} is being written by another process: wait for it, or export into another folder", .0.display())]
    Locked(PathBuf),
    /// A segment without events.
    #[error("a segment needs at least one event: seal when the log has grown")]
    Empty,
    /// Events that do not follow what is sealed.
    #[error("{found} cannot be sealed next, {expected} must: segments follow each other without gap or overlap")]
    Discontinuous {
        /// The event that must come.
        expected: Seq,
        /// The event that came.
        found: Seq,
    },
    /// The events to be sealed could not be read.
    #[error("the events to be sealed: {0}")]
    Events(BoxError),
    /// A completed group's payload could not be had.
    #[error("payload of group {group}, completed at {seq}: {source}")]
    Payload {
        /// Which group.
        group: GroupId,
        /// Its `Completed` event.
        seq: Seq,
        /// Why.
        source: BoxError,
    },
    /// Rows could not be made of events.
    #[error("rows of table `{table}`: {source}")]
    Rows {
        /// Of which table.
        table: &'static str,
        /// Why.
        source: arrow::error::ArrowError,
    },
    /// An event or a payload could not be encoded or decoded.
    #[error("{what}: {source}")]
    Codec {
        /// What.
        what: String,
        /// Why.
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
