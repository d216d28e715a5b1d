//! Reading a run that no writer has open.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use anabranch_log::OpenError;

/// A run that no writer has open, for audits and exports. Dereferences to the reader of its log.
///
/// With the feature `parquet`, payloads that the log has dropped are read from the Parquet segments.
#[derive(Debug)]
pub struct ReadLog(pub(crate) Arc<anabranch_log::ReadLog>);

impl ReadLog {
    /// Opens the run in the directory `path` for reading; several readers may.
    ///
    /// # Errors
    /// Returns an error if there is no run, if a writer has it open, or if it is damaged: see [`OpenError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Ok(Self::with_segments(anabranch_log::ReadLog::open(path)?))
    }

    /// Opens the run as [`open`](Self::open) does, but accepts a log whose `HEAD` is missing or damaged. `HEAD` says how
    /// many events the log must hold; without it a lost end of the log is not noticed.
    ///
    /// # Errors
    /// Returns the other errors of [`open`](Self::open).
    pub fn open_without_head(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Ok(Self::with_segments(anabranch_log::ReadLog::open_without_head(path)?))
    }

    #[cfg(feature = "parquet")]
    fn with_segments(log: anabranch_log::ReadLog) -> Self {
        let payloads = crate::segments::payloads(log.path());
        Self(Arc::new(log.reading(payloads)))
    }

    #[cfg(not(feature = "parquet"))]
    fn with_segments(log: anabranch_log::ReadLog) -> Self {
        Self(Arc::new(log))
    }
}

impl Deref for ReadLog {
    type Target = anabranch_log::ReadLog;

    fn deref(&self) -> &anabranch_log::ReadLog {
        &self.0
    }
}
