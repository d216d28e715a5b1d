//! A schedule in virtual time, moment by moment.
//!
//! Two queues hold what comes: the ends of samples on the clock of generation, which stands still in a pause, and
//! everything else on the wall's. Moments at the same time go by phase: what one of the two tasks (the buffer's, which
//! leases and admits, and the learner's, which takes and trains) does at once belongs to a phase, what it lets the other
//! do to the next, as in the pipeline itself. Within a phase the recorded sequence decides.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::buffer::Buffer;
use super::outcome::Outcome;
use super::prediction::{Fate, PredictedGroup, Sink};
use super::recording::{NONE, Recording};
use super::{Settings, WhatIfError};

mod generation;
mod learning;
mod session;
mod source;
mod tally;

/// What happens at a moment; the number names a group of `Simulation::alive`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Completed(u32),
    Arrived(u32),
    Durable(u32),
    Admitted(u32),
    Excluded(u32),
    Lease,
    Feed,
    Ask,
    Taken,
    Stepped,
    Publishing,
    Paused,
    Still,
    Quiesced,
    Installed,
    Resumed,
    Free,
}

/// Time, phase, sequence number in the log, order of arrival.
type Due = (u64, u32, u64, u64);

/// The next end of a group's samples: generated time, sequence number in the log, group.
type End = (u64, u64, u32);

/// A group between its lease and its settlement.
#[derive(Copy, Clone, Debug)]
struct Group {
    spec: u32,
    /// What the rest of a generation that the log shows cut off is drawn from.
    rest: u32,
    attempt: u32,
    /// How often its lease was issued again.
    reissues: u32,
    position: u64,
    modelled: bool,
    aborted: bool,
    /// Samples that have ended.
    ended: u32,
    /// Generated time of its start.
    start: u64,
    /// Generated time of its first token.
    first: u64,
    /// The version below which no token of it can be.
    floor: u64,
    oldest: Option<u64>,
    tokens: u64,
    leased: u64,
    completed: u64,
    arrived: u64,
    admitted: Option<u64>,
    dequeued: Option<u64>,
    gap: u64,
    publications: u64,
    /// Its place among leases, completions and admissions: the last of them that it had.
    place: u64,
    /// Since when it can leave the buffer.
    ready: u64,
}

/// A retry that waits for its lease.
#[derive(Copy, Clone, Debug)]
struct Retry {
    spec: u32,
    position: u64,
    attempt: u32,
    since: u64,
    lost: Option<Lost>,
}

/// A lease whose generation a restart lost.
#[derive(Copy, Clone, Debug)]
struct Lost {
    /// Its place among leases.
    place: u64,
    /// When it was issued last.
    leased: u64,
    /// How often it was issued again.
    reissues: u32,
}

/// How a publication stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Publication {
    /// None is under way.
    None,
    /// Weights were requested; generation continues.
    Begun,
    /// No sample may begin; those that run end first.
    Draining,
    /// No sample may begin; running samples continue for a moment.
    Lingering,
    /// No sample is continued.
    Still,
    /// The same, and the new weights are installed.
    Installed,
}

/// What the learner does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Learner {
    Works,
    /// It waits for groups.
    Asks,
    /// Its batch is full and on its way.
    Takes,
}

/// A log's schedule under other settings.
pub(crate) struct Simulation<'a, S> {
    recording: &'a Recording,
    settings: &'a Settings,
    seed: u64,
    sink: S,
    outcome: Outcome,
    tally: tally::Tally,
    now: u64,
    /// Generated time now.
    generated: u64,
    phase: u32,
    arrivals: u64,
    actions: BinaryHeap<Reverse<(Due, Action)>>,
    ends: BinaryHeap<Reverse<End>>,
    alive: Vec<Group>,
    vacant: Vec<u32>,
    /// When each free slot was freed.
    slots: VecDeque<u64>,
    retries: VecDeque<Retry>,
    cursor: u64,
    /// Since when nothing but slots keeps leases back.
    clear_since: u64,
    /// The lease that an action is due for.
    next_lease: u64,
    /// Groups that operators work on.
    working: usize,
    /// Groups between their lease and the buffer (or batch).
    upstream: usize,
    /// Samples that engines run.
    sampling: usize,
    /// Groups whose samples wait for a publication to end.
    entering: Vec<u32>,
    /// Completed groups whose records become durable, and when the last of them will be.
    arriving: usize,
    arrives_from: u64,
    /// Completed groups that wait for room.
    waiting: VecDeque<u32>,
    /// Places promised to groups on their way into the buffer.
    promised: usize,
    buffer: Buffer,
    held: Vec<u32>,
    learner: Learner,
    free_since: u64,
    asks_from: u64,
    last_departure: u64,
    ask_due: Option<u64>,
    feed_due: bool,
    publication: Publication,
    /// Generated time at which each version was installed, its training step, and its number.
    versions: Vec<(u64, u64, u64)>,
    over: bool,
    session: usize,
    /// Time of the sessions before.
    wall: u64,
    places: u64,
    /// A batch is taken and not trained on.
    training: bool,
}

impl<'a, S: Sink> Simulation<'a, S> {
    pub(crate) fn new(
        recording: &'a Recording,
        settings: &'a Settings,
        seed: u64,
        sink: S,
    ) -> Result<Self, WhatIfError> {
        settings.check()?;
        if settings.samples != recording.settings.samples {
            let message = format!("the log has {} samples a group, and no others", recording.settings.samples);
            return Err(WhatIfError::Argument { argument: "samples", message });
        }
        let sessions = &recording.sessions;
        let session = sessions.iter().position(|session| session.began.is_some()).unwrap_or_default();
        let first = sessions[session];
        let burned = sessions[..session].iter().map(|session| session.burned).sum();
        Ok(Self {
            recording,
            settings,
            seed,
            sink,
            outcome: Outcome::new(settings.clone(), seed),
            tally: tally::Tally::default(),
            now: first.began.unwrap_or_default(),
            generated: 0,
            phase: 0,
            arrivals: 0,
            actions: BinaryHeap::new(),
            ends: BinaryHeap::new(),
            alive: Vec::new(),
            vacant: Vec::new(),
            slots: std::iter::repeat_n(first.installed, settings.slots()).collect(),
            retries: VecDeque::new(),
            cursor: 0,
            clear_since: first.installed,
            next_lease: u64::MAX,
            working: 0,
            upstream: 0,
            sampling: 0,
            entering: Vec::new(),
            arriving: 0,
            arrives_from: 0,
            waiting: VecDeque::new(),
            promised: 0,
            buffer: Buffer::new(settings.order),
            held: Vec::with_capacity(settings.batch),
            learner: Learner::Works,
            free_since: 0,
            asks_from: 0,
            last_departure: 0,
            ask_due: None,
            feed_due: false,
            publication: Publication::None,
            versions: vec![(0, 0, burned)],
            over: false,
            session,
            wall: sessions[..session].iter().map(|session| session.last - session.opened).sum(),
            places: 0,
            training: false,
        })
    }

    pub(crate) fn run(mut self) -> (Outcome, S) {
        self.learner_free();
        self.wake_feeder();
        while !self.over {
            let ends = self.session_ends();
            let action = self.actions.peek().map(|&Reverse((due, action))| (due, action));
            let action = action.filter(|(due, _)| due.0 <= ends);
            let end = self.ends.peek().filter(|_| !self.stands_still());
            let end =
                end.map(|&Reverse((generated, key, group))| (self.now + (generated - self.generated), key, group));
            let end = end.filter(|&(at, ..)| at <= ends);
            match (action, end) {
                (action, Some((at, key, group)))
                    if action.is_none_or(|(due, _)| (at, 0, key) < (due.0, due.1, due.2)) =>
                {
                    self.advance(at);
                    self.phase = 0;
                    self.sample_ended(group);
                }
                (Some((due, action)), _) => {
                    self.actions.pop();
                    self.advance(due.0);
                    self.phase = due.1;
                    self.act(action);
                }
                _ => {
                    let nothing_comes = self.actions.is_empty() && self.ends.is_empty();
                    let goes_on = nothing_comes && self.emit_partial();
                    self.over = !goes_on && !self.next_session();
                }
            }
        }
        self.end();
        (self.outcome, self.sink)
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Completed(group) => self.completed(group),
            Action::Arrived(group) => self.arrived(group),
            Action::Durable(group) => {
                self.arriving -= 1;
                self.arrived(group);
            }
            Action::Admitted(group) => {
                self.promised -= 1;
                self.admitted(group);
            }
            Action::Excluded(group) => self.excluded_stale(group),
            Action::Lease => {
                self.next_lease = u64::MAX;
                self.lease();
            }
            Action::Feed => self.feed(),
            Action::Ask => {
                self.ask_due = None;
                self.ask();
            }
            Action::Taken => self.taken(),
            Action::Stepped => self.stepped(),
            Action::Publishing => self.publishing(),
            Action::Paused => self.paused(),
            Action::Still => self.still(),
            Action::Quiesced => self.quiesced(),
            Action::Installed => self.installed(),
            Action::Resumed => self.resumed(),
            Action::Free => self.learner_free(),
        }
    }

    /// Lets time pass.
    fn advance(&mut self, to: u64) {
        let passed = to - self.now;
        if passed == 0 {
            return;
        }
        self.tally_time(passed);
        if !self.stands_still() {
            self.generated += passed;
        }
        self.now = to;
    }

    fn stands_still(&self) -> bool {
        matches!(self.publication, Publication::Still | Publication::Installed)
    }

    /// Does `action` after `delay`; at once where there is none.
    fn after(&mut self, delay: u64, key: u64, action: Action) {
        if delay == 0 { self.act(action) } else { self.schedule(self.now + delay, 0, key, action) }
    }

    fn schedule(&mut self, at: u64, phase: u32, key: u64, action: Action) {
        self.arrivals += 1;
        self.actions.push(Reverse(((at, phase, key, self.arrivals), action)));
    }

    /// The version on the engines, as an index of `versions`.
    fn version(&self) -> u64 {
        self.versions.len() as u64 - 1
    }

    /// The version gap of a group: numbers that a restart used up count.
    fn gap(&self, oldest: u64) -> u64 {
        self.versions[self.version() as usize].2 - self.versions[oldest as usize].2
    }

    fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// Forgets a group, after telling what became of it.
    fn settle(&mut self, group: u32, fate: Fate) {
        self.tell(group, fate, Some(self.now));
        self.vacant.push(group);
    }

    fn tell(&mut self, group: u32, fate: Fate, settled: Option<u64>) {
        let group = self.alive[group as usize];
        self.sink.group(PredictedGroup {
            position: group.position,
            attempt: group.attempt,
            modelled: group.modelled,
            leased_ns: group.leased,
            completed_ns: (group.completed != u64::MAX).then_some(group.completed),
            admitted_ns: group.admitted,
            dequeued_ns: group.dequeued,
            settled_ns: settled,
            oldest: group.oldest.map(|oldest| self.versions[oldest as usize].2),
            publications: group.publications,
            fate,
        });
    }
}
