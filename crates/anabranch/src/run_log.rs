//! A run in a directory: its log, its Parquet segments, and its clock.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anabranch_core::BoxError;
use anabranch_log::{Durability, OpenError, RunLogOptions, SalvageError, Salvaged, SealError, Sealed, Sealer, Segment};
use anabranch_parquet::{SealedPayloads, SegmentReader, Segments};

/// A run whose log lies in a directory, sealed into Parquet segments under `parquet/` while it goes on. Dereferences to
/// its [`Run`](anabranch_stream::Run).
///
/// Keep it until the pipeline has ended: when it is closed or dropped, the log is flushed, sealed and released, and
/// whatever still holds the `Run` is refused.
pub struct RunLog(anabranch_log::RunLog);

impl RunLog {
    /// Opens the run in the directory `path`, which is made where it is missing; a run that is there is resumed. Blocks.
    ///
    /// # Errors
    /// Returns an error if another writer has it open, it cannot be written, or what it holds is damaged: see [`OpenError`].
    pub fn open(path: impl AsRef<Path>, durability: Durability) -> Result<Self, OpenError> {
        Self::open_with(path, durability, Self::options())
    }

    /// The options of an opening, all at their defaults, for [`open_with`](Self::open_with).
    pub fn options() -> RunLogOptions {
        anabranch_log::RunLog::options()
    }

    /// Opens the run in the directory `path` with options. The timer is tokio's clock and the sealer the Parquet writer,
    /// whatever the options say. Payloads that no kept checkpoint needs are dropped from the log once they are sealed, and
    /// are read out of the segments from then on.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        path: impl AsRef<Path>,
        durability: Durability,
        options: RunLogOptions,
    ) -> Result<Self, OpenError> {
        let options = options.clock(anabranch_stream::tokio_clock()).sealer(parquet_sealer);
        options.open(path, durability).map(Self)
    }

    /// Flushes and syncs the log, seals the rest, and releases the directory. Blocks. Dropping does the same, but can
    /// only trace what goes wrong.
    ///
    /// # Errors
    /// Returns an error if the log is poisoned, or the last seal failed; the directory is released all the same.
    pub fn close(self) -> Result<(), SealError> {
        self.0.close()
    }
}

impl Deref for RunLog {
    type Target = anabranch_log::RunLog;

    fn deref(&self) -> &anabranch_log::RunLog {
        &self.0
    }
}

/// A run that no writer has open, for audits and exports: its log, and its Parquet segments for the payloads that the log
/// has dropped. Dereferences to the log's own reader.
#[derive(Debug)]
pub struct ReadLog(pub(crate) Arc<anabranch_log::ReadLog>);

impl ReadLog {
    /// Opens the run in the directory `path` for reading; several readers may.
    ///
    /// # Errors
    /// Returns an error if there is no run, a writer has it open, or what it holds is damaged: see [`OpenError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Ok(Self::with_segments(anabranch_log::ReadLog::open(path)?))
    }

    /// The same, but takes the log as it is where `HEAD`, which says how far it must reach, is missing or damaged.
    ///
    /// # Errors
    /// The others of [`open`](Self::open).
    pub fn open_without_head(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Ok(Self::with_segments(anabranch_log::ReadLog::open_without_head(path)?))
    }

    fn with_segments(log: anabranch_log::ReadLog) -> Self {
        let payloads = SealedPayloads::of(segments_of(log.path()));
        Self(Arc::new(log.reading(move |id| Ok(payloads.read(id)?))))
    }
}

impl Deref for ReadLog {
    type Target = anabranch_log::ReadLog;

    fn deref(&self) -> &anabranch_log::ReadLog {
        &self.0
    }
}

/// Copies everything that is provably good of the damaged run in `run` to a new run in `to`, and says what is missing.
/// Where the log is damaged, the Parquet segments stand in for it. Nothing is written to `run`.
///
/// # Errors
/// Returns an error if there is nothing to read, a writer has the run open, a newer library wrote it, `to` exists, or the new run cannot
/// be written.
pub fn salvage(run: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Salvaged, SalvageError> {
    let (run, to) = (run.as_ref(), to.as_ref());
    // Without segments, or with damaged ones, the log stands alone.
    let segments = SegmentReader::open(segments_of(run)).ok();
    let sealed = segments.as_ref().map_or_else(Sealed::none, |segments| Sealed {
        events: Box::new(segments.events().map_while(Result::ok)),
        payload: Box::new(|id| segments.payload(id).ok().flatten()),
    });
    anabranch_log::salvage(run, to, sealed)
}

pub(crate) fn segments_of(run: &Path) -> PathBuf {
    run.join("parquet")
}

fn parquet_sealer(run: &Path) -> Result<Sealer, BoxError> {
    let mut segments = Segments::open(segments_of(run))?;
    let sealed_through = segments.sealed_through();
    let payloads = SealedPayloads::of(segments.folder());
    let sealer = Sealer::new(sealed_through, move |segment: &Segment| {
        // The payloads come in the order of their events, which is the order they are asked for.
        let mut groups = segment.groups.iter();
        segments.seal(&segment.events, |id| {
            let group = groups.find(|group| group.id == *id);
            group.cloned().ok_or_else(|| format!("the segment lacks the payload of {id}").into())
        })?;
        Ok(())
    });
    Ok(sealer.reading(move |id| Ok(payloads.read(id)?)))
}
