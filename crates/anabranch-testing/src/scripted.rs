//! A run played by hand: a FIFO buffer, a staleness limit, retries, filters and publications, on a
//! clock that only moves when the script says so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anabranch_core::{
    Batch, Cause, Dataset, Digest, EventKind, Fields, OldestVersion, Order, Reason, Sample, SampleTimes, SessionClock,
    SpanVersion, Spans, Stamp, Status, TakenGroup, TrainingStep, Version, WeightSync,
};
use anabranch_stream::by_hand::{Draft, LeaseByHand, RolloutByHand, RunByHand};
use anabranch_stream::{Lease, Prompts, Rollout, Run, Unused};
use futures::StreamExt;
use futures::executor::block_on;

/// Groups of a batch.
pub const BATCH: usize = 4;
/// The largest gap that may be trained on.
pub const LIMIT: u64 = 1;
/// Samples of a group.
pub const SAMPLES: u32 = 2;
/// Groups that the buffer holds.
pub const CAPACITY: usize = 5;
/// Leases in flight.
const IN_FLIGHT: usize = 6;

/// A clock that stands still until it is moved.
#[derive(Clone, Default)]
pub struct HandClock(Arc<AtomicU64>);

impl HandClock {
    /// This clock as the run's.
    pub fn session_clock(&self) -> SessionClock {
        let now = self.0.clone();
        SessionClock::new(move || now.load(Ordering::Relaxed))
    }

    fn tick(&self, ns: u64) -> u64 {
        self.0.fetch_add(ns, Ordering::Relaxed) + ns
    }
}

/// The prompts: enough for every script.
pub fn dataset() -> Dataset {
    let row = |row: u32| {
        let fields = Fields::from([("answer".to_owned(), f64::from(row).sqrt().into())]);
        (vec![row, row + 1, row + 2], fields)
    };
    Dataset::new("letters", (0..400).map(row).collect()).unwrap()
}

/// A script in progress.
pub struct Script {
    /// The run that is played.
    pub run: Run,
    /// Its clock.
    pub clock: HandClock,
    prompts: Prompts,
    in_flight: Vec<(Lease, Option<Version>)>,
    waiting: Vec<Rollout>,
    buffer: VecDeque<Rollout>,
    order: Order,
    held: Vec<Rollout>,
    step: TrainingStep,
    learner_free: Stamp,
    turn: u64,
}

impl Script {
    /// Opens a script on a new run, or on one that `past` sessions left.
    pub fn new(run: Run, clock: HandClock) -> Self {
        run.configure("buffer", Fields::from([("groups".to_owned(), CAPACITY.into())])).unwrap();
        Self::open(run, clock, Order::Fifo)
    }

    /// The same, with a buffer of this order.
    pub fn ordered(run: Run, clock: HandClock, order: Order) -> Self {
        let settings = [("groups".to_owned(), CAPACITY.into()), ("order".to_owned(), order.name().into())];
        run.configure("buffer", settings.into()).unwrap();
        Self::open(run, clock, order)
    }

    fn open(run: Run, clock: HandClock, order: Order) -> Self {
        let prompts = run.prompts(dataset()).shuffle(7).unused(Unused::Retry { max_attempts: 3 });
        let settings = |fields: &[(&str, anabranch_core::Value)]| {
            fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect::<Fields>()
        };
        run.configure("fresh", settings(&[("max_staleness", LIMIT.into())])).unwrap();
        run.configure("batch", settings(&[("groups", BATCH.into())])).unwrap();
        let step = run.step();
        Self {
            learner_free: run.opened(),
            run,
            clock,
            prompts,
            in_flight: Vec::new(),
            waiting: Vec::new(),
            buffer: VecDeque::new(),
            order,
            held: Vec::new(),
            step,
            turn: 0,
        }
    }

    /// Publishes the current weights.
    pub fn publish(&mut self) {
        let weights = weights(self.step);
        let cause = if self.step.0 == 0 { Cause::Opened } else { Cause::Stepped };
        let enablers = vec![(cause, self.learner_free)];
        let (version, begun) = self.run.begin_publication(weights, WeightSync::Retract, enablers);
        let pause_began = self.run.now();
        let paused = self.clock.tick(1_000);
        self.clock.tick(2_000);
        let enablers = vec![(Cause::Publishing, begun.stamp(0))];
        let installed = self.run.complete_publication(version, weights, pause_began, paused, enablers);
        self.clock.tick(500);
        let enablers = vec![(Cause::Installed, installed.stamp(0))];
        let kind = EventKind::GenerationResumed { version };
        self.learner_free = self.run.record(vec![Draft::new(kind, enablers)], &[]).stamp(0);
    }

    /// Makes the step of a batch that an earlier session took.
    pub fn restep(&mut self, step: TrainingStep) {
        self.step = step;
        let (metrics, weights) = (BTreeMap::new(), weights(step));
        let kind = EventKind::Stepped { step, updates: step.0, loss: -(step.0 as f64), metrics, weights };
        self.learner_free = self.run.record(vec![Draft::new(kind, Vec::new())], &[]).stamp(0);
        self.run.with_clock(|clock| clock.complete(step, step.0));
    }

    /// Installs the weights of an earlier session again.
    pub fn reinstall(&mut self, version: Version, step: TrainingStep, weights: Digest) {
        self.learner_free = self.run.reinstall(version, step, weights).stamp(0);
    }

    /// Keeps `IN_FLIGHT` leases out; groups restored from the log go straight to the buffer.
    pub fn fill(&mut self) {
        while self.in_flight.len() < IN_FLIGHT {
            let Some(lease) = block_on(self.prompts.next()) else { return };
            let mut lease = lease.unwrap();
            if lease.is_restored() {
                let group = self.run.payload(lease.id()).unwrap();
                self.enter(lease.with_restored(group));
                continue;
            }
            lease.issue(vec![(Cause::Slot, self.learner_free)]);
            self.in_flight.push((lease, self.run.version()));
        }
    }

    /// Ends the generation of the lease at `index` of those in flight.
    pub fn complete(&mut self, index: usize) {
        let (lease, begun_under) = self.in_flight.remove(index);
        self.turn += 1;
        self.clock.tick(10_000 + self.turn % 3 * 1_000);
        let now = self.run.version();
        let samples = (0..SAMPLES).map(|sample| self.sample(&lease, sample, begun_under, now)).collect();
        let mut group = lease.with_samples(samples, Fields::from([("turn".to_owned(), self.turn.into())]));
        if group.is_aborted() {
            group.exclude(Reason::Aborted, Vec::new());
            return;
        }
        if self.turn.is_multiple_of(5) {
            group.exclude(Reason::Filtered { name: "spread".to_owned() }, Vec::new());
            return;
        }
        group.complete();
        self.waiting.push(group);
        self.admit_waiting();
    }

    fn admit_waiting(&mut self) {
        while self.buffer.len() < CAPACITY && !self.waiting.is_empty() {
            let group = self.waiting.remove(0);
            self.enter(group);
        }
    }

    fn sample(&self, lease: &Lease, index: u32, begun_under: Option<Version>, now: Option<Version>) -> Sample {
        let mut spans = Spans::new();
        let generated = 3 + index + (self.turn % 4) as u32;
        let aborted = index == 0 && self.turn % 7 == 3;
        if let (Some(first), Some(last)) = (begun_under, now) {
            spans.push(2, SpanVersion::Exact(first), false);
            spans.push(generated - 2, SpanVersion::Exact(last), false);
        }
        let at = self.run.now();
        let mut tokens = lease.prompt().tokens.clone();
        tokens.extend((0..generated).map(|token| 100 + token));
        Sample {
            prompt_len: lease.prompt().tokens.len() as u32,
            tokens,
            loss_mask: vec![true; generated as usize],
            logprobs: (0..generated).map(|token| -0.1 * (token + 1) as f32).collect(),
            truncated_logprobs: None,
            spans: spans.into_vec(),
            reward: (!aborted).then(|| f64::from(index + u32::from(self.step.0 > 3))),
            status: if aborted { Status::Aborted } else { Status::Completed },
            cause: aborted.then(|| "scripted".to_owned()),
            times: SampleTimes {
                submitted: Some(at.saturating_sub(9_000)),
                first_token: Some(at.saturating_sub(8_000)),
                ended: Some(at),
                scored: (!aborted).then_some(at),
            },
        }
    }

    fn enter(&mut self, mut group: Rollout) {
        if group.admitted().is_none() {
            let enablers = group.completed().map(|stamp| (Cause::Completed, stamp)).into_iter().collect();
            let kind = EventKind::Admitted { id: group.id.clone() };
            group.set_admitted(self.run.record(vec![Draft::new(kind, enablers)], &[]).stamp(0));
        }
        self.buffer.push_back(group);
    }

    fn pop(&mut self) -> Option<Rollout> {
        let version = |group: &Rollout| group.oldest().unwrap();
        let mut next = 0;
        for (index, group) in self.buffer.iter().enumerate() {
            let (OldestVersion::Known(this), OldestVersion::Known(best)) =
                (version(group), version(&self.buffer[next]))
            else {
                unreachable!("scripted versions are known")
            };
            let goes_first = match self.order {
                Order::Fifo => false,
                Order::Freshest => this > best,
                Order::Stalest => this < best,
            };
            next = if goes_first { index } else { next };
        }
        if self.order != Order::Fifo {
            self.clock.tick(10);
        }
        self.buffer.remove(next)
    }

    /// Pops the buffer until a batch is full, excludes what is stale, and trains; `false` if too few are left.
    pub fn train(&mut self) -> bool {
        if !self.take() {
            return false;
        }
        self.clock.tick(50_000);
        self.step = self.step.next();
        let metrics = BTreeMap::from([("entropy".to_owned(), 1.0 / self.step.0 as f64)]);
        let (step, weights, loss) = (self.step, weights(self.step), -(self.step.0 as f64));
        let kind = EventKind::Stepped { step, updates: step.0, loss, metrics, weights };
        self.learner_free = self.run.record(vec![Draft::new(kind, Vec::new())], &[]).stamp(0);
        self.run.with_clock(|clock| clock.complete(step, step.0));
        true
    }

    /// Takes a batch and leaves it untrained.
    pub fn take(&mut self) -> bool {
        while self.held.len() < BATCH {
            let Some(mut group) = self.pop() else { return false };
            group.set_dequeued(self.run.now());
            self.admit_waiting();
            self.held.push(group);
            let version = self.run.version().unwrap();
            let held = std::mem::take(&mut self.held);
            let is_stale =
                |group: &Rollout| self.run.with_clock(|clock| clock.gap(group.oldest().unwrap())) > Some(LIMIT);
            let (stale, fresh): (Vec<Rollout>, Vec<Rollout>) = held.into_iter().partition(is_stale);
            self.held = fresh;
            for group in stale {
                let gap = version.since(
                    group.samples.iter().flat_map(|s| &s.spans).filter_map(|s| s.version.lowest()).min().unwrap(),
                );
                group.exclude(Reason::Stale { gap }, Vec::new());
            }
        }
        let kind = self.run.with_clock(|clock| {
            let taken = |group: &Rollout| TakenGroup {
                id: group.id.clone(),
                dequeued: group.dequeued(),
                gap: clock.gap(group.oldest().unwrap()),
                step_lag: clock.step_lag(group.oldest().unwrap()),
            };
            let groups: Vec<TakenGroup> = self.held.iter().map(taken).collect();
            let digest = Batch::digest_of(self.held.iter().map(|group| (&group.id, group.digest())));
            EventKind::BatchTaken { step: clock.step().next(), version: clock.version(), groups, digest }
        });
        self.clock.tick(100);
        drop(self.run.record(vec![Draft::new(kind, vec![(Cause::LearnerFree, self.learner_free)])], &[]));
        self.held.clear();
        true
    }

    /// Plays `turns` turns: leases, completions out of order; every fourth turn, as many steps as there are batches, each
    /// published.
    pub fn play(&mut self, turns: usize) {
        for turn in 0..turns {
            self.fill();
            for completion in 0..3 {
                let last = self.in_flight.len() - 1;
                self.complete((turn * 2 + completion * 5) % last);
            }
            while turn % 4 == 3 && self.train() {
                self.publish();
            }
        }
    }
}

/// The digest of the weights after `step`.
pub fn weights(step: TrainingStep) -> Digest {
    Digest::of(&step.0.to_le_bytes())
}
