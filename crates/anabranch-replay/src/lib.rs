//! Verifies, audits and explains a recorded run, and answers what-if questions about it: pure functions over its
//! events.

mod audit;
mod audit_table;
mod buffer_order;
mod configuration;
mod event_sequence;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod group_map;
mod history;
mod installed;
mod learner_free;
mod ledger;
mod recompute;
mod run_timeline;
mod schedule;
mod series;
mod settled_groups;
mod training;
pub mod units;
mod verify;
mod violation;
mod whatif;

pub use audit::{Audit, Auditor, Gaps, LearnerAudit, PublicationAudit, Tokens, audit};
pub use configuration::Limits;
pub use history::{Disposition, Historian, History, When, history};
pub use learner_free::LearnerFree;
pub use ledger::{Balance, Place};
pub use recompute::{Difference, Recompute, Recomputed, recompute};
pub use run_timeline::{Plotter, RunTimeline, Slice, Spread, StepSlice, TIMELINE_SLICES, timeline};
pub use schedule::{Mismatch, Schedule, self_check};
pub use series::{Change, Durations, Series};
pub use verify::{Report, Verifier, verify};
pub use violation::Violation;
pub use whatif::{
    Amount, Fate, LengthBias, Little, Modelled, Order, Outcome, PredictedGroup, PredictedStep, Prediction, Recorder,
    Recording, Reproduction, Settings, Share, Stall, WhatIfError, what_if,
};
