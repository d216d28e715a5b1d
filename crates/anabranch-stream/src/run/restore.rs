//! Giving a learner its run: the newest checkpoint that can be loaded, and what is to be trained again after it.

use anabranch_core::{Checkpoint, Cursor, Digest, Error, Learner, RecordedBatch, TrainingStep, Version};

use super::Run;

impl Run {
    /// Gives a learner its run: loads the newest checkpoint that can be loaded, and says which recorded batches are to be
    /// trained again after it.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`] where training had begun and no checkpoint can be loaded.
    pub fn restore<L: Learner>(&self, mut learner: L) -> Result<Restored<L>, Error> {
        let mut state = self.resume_state();
        let (checkpoints, batches) = (std::mem::take(&mut state.checkpoints), std::mem::take(&mut state.batches));
        let published = state.published;
        drop(state);
        let mut reason = "there is none".to_owned();
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
            tracing::warn!(checkpoint = name, reason, "checkpoint skipped, the one before it is used");
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

/// A learner that knows its run: see [`Run::restore`].
#[derive(Debug)]
pub struct Restored<L> {
    /// The run.
    pub run: Run,
    /// The learner, in the state of the checkpoint.
    pub learner: L,
    /// The checkpoint's name; nothing where training begins anew.
    pub checkpoint: Option<String>,
    /// The checkpoint's cursor.
    pub cursor: Option<Cursor>,
    /// The batches taken after it, to be trained again from the log.
    pub replay: Vec<RecordedBatch>,
    /// The version last published, its training step and its weights.
    pub published: Option<(Version, TrainingStep, Digest)>,
}
