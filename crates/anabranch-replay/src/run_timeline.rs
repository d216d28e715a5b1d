//! The timeline of a run: what it was doing when, in so few slices that a picture of a long run stays small.

use std::collections::BTreeMap;

use anabranch_core::{Event, EventKind, OldestVersion, Value};
use serde::Serialize;

use crate::configuration::Limits;
use crate::installed::Installed;
use crate::learner_free::LearnerFree;
use crate::series::{Durations, Series};

mod groups;
mod learner;
mod slices;
mod spread;

use self::groups::Places;
use self::learner::LearnerTimes;
use self::slices::{Slices, merge};
pub use self::spread::Spread;

/// The largest number of time slices, and of slices of training steps, in a timeline.
pub const TIMELINE_SLICES: usize = 480;

/// What a run was doing at each time.
///
/// Times count only while the run was open: sessions follow each other without the pauses between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunTimeline {
    /// How long the run was open, over all sessions, in nanoseconds.
    pub open_ns: u64,
    /// When each session began, in nanoseconds of open time: the first [`TIMELINE_SLICES`] sessions at most.
    pub sessions_ns: Vec<u64>,
    /// The width of a slice of time, in nanoseconds.
    pub slice_ns: u64,
    /// Slices of time, from the run's beginning to its end, at most [`TIMELINE_SLICES`]. The last may be cut short.
    pub slices: Vec<Slice>,
    /// Training steps in a slice of steps.
    pub slice_steps: u64,
    /// Slices of training steps, from step 1, at most [`TIMELINE_SLICES`].
    pub steps: Vec<StepSlice>,
    /// The limits in force at the log's end.
    pub limits: Limits,
    /// How many samples `.generate` keeps in flight at once, by its largest configuration.
    pub slots: Option<u64>,
}

impl RunTimeline {
    /// Merges the time slices into at most `columns` of equal width. Returns that width in nanoseconds, and the
    /// columns.
    ///
    /// # Panics
    /// Panics if `columns` is 0.
    pub fn columns(&self, columns: usize) -> (u64, Vec<Slice>) {
        assert!(columns > 0, "columns: must be at least 1");
        let merged = self.slices.len().div_ceil(columns).max(1);
        (self.slice_ns * merged as u64, self.slices.chunks(merged).map(merge).collect())
    }

    /// Merges the slices of training steps into at most `columns`. Returns the steps in each, and the columns.
    ///
    /// # Panics
    /// Panics if `columns` is 0.
    pub fn step_columns(&self, columns: usize) -> (u64, Vec<StepSlice>) {
        assert!(columns > 0, "columns: must be at least 1");
        let merged = self.steps.len().div_ceil(columns).max(1);
        (self.slice_steps * merged as u64, self.steps.chunks(merged).map(merge).collect())
    }
}

/// A slice of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Slice {
    /// Groups in flight × nanoseconds. Divided by the slice's width, this is the mean number of groups in flight.
    pub in_flight_ns: u64,
    /// Samples in generation × nanoseconds. The log does not tell when the samples of a group that was never completed
    /// ended: they count until the session's end.
    pub generating_ns: u64,
    /// Completed groups that waited for room in the buffer × nanoseconds.
    pub waiting_ns: u64,
    /// Groups in the buffer × nanoseconds.
    pub buffered_ns: u64,
    /// How long the learner trained, in nanoseconds.
    pub training_ns: u64,
    /// How long the learner was free and waited for a batch, in nanoseconds.
    pub learner_wait_ns: u64,
    /// How long publications paused generation, in nanoseconds.
    pub paused_ns: u64,
    /// How many versions were published, including the initial installation.
    pub published: u64,
    /// How many groups were consumed.
    pub consumed: u64,
    /// How many groups were excluded, by reason.
    pub excluded: BTreeMap<&'static str, u64>,
    /// The version gaps of consumed groups when their batch was taken.
    pub gap_consumed: Series,
    /// The version gaps of excluded groups when they were excluded. They are never mixed with those of consumed groups.
    pub gap_excluded: Series,
}

/// A slice of training steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepSlice {
    /// How many training steps of the slice were made.
    pub steps: u64,
    /// The losses of those steps.
    pub loss: Spread,
    /// The mean rewards of the groups that those steps consumed.
    pub reward_consumed: Spread,
    /// The mean rewards of all groups completed before the step's batch was taken, including groups that were excluded.
    pub reward_completed: Spread,
    /// How long the learner was free and waited for the batches of these steps, in nanoseconds.
    pub learner_wait: Durations,
}

/// Computes a [`RunTimeline`], event by event.
#[derive(Debug, Default)]
pub struct Plotter {
    slices: Slices<Slice>,
    steps: Slices<StepSlice>,
    places: Places,
    free: LearnerFree,
    learner: LearnerTimes,
    installed: Installed,
    limits: Limits,
    slots: Option<u64>,
    sessions: Vec<u64>,
    /// When the session began, and when the last event was, in nanoseconds of open time.
    session_begun: u64,
    now: u64,
    pause_began: Option<u64>,
    /// The training step of the next batch.
    next_step: u64,
}

impl Plotter {
    /// Creates a plotter that has seen no event.
    pub fn new() -> Self {
        let mut plotter = Self { next_step: 1, ..Self::default() };
        plotter.places.samples = 1;
        plotter
    }

    /// Adds the next event of the run.
    pub fn push(&mut self, event: &Event) {
        if matches!(event.kind, EventKind::RunOpened { .. } | EventKind::RunResumed { .. }) {
            self.open_session();
        }
        self.now = self.now.max(self.session_begun + event.at);
        self.slices.reach(self.now);
        self.limits.apply(event);
        self.configure(event);
        self.publications(event);
        // Only the verifier reports what is wrong with a log.
        self.installed.apply(event, &mut Vec::new());
        self.training(event);
        self.groups(event);
    }

    /// Returns the timeline of the events so far.
    #[must_use]
    pub fn finish(mut self) -> RunTimeline {
        self.places.end(self.now, &mut self.slices);
        self.learner.end(self.now, &mut self.slices);
        self.end_pause(self.now);
        let open_ns = self.now;
        let (slice_ns, slices) = self.slices.finish();
        let (slice_steps, steps) = self.steps.finish();
        let (limits, slots, sessions_ns) = (self.limits, self.slots, self.sessions);
        RunTimeline { open_ns, sessions_ns, slice_ns, slices, slice_steps, steps, limits, slots }
    }

    /// Ends what ran in the session before.
    fn open_session(&mut self) {
        self.places.interrupt(self.now, &mut self.slices);
        self.learner.end(self.now, &mut self.slices);
        self.end_pause(self.now);
        self.session_begun = self.now;
        if self.sessions.len() < TIMELINE_SLICES {
            self.sessions.push(self.now);
        }
    }

    fn configure(&mut self, event: &Event) {
        if let EventKind::Configured { operator, settings } = &event.kind
            && operator == "generate"
        {
            let count = |name: &str| settings.get(name).and_then(Value::as_int).and_then(|n| u64::try_from(n).ok());
            self.slots =
                self.slots.max(count("in_flight").zip(count("samples")).map(|(groups, samples)| groups * samples));
            self.places.samples = count("samples").unwrap_or(1);
        }
    }

    fn publications(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Published { pause_began, .. } => {
                self.slices.at(self.now).published += 1;
                self.pause_began = Some(self.session_begun + pause_began);
            }
            EventKind::GenerationResumed { .. } => self.end_pause(self.now),
            _ => {}
        }
    }

    fn end_pause(&mut self, end: u64) {
        if let Some(began) = self.pause_began.take() {
            self.slices.spread(began, end, |slice, ns| slice.paused_ns += ns);
        }
    }

    fn training(&mut self, event: &Event) {
        let free_since = self.free.see(event).map(|at| self.session_begun + at);
        match &event.kind {
            EventKind::BatchTaken { step, .. } => {
                self.next_step = step.0 + 1;
                let free_since = free_since.unwrap_or(self.now);
                self.learner.take(free_since, self.now, &mut self.slices);
                self.steps.at(step.0.saturating_sub(1)).learner_wait.add(self.now - free_since);
            }
            EventKind::Stepped { step, loss, .. } => {
                self.next_step = self.next_step.max(step.0 + 1);
                let slice = self.steps.at(step.0.saturating_sub(1));
                slice.steps += 1;
                slice.loss.add(*loss);
                self.learner.end(self.now, &mut self.slices);
            }
            _ => {}
        }
    }

    fn groups(&mut self, event: &Event) {
        let (now, begun) = (self.now, self.session_begun);
        let left_at = |dequeued: Option<u64>| dequeued.map_or(now, |at| begun + at);
        match &event.kind {
            EventKind::Leased { id, .. } | EventKind::Reissued { id, .. } => self.places.lease(id, now),
            EventKind::Completed { id, summary, .. } => {
                let reward = summary.reward_mean();
                if let Some(reward) = reward {
                    self.steps.at(self.next_step - 1).reward_completed.add(reward);
                }
                self.places.complete(id, now, (summary.oldest(), reward), &mut self.slices);
                for times in summary.samples.iter().map(|sample| sample.times) {
                    if let Some((submitted, ended)) = times.submitted.zip(times.ended) {
                        self.slices.spread(begun + submitted, begun + ended, |slice, ns| slice.generating_ns += ns);
                    }
                }
            }
            EventKind::Admitted { id } => self.places.admit(id, now, &mut self.slices),
            EventKind::Excluded { id, reason, dequeued, .. } => {
                let left = self.places.leave(id, left_at(*dequeued), &mut self.slices);
                let slice = self.slices.at(now);
                *slice.excluded.entry(reason.name()).or_default() += 1;
                if let Some(oldest) = left.and_then(|(oldest, _)| oldest) {
                    slice.gap_excluded.add(self.installed.gap(Some(oldest)));
                }
            }
            EventKind::BatchTaken { step, groups, .. } => {
                for group in groups {
                    let left = self.places.leave(&group.id, left_at(group.dequeued), &mut self.slices);
                    let (oldest, reward) = left.unwrap_or_default();
                    let slice = self.slices.at(now);
                    slice.consumed += 1;
                    slice.gap_consumed.add(self.installed.gap(oldest));
                    if let Some(reward) = reward {
                        self.steps.at(step.0.saturating_sub(1)).reward_consumed.add(reward);
                    }
                }
            }
            _ => {}
        }
    }
}

/// A group's oldest version and mean reward, which are kept until the group is settled.
type Kept = (Option<OldestVersion>, Option<f64>);

/// Returns the timeline of a run from all its events, in order.
#[must_use]
pub fn timeline<'a>(events: impl IntoIterator<Item = &'a Event>) -> RunTimeline {
    let mut plotter = Plotter::new();
    events.into_iter().for_each(|event| plotter.push(event));
    plotter.finish()
}
