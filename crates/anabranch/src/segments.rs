//! The Parquet segments of a run as what seals its log, and as what its log reads dropped payloads from.

use std::path::{Path, PathBuf};

use anabranch_core::{BoxError, Group, GroupId};
use anabranch_log::{Sealer, Segment};
use anabranch_parquet::{SealedPayloads, Segments};

/// Where the segments of the run in the directory `run` are.
pub(crate) fn folder(run: &Path) -> PathBuf {
    run.join("parquet")
}

/// Reads payloads from the segments of the run in the directory `run`.
pub(crate) fn payloads(run: &Path) -> impl Fn(&GroupId) -> Result<Option<Group>, BoxError> + Send + Sync + 'static {
    let payloads = SealedPayloads::of(folder(run));
    move |id| Ok(payloads.read(id)?)
}

/// Seals the run in the directory `run` into its segments.
pub(crate) fn sealer(run: &Path) -> Result<Sealer, BoxError> {
    let mut segments = Segments::open(folder(run))?;
    let sealer = Sealer::new(segments.sealed_through(), move |segment: &Segment| {
        // The payloads come in the order of their events, which is the order they are asked for.
        let mut groups = segment.groups.iter();
        segments.seal(&segment.events, |id| {
            let group = groups.find(|group| group.id == *id);
            group.cloned().ok_or_else(|| format!("the segment lacks the payload of {id}").into())
        })?;
        Ok(())
    });
    Ok(sealer.reading(payloads(run)))
}
