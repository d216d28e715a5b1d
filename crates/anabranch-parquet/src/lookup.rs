//! Single payloads out of a folder that may still grow.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anabranch_core::{Group, GroupId};

use crate::{SegmentError, SegmentReader};

/// Reads payloads out of the Parquet folder of a run, for a log that no longer has them. Nothing is read before the first
/// is asked for; what is sealed later is found too.
#[derive(Debug)]
pub struct SealedPayloads {
    folder: PathBuf,
    reader: Mutex<Option<SegmentReader>>,
}

impl SealedPayloads {
    /// Of `folder`, which need not be there yet.
    pub fn of(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), reader: Mutex::default() }
    }

    /// The payload of a completed group, the same bits as were logged; nothing where it is not sealed.
    ///
    /// # Errors
    /// Where a file cannot be read, or holds other bits than were sealed, by name.
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
