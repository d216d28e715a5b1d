//! Salvage of a damaged run.

use std::path::Path;

use anabranch_log::{SalvageError, Salvaged, Sealed};

/// Copies everything that is provably good of the damaged run in `run` to a new run in `to`, and says what is missing.
/// With the feature `parquet`, the Parquet segments supply what is damaged in the log. Nothing is written to `run`.
///
/// # Errors
/// Returns an error if there is nothing to read, if a writer has the run open, if a newer library wrote it, if `to`
/// exists, or if the new run cannot be written.
pub fn salvage(run: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Salvaged, SalvageError> {
    let (run, to) = (run.as_ref(), to.as_ref());
    // If the segments are missing or damaged, only the log is used.
    #[cfg(feature = "parquet")]
    if let Ok(segments) = anabranch_parquet::SegmentReader::open(crate::segments::folder(run)) {
        let sealed = Sealed {
            events: Box::new(segments.events().map_while(Result::ok)),
            payload: Box::new(|id| segments.payload(id).ok().flatten()),
        };
        return anabranch_log::salvage(run, to, sealed);
    }
    anabranch_log::salvage(run, to, Sealed::none())
}
