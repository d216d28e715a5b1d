//! The state that all requests of a scripted engine share: whether they may run, and under which weights.

use std::collections::HashMap;
use std::time::Duration;

use anabranch_core::{Request, SamplingKey, SpanVersion, Version, WeightSync};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{Install, SimStats};

/// The gate of an engine. A request enters through it, asks it before each token, and leaves through it.
pub(super) struct Gate {
    state: Mutex<State>,
    /// Incremented whenever something changes for which requests wait.
    changes: watch::Sender<u64>,
    idle: Notify,
}

struct State {
    /// Whether new requests may start.
    admitting: bool,
    /// Whether running requests may sample.
    sampling: bool,
    installed: Option<Version>,
    /// How many pauses retracted running requests. Each makes a request compute its KV cache again.
    retractions: u64,
    /// How many pauses aborted running requests.
    aborts: u64,
    stats: SimStats,
    /// For each name of a request, the turn of its sample, and how often the request came.
    calls: HashMap<String, (u32, u32)>,
    turns: HashMap<SamplingKey, u32>,
}

/// A running request's KV cache and place in the history of pauses.
pub(super) struct Seat {
    retractions: u64,
    aborts: u64,
    cached_under: Option<Version>,
}

/// Whether a token's time has passed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Done,
    Aborted,
}

impl Gate {
    pub(super) fn new() -> Self {
        let state = State {
            admitting: true,
            sampling: true,
            installed: None,
            retractions: 0,
            aborts: 0,
            stats: SimStats::default(),
            calls: HashMap::new(),
            turns: HashMap::new(),
        };
        Self { state: Mutex::new(state), changes: watch::Sender::new(0), idle: Notify::new() }
    }

    pub(super) fn stats(&self) -> SimStats {
        self.state.lock().stats.clone()
    }

    /// Counts a request. Returns the turn of its sample, and how often its name came before.
    pub(super) fn receive(&self, request: &Request) -> (u32, u32) {
        let mut state = self.state.lock();
        let State { stats, calls, turns, .. } = &mut *state;
        stats.started += 1;
        if let Some((turn, times)) = calls.get_mut(&request.id) {
            *times += 1;
            return (*turn, *times - 1);
        }
        let next = turns.entry(request.key).or_default();
        let turn = *next;
        *next += 1;
        calls.insert(request.id.clone(), (turn, 1));
        (turn, 0)
    }

    pub(super) fn cancelled(&self) {
        self.state.lock().stats.cancelled += 1;
    }

    /// Returns a seat, if a request may start now.
    pub(super) fn try_enter(&self) -> Option<Seat> {
        let mut state = self.state.lock();
        if !state.admitting || !state.sampling || state.installed.is_none() {
            return None;
        }
        state.stats.running += 1;
        Some(Seat { retractions: state.retractions, aborts: state.aborts, cached_under: state.installed })
    }

    pub(super) async fn enter(&self) -> Seat {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(seat) = self.try_enter() {
                return seat;
            }
            // The sender lives in `self`: waiting for it cannot fail.
            let _ = changes.changed().await;
        }
    }

    pub(super) fn leave(&self, finished: bool) {
        let mut state = self.state.lock();
        state.stats.running -= 1;
        state.stats.finished += u64::from(finished);
        if state.stats.running == 0 {
            self.idle.notify_waiters();
        }
    }

    /// Lets `time` pass while sampling is allowed. If a pause interrupts it, the rest passes after the pause.
    pub(super) async fn work(&self, seat: &Seat, time: Duration) -> Work {
        let mut changes = self.changes.subscribe();
        let mut left = time;
        loop {
            changes.mark_unchanged();
            let (aborted, sampling) = {
                let state = self.state.lock();
                (state.aborts != seat.aborts, state.sampling)
            };
            if aborted {
                return Work::Aborted;
            }
            if sampling && left.is_zero() {
                return Work::Done;
            }
            if sampling {
                let began = Instant::now();
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(left) => left = Duration::ZERO,
                    _ = changes.changed() => left = left.saturating_sub(began.elapsed()),
                }
            } else {
                let _ = changes.changed().await;
            }
        }
    }

    /// Returns the version under which a token is sampled now, and whether its KV cache is from older weights.
    pub(super) fn sample(&self, seat: &mut Seat) -> (SpanVersion, bool) {
        let state = self.state.lock();
        if seat.retractions != state.retractions {
            seat.retractions = state.retractions;
            seat.cached_under = state.installed;
        }
        let version = state.installed.map_or(SpanVersion::Unknown, SpanVersion::Exact);
        (version, seat.cached_under != state.installed)
    }

    pub(super) async fn pause(&self, mode: WeightSync) {
        {
            let mut state = self.state.lock();
            state.admitting = false;
            state.sampling = mode == WeightSync::Drain;
            state.retractions += u64::from(mode == WeightSync::Retract);
            state.aborts += u64::from(mode == WeightSync::Abort);
        }
        self.changed();
        if matches!(mode, WeightSync::Drain | WeightSync::Abort) {
            loop {
                let idle = self.idle.notified();
                if self.state.lock().stats.running == 0 {
                    break;
                }
                idle.await;
            }
            self.state.lock().sampling = false;
        }
    }

    pub(super) fn install(&self, install: Install) {
        let mut state = self.state.lock();
        state.installed = Some(install.version);
        state.stats.installs.push(install);
        drop(state);
        self.changed();
    }

    pub(super) fn resume(&self) {
        let mut state = self.state.lock();
        (state.admitting, state.sampling) = (true, true);
        drop(state);
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}
