//! The answer as it adds up: counts, means over time, and what the sink is told.

use super::question::Question;
use crate::whatif::outcome::{LengthBias, Little, Outcome};
use crate::whatif::prediction::{PredictedGroup, Sink};

/// Integrals over time, in group-nanoseconds, and the time.
#[derive(Copy, Clone, Debug, Default)]
struct Integrals {
    in_flight: u128,
    buffered: u128,
    passed: u64,
}

/// The outcome so far, and who is told of each group and step.
#[derive(Debug)]
pub(super) struct Tally<S> {
    outcome: Outcome,
    sink: S,
    integrals: Integrals,
    /// The integrals when the last batch was taken.
    at_batch: Integrals,
}

impl<S: Sink> Tally<S> {
    pub(super) fn new(question: Question<'_>, sink: S) -> Self {
        let outcome = Outcome::new(question.settings.clone(), question.seed);
        Self { outcome, sink, integrals: Integrals::default(), at_batch: Integrals::default() }
    }

    /// Lets time pass while this many groups are in flight and in the buffer.
    pub(super) fn pass(&mut self, passed: u64, in_flight: usize, buffered: usize) {
        self.integrals.passed += passed;
        self.integrals.in_flight += in_flight as u128 * u128::from(passed);
        self.integrals.buffered += buffered as u128 * u128::from(passed);
    }

    /// Counts time in which a publication kept this many slots from generating.
    pub(super) fn paused(&mut self, passed: u64, slots: usize) {
        self.outcome.stall.paused_ns += passed;
        self.outcome.stall.publication_slot_ns += slots as u64 * passed;
    }

    /// Counts time in which a full buffer kept this many slots free.
    pub(super) fn full_buffer(&mut self, passed: u64, slots: usize) {
        self.outcome.stall.full_buffer_slot_ns += slots as u64 * passed;
    }

    pub(super) fn retry(&mut self) {
        self.outcome.retries += 1;
    }

    pub(super) fn completed(&mut self, modelled: bool, tokens: u64) {
        self.outcome.modelled.groups.add(modelled, 1);
        self.outcome.modelled.tokens.add(modelled, tokens);
    }

    pub(super) fn consumed(&mut self, tokens: u64, gap: Option<u64>, step_lag: Option<u64>) {
        self.outcome.consumed.add(tokens);
        self.outcome.gap.add(gap);
        self.outcome.step_lag.add(step_lag);
    }

    pub(super) fn excluded(&mut self, reason: &'static str, tokens: u64, gap: Option<u64>) {
        self.outcome.wasted.entry(reason).or_default().add(tokens);
        if reason == "stale" {
            self.outcome.stale_gap.add(gap);
        }
    }

    /// Counts a group that is neither consumed nor excluded at the end of the run.
    pub(super) fn left(&mut self, tokens: u64) {
        self.outcome.left.add(tokens);
    }

    /// Tells the sink what became of a group.
    pub(super) fn settled(&mut self, group: PredictedGroup) {
        self.sink.group(group);
    }

    /// Counts the batch of training step `step`, for which the learner waited.
    pub(super) fn batch(&mut self, step: u64, now: u64, waited: u64) {
        self.at_batch = self.integrals;
        self.outcome.learner_wait.add(waited);
        self.sink.taken(step, now);
    }

    pub(super) fn step(&mut self, now: u64, recorded: bool) {
        self.outcome.modelled.steps.add(!recorded, 1);
        self.sink.stepped(now);
    }

    /// Counts a publication whose durations are known.
    pub(super) fn publication_begun(&mut self, recorded: bool) {
        self.outcome.modelled.publications.add(!recorded, 1);
    }

    pub(super) fn published(&mut self, now: u64) {
        self.outcome.publications += 1;
        self.sink.published(now);
    }

    /// Completes the outcome of a run of `steps` training steps that took `wall` nanoseconds.
    pub(super) fn finish(mut self, question: Question<'_>, steps: u64, wall: u64) -> (Outcome, S) {
        let settings = question.settings;
        let wasted = self.outcome.wasted_total();
        self.outcome.steps = steps;
        self.outcome.wall_ns = wall;
        self.outcome.stall.slot_ns = wall * settings.slots() as u64;
        self.outcome.length =
            LengthBias { consumed: self.outcome.consumed.mean_tokens(), excluded: wasted.mean_tokens() };
        let over = self.at_batch.passed as f64;
        let interval = settings.update_interval.unwrap_or(1) as f64;
        self.outcome.little = (over > 0.0).then(|| {
            let in_flight = self.at_batch.in_flight as f64 / over;
            let buffered = self.at_batch.buffered as f64 / over;
            let step_lag = (in_flight + buffered) / settings.batch as f64 + (interval - 1.0) / 2.0;
            Little { in_flight, buffered, step_lag }
        });
        (self.outcome, self.sink)
    }
}
