//! A schedule in virtual time, moment by moment.
//!
//! The [`pipeline`] is made of parts that each own one concern. Parts change only their own state. What passes between
//! parts at a moment is in the modules after the pipeline: [`leasing`], [`generating`], [`entering`], [`training`],
//! [`publishing`] and [`restarting`].
//!
//! Two queues hold what is due. [`generation`] has the ends of samples, on a clock that stands still in a pause. The
//! [`agenda`] has everything else, on the wall's clock. Moments at the same time are ordered by phase. The pipeline has
//! two tasks: the buffer's, which leases and admits, and the learner's, which takes and trains. What one of them does
//! at once belongs to one phase, and what this lets the other do belongs to the next phase, as in the pipeline itself.
//! Within a phase, the recorded sequence decides.

use super::outcome::Outcome;
use super::prediction::Sink;
use super::recording::Recording;
use super::{Settings, WhatIfError};

mod agenda;
mod buffer;
mod generation;
mod groups;
mod learner;
mod question;
mod sessions;
mod source;
mod tally;
mod upstream;
mod weights;

mod pipeline;

mod entering;
mod generating;
mod leasing;
mod moments;
mod publishing;
mod restarting;
mod training;

/// Plays a recorded run again under other settings, and tells `sink` what becomes of its groups and steps.
pub(crate) fn simulate<S: Sink>(
    recording: &Recording,
    settings: &Settings,
    seed: u64,
    sink: S,
) -> Result<(Outcome, S), WhatIfError> {
    let question = question::Question::new(recording, settings, seed)?;
    Ok(pipeline::Pipeline::new(question, sink).run())
}
