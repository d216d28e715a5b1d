//! Restores a learner: loads the newest checkpoint that can be loaded, and finds the batches to train again after it.

use anabranch_core::{Checkpoint, Cursor, Digest, Error, Learner, RecordedBatch, TrainingStep, Version};

use super::Run;

impl Run {
    /// Restores a learner: loads the newest checkpoint that can be loaded, and finds the recorded batches that must be
    /// trained again after it.
    ///
    /// # Errors
    /// Returns [`Error::NoCheckpoint`] if training had begun and no checkpoint can be loaded.
    pub fn restore<L: Learner>(&self, mut learner: L) -> Result<Restored<L>, Error> {
        let mut state = self.resume_state();
        let (checkpoints, batches) = (std::mem::take(&mut state.checkpoints), std::mem::take(&mut state.batches));
        let published = state.published;
        drop(state);
        let mut reason = "the run has no checkpoint".to_owned();
        let mut found = None;
        for Checkpoint { name, path, cursor } in checkpoints {
            let loaded = learner.load(&path).and_then(|()| learner.digest()).map_err(|error| error.to_string());
            match loaded {
                Ok(digest) if digest == cursor.weights => {
                    found = Some((name, cursor));
                    break;
                }
                Ok(digest) => reason = format!("{name}: weights {digest}, recorded {}", cursor.weights),
                Err(error) => reason = format!("{name}: {error}"),
            }
            tracing::warn!(
                checkpoint = name,
                reason,
                "skipping a checkpoint that cannot be loaded; trying the one before it"
            );
        }
        if found.is_none() && !batches.is_empty() {
            return Err(Error::NoCheckpoint(reason));
        }
        let cursor = found.as_ref().map(|(_, cursor)| cursor.clone());
        let step = cursor.as_ref().map_or(TrainingStep(0), |cursor| cursor.step);
        self.clock().complete(step, cursor.as_ref().map_or(0, |cursor| cursor.updates));
        let replay = batches.into_iter().filter(|batch| batch.step > step).collect();
        Ok(Restored { run: self.clone(), learner, checkpoint: found.map(|(name, _)| name), cursor, replay, published })
    }
}

/// A learner with its run: see [`Run::restore`].
#[derive(Debug)]
pub struct Restored<L> {
    /// The run.
    pub run: Run,
    /// The learner in the state of the checkpoint.
    pub learner: L,
    /// The name of the checkpoint; `None` if training begins.
    pub checkpoint: Option<String>,
    /// The cursor of the checkpoint.
    pub cursor: Option<Cursor>,
    /// The batches after the checkpoint, which must be trained again from the log.
    pub replay: Vec<RecordedBatch>,
    /// The version published last, its training step and the digest of its weights.
    pub published: Option<(Version, TrainingStep, Digest)>,
}
