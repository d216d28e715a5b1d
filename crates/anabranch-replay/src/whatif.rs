//! What-if questions: predicts a recorded run under other settings.
//!
//! A [`Recorder`] reads a log once, checks its schedule, and keeps how long everything took after the moment that
//! enabled it. The simulation then plays the schedule again. The source, the slots, the buffer, the exit check, the
//! learner and the publications follow the contract of the pipeline. Entry verdicts and durations come from the log.
//! Work that the log does not have (a lease beyond its end, a retry that never happened, a training step beyond the
//! last) takes its duration from recorded work, which a seed chooses. Sessions follow each other: a restart loses the
//! generation under way and carries everything else over, and the time between two sessions does not count.
//!
//! A log does not tell everything: under other settings, which of two independent moments at the same time comes first;
//! which samples an aborting publication ends first; when single samples ended, if their group never completed; in a
//! pipeline without a buffer, when a record became durable; and when the learner's loop asked, if the buffer was empty.
//! There the simulation assumes a plausible answer. [`Recording::reproduction`] measures how well it reproduces the
//! log.

use anabranch_core::{Event, ParseOrderError};

use crate::schedule::Mismatch;

mod draw;
mod outcome;
mod pauses;
mod prediction;
mod recorder;
mod recording;
mod reproduction;
mod settings;
mod simulation;

pub use anabranch_core::Order;
pub use outcome::{Amount, LengthBias, Little, Modelled, Outcome, Share, Stall};
pub use prediction::{Fate, PredictedGroup, PredictedStep, Prediction};
pub use recorder::Recorder;
pub use recording::Recording;
pub use reproduction::Reproduction;
pub use settings::Settings;

/// The reason why a what-if question has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WhatIfError {
    /// The schedule of the log does not add up, so that no answer can rest on it.
    #[error("the log's own schedule does not add up")]
    Mismatch(#[from] Mismatch),
    /// The buffer of the log has an order that this version does not know.
    #[error("cannot replay the order of the log's buffer")]
    Order(#[from] ParseOrderError),
    /// The log cannot be replayed.
    #[error("{0}")]
    Unsupported(String),
    /// No pipeline can have this setting.
    #[error("{argument}: {message}")]
    Argument {
        /// The name of the setting.
        argument: &'static str,
        /// The expected value.
        message: String,
    },
}

/// Predicts a recorded run under other settings: `change` turns the log's own settings into those. Work that the
/// recorded run never did takes its duration from recorded work, which `seed` chooses.
///
/// The function reads all events for one answer. For several answers, keep the [`Recording`] of a [`Recorder`].
///
/// ```
/// use std::sync::Arc;
///
/// use anabranch_core::{Dataset, Fields, MemoryJournal, ResumeState};
/// use anabranch_sim::{HashChain, Sim};
/// use anabranch_stream::{Capacity, InFlight, RolloutExt, Run, Samples, tokio_clock};
/// use futures::TryStreamExt;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (journal, engine) = (Arc::new(MemoryJournal::new()), Sim::random(1, 1..=16, 5..=20));
/// let run = Run::builder("run").journal(journal.clone()).clock(tokio_clock()).open()?;
/// let rows = (0..64_u32).map(|row| (vec![row], Fields::new())).collect();
/// let learner = run.restore(HashChain::new(0))?;
/// run.prompts(Dataset::new("d", rows)?)
///     .generate(&engine, InFlight::groups(4), Samples(2))
///     .score(|_| 1.0)
///     .log(&run)
///     .buffer(Capacity::groups(8))
///     .batch(4)
///     .train(learner)
///     .publish_every(1, &engine)
///     .try_collect::<Vec<_>>()
///     .await?;
///
/// let outcome = anabranch_replay::what_if(&journal.events(), |settings| settings.update_interval = Some(4), 0)?;
/// assert_eq!((outcome.steps, outcome.publications), (16, 4));
/// assert_eq!(outcome.modelled.groups.part, 0, "the log has every group that the answer needs");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Returns a [`WhatIfError`] if the schedule of the log does not add up, the log cannot be replayed, or no pipeline can
/// have the settings.
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
