//! The learner trait: what trains.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::version::Parts;
use crate::{Digest, Group, GroupId, LearnerError, Seq, TakenGroup, TrainingStep, Version};

/// Exactly the groups of one training step, in dequeue order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The training step that it is for, from 1.
    pub step: TrainingStep,
    /// Its `BatchTaken` record.
    pub taken: Seq,
    /// The version against which its gaps were judged.
    pub version: Option<Version>,
    /// Mean version gap of its groups; absent where no version is known.
    pub gap_mean: Option<f64>,
    /// Largest version gap of its groups.
    pub gap_max: Option<u64>,
    /// The groups.
    pub groups: Vec<Group>,
    /// Digest of the ordered ids and payload digests.
    pub digest: Digest,
}

impl Batch {
    /// The digest of a batch: of the ordered ids and payload digests of its groups.
    pub fn digest_of<'a>(groups: impl IntoIterator<Item = (&'a GroupId, Digest)>) -> Digest {
        let (mut text, mut parts) = (String::new(), Parts::default());
        for (id, payload) in groups {
            text.clear();
            // A text takes whatever is written to it.
            let _ = write!(text, "{id}");
            parts.add(text.as_bytes());
            parts.add(&payload.0);
        }
        parts.digest()
    }

    /// Mean and largest version gap of the groups taken, over those whose gap is known.
    pub fn gaps_of(taken: &[TakenGroup]) -> (Option<f64>, Option<u64>) {
        let gaps: Vec<u64> = taken.iter().filter_map(|group| group.gap).collect();
        let mean = (!gaps.is_empty()).then(|| gaps.iter().sum::<u64>() as f64 / gaps.len() as f64);
        (mean, gaps.into_iter().max())
    }
}

/// What a training step came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepReport {
    /// Optimizer updates that it made.
    pub updates: u64,
    /// The loss.
    pub loss: f64,
    /// Whatever else was measured, by name.
    pub metrics: BTreeMap<String, f64>,
    /// Digest of the weights after it.
    pub weights: Digest,
}

/// What trains. Its calls block and are made one at a time, on a thread where that is allowed.
pub trait Learner: Send + 'static {
    /// What a publication hands to the engines.
    type Weights: Send + 'static;

    /// Makes one training step on a batch.
    ///
    /// # Errors
    /// Whatever went wrong; the pipeline then ends with it.
    fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError>;

    /// The current weights, to be published.
    ///
    /// # Errors
    /// Whatever went wrong; the pipeline then ends with it.
    fn weights(&mut self) -> Result<Self::Weights, LearnerError>;

    /// The weights handed out by the last [`weights`](Self::weights) before the last [`save`](Self::save), after a
    /// [`load`](Self::load); nothing where they were not kept.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn published(&mut self) -> Result<Option<Self::Weights>, LearnerError> {
        Ok(None)
    }

    /// Digest of the current weights, the same as engines and checkpoints compute.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn digest(&mut self) -> Result<Digest, LearnerError>;

    /// Writes all state into the empty directory `dir`: weights, optimizer, randomness, and the weights last handed out
    /// by [`weights`](Self::weights) where they differ. The caller makes the directory durable.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn save(&mut self, dir: &Path) -> Result<(), LearnerError>;

    /// Reads what [`save`](Self::save) wrote: afterwards every step equals, bit for bit, what it would have been.
    ///
    /// # Errors
    /// What is damaged or missing, by file; the state is then undefined and another `load` must follow.
    fn load(&mut self, dir: &Path) -> Result<(), LearnerError>;

    /// The same learner, its weights converted by `map` on their way to the engines.
    fn map_weights<W, F>(self, map: F) -> MapWeights<Self, F>
    where
        Self: Sized,
        F: FnMut(Self::Weights) -> W + Send + 'static,
        W: Send + 'static,
    {
        MapWeights { learner: self, map }
    }
}

/// A learner whose weights are converted on their way to the engines: see [`Learner::map_weights`].
#[derive(Debug)]
pub struct MapWeights<L, F> {
    learner: L,
    map: F,
}

impl<L, F, W> Learner for MapWeights<L, F>
where
    L: Learner,
    F: FnMut(L::Weights) -> W + Send + 'static,
    W: Send + 'static,
{
    type Weights = W;

    fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError> {
        self.learner.step(batch)
    }

    fn weights(&mut self) -> Result<W, LearnerError> {
        self.learner.weights().map(&mut self.map)
    }

    fn published(&mut self) -> Result<Option<W>, LearnerError> {
        Ok(self.learner.published()?.map(&mut self.map))
    }

    fn digest(&mut self) -> Result<Digest, LearnerError> {
        self.learner.digest()
    }

    fn save(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.learner.save(dir)
    }

    fn load(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.learner.load(dir)
    }
}

#[cfg(test)]
mod tests {
    use crate::PromptId;

    use super::*;

    #[test]
    fn the_digest_of_a_batch_is_that_of_its_parts() {
        let id = |row| GroupId { prompt: PromptId { dataset: "d".into(), epoch: 1, row }, attempt: 2 };
        let groups: Vec<(GroupId, Digest)> = (0..40).map(|row| (id(row), Digest::of(&[row as u8]))).collect();
        let texts: Vec<String> = groups.iter().map(|(id, _)| id.to_string()).collect();
        let parts = texts.iter().zip(&groups).flat_map(|(text, (_, payload))| [text.as_bytes(), &payload.0]);
        let digest = Batch::digest_of(groups.iter().map(|(id, payload)| (id, *payload)));
        assert_eq!(digest, Digest::of_parts(parts));
    }
}
