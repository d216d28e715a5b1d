//! Reads single payloads from a folder that may still grow.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anabranch_core::{Group, GroupId};

use crate::{SegmentError, SegmentReader};

/// Reads payloads from the Parquet folder of a run, for a log that has dropped them. Nothing is read before the first
/// payload is asked for. Segments that are sealed later are found too.
#[derive(Debug)]
pub struct SealedPayloads {
    folder: PathBuf,
    reader: Mutex<Option<SegmentReader>>,
}

impl SealedPayloads {
    /// Creates a reader of `folder`, which need not exist yet.
    pub fn of(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), reader: Mutex::default() }
    }

    /// Reads the payload of a completed group, bit for bit as it was logged. Returns `None` if it is not sealed.
    ///
    /// # Errors
    /// Returns an error that names the file if a file cannot be read or differs from the sealed one.
    pub fn read(&self, id: &GroupId) -> Result<Option<Group>, SegmentError> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = &mut *reader {
            reader.refresh()?;
            return reader.payload(id);
        }
        match SegmentReader::open(&self.folder) {
            Err(SegmentError::NoSegments(_)) => Ok(None),
            opened => reader.insert(opened?).payload(id),
        }
    }
}
