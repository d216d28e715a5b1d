//! What a recorded run would have come to under other settings.

use anabranch_core::Event;

use crate::schedule::Mismatch;

mod buffer;
mod draw;
mod outcome;
mod pauses;
mod prediction;
mod recorder;
mod recording;
mod reproduction;
mod settings;
mod simulation;

pub use outcome::{Amount, LengthBias, Little, Modelled, Outcome, Share, Stall};
pub use prediction::{Fate, PredictedGroup, PredictedStep, Prediction};
pub use recorder::Recorder;
pub use recording::Recording;
pub use reproduction::Reproduction;
pub use settings::{Order, Settings};

/// Why a what-if question has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WhatIfError {
    /// The schedule of the log does not add up, so that nothing can rest on it.
    #[error("the log's own schedule does not add up: {0}")]
    Mismatch(#[from] Mismatch),
    /// The log cannot be replayed.
    #[error("{0}")]
    Unsupported(String),
    /// A setting that no pipeline can have.
    #[error("{argument}: {message}")]
    Argument {
        /// Which setting.
        argument: &'static str,
        /// What is wrong with it.
        message: String,
    },
}

/// What a recorded run would have come to under other settings: `change` makes them of the log's own. Work that the
/// recorded run never did takes its duration from what was recorded, drawn by `seed`.
///
/// Reads all events for one answer; for several, keep the [`Recording`] of a [`Recorder`].
///
/// # Errors
/// [`WhatIfError`]: the schedule of the log does not add up, it cannot be replayed, or no pipeline can have the settings.
pub fn what_if<'a>(
    events: impl IntoIterator<Item = &'a Event>,
    change: impl FnOnce(&mut Settings),
    seed: u64,
) -> Result<Outcome, WhatIfError> {
    let mut recorder = Recorder::new();
    events.into_iter().for_each(|event| recorder.push(event));
    let recording = recorder.finish()?;
    let mut settings = recording.settings().clone();
    change(&mut settings);
    recording.outcome(&settings, seed)
}
