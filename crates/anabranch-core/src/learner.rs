//! The trait of learners, which train.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::version::Parts;
use crate::{Digest, Group, GroupId, LearnerError, Seq, TakenGroup, TrainingStep, Version};

/// The groups of one training step, in the order in which they left the buffer.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The training step of the batch, from 1.
    pub step: TrainingStep,
    /// The `BatchTaken` record of the batch.
    pub taken: Seq,
    /// The version against which the gaps were judged.
    pub version: Option<Version>,
    /// Mean version gap of the groups; `None` if no version is known.
    pub gap_mean: Option<f64>,
    /// Largest version gap of the groups.
    pub gap_max: Option<u64>,
    /// The groups.
    pub groups: Vec<Group>,
    /// Digest of the ordered ids and payload digests.
    pub digest: Digest,
}

impl Batch {
    /// The digest of a batch, from the ordered ids and payload digests of its groups.
    pub fn digest_of<'a>(groups: impl IntoIterator<Item = (&'a GroupId, Digest)>) -> Digest {
        let (mut text, mut parts) = (String::new(), Parts::default());
        for (id, payload) in groups {
            text.clear();
            // Writing to a string cannot fail.
            let _ = write!(text, "{id}");
            parts.add(text.as_bytes());
            parts.add(&payload.0);
        }
        parts.digest()
    }

    /// The mean and the largest version gap of the groups whose gap is known.
    pub fn gaps_of(taken: &[TakenGroup]) -> (Option<f64>, Option<u64>) {
        let gaps: Vec<u64> = taken.iter().filter_map(|group| group.gap).collect();
        let mean = (!gaps.is_empty()).then(|| gaps.iter().sum::<u64>() as f64 / gaps.len() as f64);
        (mean, gaps.into_iter().max())
    }
}

/// The result of a training step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepReport {
    /// The number of optimizer updates that the step made.
    pub updates: u64,
    /// The loss.
    pub loss: f64,
    /// Other metrics, by name.
    pub metrics: BTreeMap<String, f64>,
    /// Digest of the weights after the step.
    pub weights: Digest,
}

/// Trains. The calls may block; they are made one at a time, on a thread that may block.
///
/// A complete learner with one weight, which moves towards the mean reward. (The learner of the example `own_learner`
/// trains a policy.)
///
/// ```
/// use std::fs;
/// use std::path::Path;
///
/// use anabranch_core::{Batch, Digest, Group, Learner, LearnerError, StepReport};
///
/// #[derive(Default)]
/// struct MeanReward(f64);
///
/// impl Learner for MeanReward {
///     type Weights = f64;
///
///     fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError> {
///         let rewards: Vec<f64> = batch.groups.iter().filter_map(Group::reward_mean).collect();
///         let error = rewards.iter().map(|reward| reward - self.0).sum::<f64>() / rewards.len().max(1) as f64;
///         self.0 += 0.5 * error;
///         Ok(StepReport { updates: 1, loss: error * error, metrics: [].into(), weights: self.digest()? })
///     }
///
///     fn weights(&mut self) -> Result<f64, LearnerError> {
///         Ok(self.0)
///     }
///
///     fn digest(&mut self) -> Result<Digest, LearnerError> {
///         Ok(Digest::of(&self.0.to_le_bytes()))
///     }
///
///     fn save(&mut self, dir: &Path) -> Result<(), LearnerError> {
///         let path = dir.join("mean");
///         fs::write(&path, self.0.to_le_bytes())
///             .map_err(|error| LearnerError::caused(format!("cannot write {}", path.display()), error))
///     }
///
///     fn load(&mut self, dir: &Path) -> Result<(), LearnerError> {
///         let path = dir.join("mean");
///         let bytes = fs::read(&path)
///             .map_err(|error| LearnerError::caused(format!("cannot read {}", path.display()), error))?;
///         let found = format!("{}: expected 8 bytes, found {}", path.display(), bytes.len());
///         self.0 = f64::from_le_bytes(bytes.try_into().map_err(|_| LearnerError::new(found))?);
///         Ok(())
///     }
/// }
///
/// # let dir = std::env::temp_dir().join(format!("anabranch-mean-{}", std::process::id()));
/// # fs::create_dir_all(&dir)?;
/// # let dir = dir.as_path();
/// let (mut saved, mut loaded) = (MeanReward(0.1 + 0.2), MeanReward::default());
/// saved.save(dir)?;
/// loaded.load(dir)?;
/// assert_eq!(loaded.digest()?, saved.digest()?);
/// fs::write(dir.join("mean"), "half")?;
/// assert!(loaded.load(dir).unwrap_err().to_string().ends_with("mean: expected 8 bytes, found 4"));
/// # fs::remove_dir_all(dir)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait Learner: Send + 'static {
    /// The type of the weights that a publication passes to the engines.
    type Weights: Send + 'static;

    /// Makes one training step on a batch.
    ///
    /// # Errors
    /// Returns an error if the call fails; the pipeline then ends with this error.
    fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError>;

    /// Returns the current weights, for publication.
    ///
    /// # Errors
    /// Returns an error if the call fails; the pipeline then ends with this error.
    fn weights(&mut self) -> Result<Self::Weights, LearnerError>;

    /// Called after [`load`](Self::load): returns the weights that the last call of [`weights`](Self::weights) before
    /// [`save`](Self::save) returned, or `None` if they were not kept.
    ///
    /// # Errors
    /// Returns an error if the call fails.
    fn published(&mut self) -> Result<Option<Self::Weights>, LearnerError> {
        Ok(None)
    }

    /// Returns the digest of the current weights, as engines and checkpoints compute it.
    ///
    /// # Errors
    /// Returns an error if the call fails.
    fn digest(&mut self) -> Result<Digest, LearnerError>;

    /// Writes the whole state to the empty directory `dir`: weights, optimizer, randomness, and the weights that
    /// [`weights`](Self::weights) returned last if they differ from the current ones. The caller makes the directory
    /// durable.
    ///
    /// # Errors
    /// Returns an error if the call fails.
    fn save(&mut self, dir: &Path) -> Result<(), LearnerError>;

    /// Reads a directory that [`save`](Self::save) wrote. Afterwards every step gives the same result, bit for bit, as
    /// it would have given after `save`.
    ///
    /// # Errors
    /// Returns an error that names the damaged or missing file. The state is then undefined, and another `load` must
    /// follow.
    fn load(&mut self, dir: &Path) -> Result<(), LearnerError>;

    /// Converts the weights with `map` on their way to the engines.
    fn map_weights<W, F>(self, map: F) -> MapWeights<Self, F>
    where
        Self: Sized,
        F: FnMut(Self::Weights) -> W + Send + 'static,
        W: Send + 'static,
    {
        MapWeights { learner: self, map }
    }
}

/// A learner that converts its weights on their way to the engines: see [`Learner::map_weights`].
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
