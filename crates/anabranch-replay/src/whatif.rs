//! What a recorded run would have come to under other settings.
//!
//! A [`Recorder`] reads a log once, checks its schedule, and keeps how long everything took after what let it happen. A
//! `Simulation` then plays the schedule again: the source, the slots, the buffer, the exit check, the learner and the
//! publications follow the contract of the pipeline; entry verdicts and durations are taken from the log. What the log
//! does not have (a lease beyond it, a retry that never happened, a training step beyond the last) takes its duration
//! from recorded ones, drawn by a seed. Sessions follow each other: a restart loses the generation under way and carries
//! everything else over, and the time between two sessions does not count.
//!
//! What no log tells: which of two independent moments at the same time came first, under other settings than its own;
//! which samples an aborting publication strikes first; when single samples of a group ended that never completed; when a
//! record became durable in a pipeline without a buffer, or the learner's loop asked while the buffer was empty. The
//! simulation takes a plausible answer there, and [`Recording::reproduction`] says how often it is the log's.

use anabranch_core::Event;

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
