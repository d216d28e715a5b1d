//! Computes the metrics of a run from its events.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::gaps::Gaps;
use crate::instrument::{Count, Counts, Facade, Level, Spread};
use crate::{Counters, ESS, Gauges, Histograms, LEARNER_METRICS, Metrics, names};
use anabranch_core::{
    Cause, Event, EventKind, GroupId, GroupSummary, Moment, OldestVersion, Reason, Seq, Stamp, TakenGroup, Then,
    TrainingStep, Version, VersionClock,
};

/// Attempts above this one are counted as this one.
const ATTEMPTS: u32 = 16;

/// How many moments are kept that may have made the learner free, until it takes a batch.
const FREE_MOMENTS: usize = 64;

/// Computes metrics from events: a run does so when it records them, a resume when it reads them. The cost of an event
/// does not depend on the length of the run. Memory grows with the number of complete, unsettled groups and with the
/// number of versions.
#[derive(Clone, Debug)]
pub struct Meter {
    leased: Count,
    reissued: Count,
    completed: Count,
    admitted: Count,
    consumed: Count,
    excluded: Counts<&'static str>,
    filtered: Counts<String>,
    retried: Counts<u32>,
    exhausted: Count,
    tokens_generated: Count,
    tokens_consumed: Count,
    tokens_wasted: Counts<&'static str>,
    batches: Count,
    publications: Count,
    version: Level,
    step: Level,
    updates: Level,
    loss: Level,
    ess: Level,
    learner: BTreeMap<String, Level>,
    consumed_gaps: Gaps,
    excluded_gaps: Gaps,
    learner_wait: Spread,
    training: Spread,
    paused: Spread,
    facade: Facade,
    clock: VersionClock,
    open: HashMap<GroupId, Completed>,
    /// When the learner may have become free.
    free: VecDeque<(Seq, u64)>,
    taken_at: Option<u64>,
    pause_began: Option<u64>,
}

/// A group that is completed and not settled.
#[derive(Clone, Debug)]
struct Completed {
    oldest: Option<OldestVersion>,
    tokens: u64,
    /// The gap of the group when it was completed.
    gap: Option<u64>,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            leased: Count::new(names::LEASED),
            reissued: Count::new(names::REISSUED),
            completed: Count::new(names::COMPLETED),
            admitted: Count::new(names::ADMITTED),
            consumed: Count::new(names::CONSUMED),
            excluded: Counts::new(names::EXCLUDED),
            filtered: Counts::new(names::FILTERED),
            retried: Counts::new(names::RETRIES),
            exhausted: Count::new(names::EXHAUSTED),
            tokens_generated: Count::new(names::TOKENS_GENERATED),
            tokens_consumed: Count::new(names::TOKENS_CONSUMED),
            tokens_wasted: Counts::new(names::TOKENS_WASTED),
            batches: Count::new(names::BATCHES),
            publications: Count::new(names::PUBLICATIONS),
            version: Level::new(names::VERSION),
            step: Level::new(names::STEP),
            updates: Level::new(names::UPDATES),
            loss: Level::new(names::LOSS),
            ess: Level::new(names::ESS),
            learner: BTreeMap::new(),
            consumed_gaps: Gaps::new("consumed"),
            excluded_gaps: Gaps::new("excluded"),
            learner_wait: Spread::of_durations(names::LEARNER_WAIT),
            training: Spread::of_durations(names::TRAINING),
            paused: Spread::of_durations(names::PAUSED),
            facade: Facade::default(),
            clock: VersionClock::default(),
            open: HashMap::new(),
            free: VecDeque::new(),
            taken_at: None,
            pause_began: None,
        }
    }
}

impl Meter {
    /// Creates a meter from the events of a log, in their order.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut meter = Self::default();
        events.into_iter().for_each(|event| meter.apply(event));
        meter
    }

    /// From now on, every change updates the recorder of the `metrics` facade. The recorder gets the current counters
    /// and gauges at once; histograms get only new values.
    pub fn attach(&mut self, facade: &Facade) {
        let Self { leased, reissued, completed, admitted, consumed, exhausted, .. } = self;
        for count in [leased, reissued, completed, admitted, consumed, exhausted] {
            count.attach(facade);
        }
        let Self { tokens_generated, tokens_consumed, batches, publications, .. } = self;
        for count in [tokens_generated, tokens_consumed, batches, publications] {
            count.attach(facade);
        }
        for counts in [&mut self.excluded, &mut self.tokens_wasted] {
            counts.attach(facade);
        }
        self.filtered.attach(facade);
        self.retried.attach(facade);
        let Self { version, step, updates, loss, ess, learner, .. } = self;
        for level in [version, step, updates, loss, ess].into_iter().chain(learner.values_mut()) {
            level.attach(facade);
        }
        for gaps in [&mut self.consumed_gaps, &mut self.excluded_gaps] {
            gaps.attach(facade);
        }
        for spread in [&mut self.learner_wait, &mut self.training, &mut self.paused] {
            spread.attach(facade);
        }
        self.facade = facade.clone();
        self.show_clocks();
    }

    /// Adds the next event.
    pub fn apply(&mut self, event: &Event) {
        match &event.kind {
            EventKind::RunResumed { .. } => {
                // Times of the previous session have no meaning in this one.
                (self.taken_at, self.pause_began) = (None, None);
                self.free.clear();
                self.free(event);
            }
            EventKind::Leased { .. } => self.leased.add(1),
            EventKind::Reissued { .. } => self.reissued.add(1),
            EventKind::Completed { id, summary, .. } => self.complete(id, summary),
            EventKind::Admitted { .. } => self.admitted.add(1),
            EventKind::Excluded { id, reason, then, .. } => self.exclude(id, reason, then),
            EventKind::BatchTaken { groups, .. } => {
                self.batches.add(1);
                for group in groups {
                    self.consume(group);
                }
                self.learner_wait(event);
                self.taken_at = Some(event.at);
            }
            EventKind::Stepped { step, updates, loss, metrics, .. } => {
                self.clock.complete(*step, *updates);
                self.show_clocks();
                self.loss.set(Some(*loss));
                self.ess.set(metrics.get(ESS).copied());
                self.learned(metrics);
                if let Some(taken_at) = self.taken_at.take() {
                    self.training.add(Some(event.at.saturating_sub(taken_at)));
                }
                self.free(event);
            }
            EventKind::Restepped { step, .. } => {
                self.clock.complete(*step, self.clock.updates());
                self.show_clocks();
                self.free(event);
            }
            EventKind::Published { version, step, pause_began, .. } => {
                self.publications.add(1);
                self.install(*version, *step, event.seq);
                self.pause_began = Some(*pause_began);
                self.free(event);
            }
            EventKind::Reinstalled { version, step, .. } => {
                self.install(*version, *step, event.seq);
                self.free(event);
            }
            EventKind::GenerationResumed { .. } => {
                if let Some(began) = self.pause_began.take() {
                    self.paused.add(Some(event.at.saturating_sub(began)));
                }
                self.free(event);
            }
            EventKind::RunOpened { .. } | EventKind::Checkpointed { .. } => self.free(event),
            // What a run says of its operators and of holds is not counted; a new kind of event is not until it is added.
            _ => {}
        }
    }

    /// The groups completed and not settled, in no particular order.
    pub fn unsettled(&self) -> impl Iterator<Item = &GroupId> {
        self.open.keys()
    }

    /// The number of leases issued and not excluded.
    pub fn lead(&self) -> u64 {
        self.leased.get() - self.excluded.sum()
    }

    /// The installed version and the completed training steps, from the events.
    pub fn clock(&self) -> &VersionClock {
        &self.clock
    }

    /// The metrics so far, without those that are not in the events.
    pub fn metrics(&self) -> Metrics {
        Metrics {
            counters: Counters {
                leased: self.leased.get(),
                reissued: self.reissued.get(),
                completed: self.completed.get(),
                admitted: self.admitted.get(),
                consumed: self.consumed.get(),
                excluded: self.excluded.get(),
                filtered: self.filtered.get(),
                retried: self.retried.get(),
                exhausted: self.exhausted.get(),
                generated_tokens: self.tokens_generated.get(),
                consumed_tokens: self.tokens_consumed.get(),
                wasted_tokens: self.tokens_wasted.get(),
                batches: self.batches.get(),
                publications: self.publications.get(),
                ..Counters::default()
            },
            gauges: Gauges {
                version: self.clock.version(),
                step: self.clock.step(),
                updates: self.clock.updates(),
                loss: self.loss.get(),
                effective_sample_size: self.ess.get(),
                learner: self.learner.iter().filter_map(|(name, level)| Some((name.clone(), level.get()?))).collect(),
                ..Gauges::default()
            },
            histograms: Histograms {
                consumed: self.consumed_gaps.get(),
                excluded: self.excluded_gaps.get(),
                learner_wait: self.learner_wait.get(),
                training: self.training.get(),
                paused: self.paused.get(),
            },
        }
    }

    fn complete(&mut self, id: &GroupId, summary: &GroupSummary) {
        let (oldest, tokens) = (summary.oldest(), summary.generated());
        self.completed.add(1);
        self.tokens_generated.add(tokens);
        let gap = oldest.and_then(|oldest| self.clock.gap(oldest));
        self.open.insert(id.clone(), Completed { oldest, tokens, gap });
    }

    fn exclude(&mut self, id: &GroupId, reason: &Reason, then: &Then) {
        self.excluded.add(reason.name(), 1);
        if let Reason::Filtered { name } = reason {
            self.filtered.add(name.clone(), 1);
        }
        match then {
            Then::Retry(next) => self.retried.add(next.attempt.min(ATTEMPTS), 1),
            Then::Exhausted => self.exhausted.add(1),
            Then::Drop => {}
        }
        let Some(group) = self.open.remove(id) else { return };
        self.tokens_wasted.add(reason.name(), group.tokens);
        // A group without a generated token has no version at all.
        if let Some(oldest) = group.oldest {
            self.excluded_gaps.add(self.clock.gap(oldest), group.gap, self.clock.step_lag(oldest));
        }
    }

    fn consume(&mut self, taken: &TakenGroup) {
        self.consumed.add(1);
        let group = self.open.remove(&taken.id);
        self.tokens_consumed.add(group.as_ref().map_or(0, |group| group.tokens));
        self.consumed_gaps.add(taken.gap, group.and_then(|group| group.gap), taken.step_lag);
    }

    fn install(&mut self, version: Version, step: TrainingStep, seq: Seq) {
        self.clock.install(version, step, Stamp::earlier(seq));
        self.show_clocks();
    }

    fn show_clocks(&mut self) {
        self.version.set(self.clock.version().map(|version| version.0 as f64));
        self.step.set(Some(self.clock.step().0 as f64));
        self.updates.set(Some(self.clock.updates() as f64));
    }

    fn learned(&mut self, metrics: &BTreeMap<String, f64>) {
        let names = self.learner.keys().filter(|name| !metrics.contains_key(*name)).cloned().collect::<Vec<_>>();
        for name in names {
            self.learner.entry(name).and_modify(|level| level.set(None));
        }
        for (name, &value) in metrics {
            if let Some(level) = self.learner.get_mut(name) {
                level.set(Some(value));
            } else if self.learner.len() < LEARNER_METRICS {
                let mut level = Level::labelled(names::LEARNER, name, &self.facade);
                level.set(Some(value));
                self.learner.insert(name.clone(), level);
            }
        }
    }

    fn free(&mut self, event: &Event) {
        if self.free.len() == FREE_MOMENTS {
            self.free.pop_front();
        }
        self.free.push_back((event.seq, event.at));
    }

    /// How long the learner waited for the batch, since the event that made it free; the batch names that event.
    fn learner_wait(&mut self, taken: &Event) {
        let free = taken.enablers.iter().find(|enabler| enabler.cause == Cause::LearnerFree);
        let free = free.and_then(|enabler| if let Moment::Event(seq) = enabler.moment { Some(seq) } else { None });
        if let Some((_, at)) = self.free.iter().find(|(seq, _)| Some(*seq) == free) {
            self.learner_wait.add(Some(taken.at.saturating_sub(*at)));
        }
        self.free.clear();
    }
}

#[cfg(test)]
mod tests;
