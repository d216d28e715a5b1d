//! The gate between a run and its engines: whether requests may be submitted, and how long they could not.

use std::sync::Arc;
use std::task::Waker;

use anabranch_core::Stamp;
use parking_lot::Mutex;

use super::wakers::Wakers;

/// The gate between a run's operators and its engines. All operators of a run share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The number of requests on the engines.
    running: usize,
    holds: usize,
    /// The number of publications that have paused generation.
    pauses: usize,
    /// Since when generation is paused, and how long it was paused before.
    standing: Option<u64>,
    stood: u64,
    reopened: Option<Stamp>,
    /// Tasks that wait for submissions to reopen.
    submitters: Wakers,
    /// Tasks that wait until no request runs.
    idle: Wakers,
    /// Tasks that wait until generation resumes.
    moving: Wakers,
}

impl State {
    /// Generation is paused if a publication paused it, or if all requests have ended during a hold. While a request
    /// still runs during a publication or hold, its time counts, so that a hanging request times out and cannot block
    /// them.
    fn settle(&mut self, now: impl FnOnce() -> u64) {
        let stands = self.pauses > 0 || (self.holds > 0 && self.running == 0);
        match (self.standing, stands) {
            (None, true) => self.standing = Some(now()),
            (Some(since), false) => {
                self.stood += now().saturating_sub(since);
                self.standing = None;
            }
            _ => {}
        }
    }
}

impl Gate {
    /// Changes the state and wakes the waiting tasks. `now` is called only if generation is paused or resumed by the
    /// change.
    fn change<T>(&self, now: impl FnOnce() -> u64, change: impl FnOnce(&mut State) -> T) -> T {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let changed = change(state);
        state.settle(now);
        let ready = [
            (state.holds == 0, &mut state.submitters),
            (state.running == 0, &mut state.idle),
            (state.standing.is_none(), &mut state.moving),
        ];
        let ready = ready.map(|(ready, waiting)| if ready { waiting.take() } else { Wakers::default() });
        drop(guard);
        ready.into_iter().for_each(Wakers::wake);
        changed
    }

    /// Adds a hold. `first` runs if submissions were open, before another thread can reopen them.
    pub(crate) fn hold(&self, now: u64, first: impl FnOnce()) {
        self.change(
            || now,
            |state| {
                if state.holds == 0 {
                    first();
                }
                state.holds += 1;
            },
        );
    }

    /// Removes a hold. If it was the last one, `last` records the reopening before any lease can be issued.
    pub(crate) fn release(&self, now: u64, last: impl FnOnce() -> Stamp) {
        self.change(
            || now,
            |state| {
                if state.holds == 1 {
                    state.reopened = Some(last());
                }
                state.holds -= 1;
            },
        );
    }

    /// The record of the last reopening of this session.
    pub(crate) fn reopened(&self) -> Option<Stamp> {
        self.0.lock().reopened
    }

    /// Whether submissions are open. If not, `waker` is woken when they reopen.
    pub(crate) fn is_open(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        if state.holds > 0 {
            state.submitters.add(waker);
        }
        state.holds == 0
    }

    /// Counts a request as running if submissions are open. If not, `waker` is woken when they reopen.
    pub(crate) fn try_enter(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        if state.holds > 0 {
            state.submitters.add(waker);
            return false;
        }
        state.running += 1;
        true
    }

    /// Notes that a request has ended.
    pub(crate) fn leave(&self, now: impl FnOnce() -> u64) {
        self.change(now, |state| state.running -= 1);
    }

    /// Whether no request runs. If one does, `waker` is woken when the last one has ended.
    pub(crate) fn is_idle(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        if state.running > 0 {
            state.idle.add(waker);
        }
        state.running == 0
    }

    pub(crate) fn running(&self) -> usize {
        self.0.lock().running
    }

    pub(crate) fn pause(&self, now: u64) {
        self.change(|| now, |state| state.pauses += 1);
    }

    pub(crate) fn resume(&self, now: u64) {
        self.change(|| now, |state| state.pauses -= 1);
    }

    /// The nanoseconds up to `now` in which generation was not paused.
    pub(crate) fn moved(&self, now: u64) -> u64 {
        let state = self.0.lock();
        let standing = state.standing.map_or(0, |since| now.saturating_sub(since));
        now.saturating_sub(state.stood + standing)
    }

    /// Whether generation is not paused. If it is, `waker` is woken when it resumes.
    pub(crate) fn is_moving(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        if state.standing.is_some() {
            state.moving.add(waker);
        }
        state.standing.is_none()
    }
}

#[cfg(test)]
mod tests {
    use anabranch_core::Seq;
    use futures::task::noop_waker;

    use super::*;

    #[test]
    fn time_stands_still_only_when_nothing_can_run() {
        let (gate, waker) = (Gate::default(), noop_waker());
        assert!(gate.try_enter(&waker));
        gate.hold(10, || ());
        assert!(!gate.try_enter(&waker), "submissions are closed");
        assert_eq!(gate.moved(15), 15, "a request still runs under the hold");
        gate.leave(|| 20);
        assert!(!gate.is_moving(&waker));
        gate.pause(30);
        gate.release(40, || Stamp::earlier(Seq(0)));
        assert_eq!(gate.moved(45), 20, "the publication pauses generation after the hold has ended");
        gate.resume(50);
        assert_eq!((gate.moved(60), gate.is_moving(&waker)), (30, true));
    }

    #[test]
    fn nested_holds_reopen_after_the_last_and_say_so_once() {
        let (gate, waker) = (Gate::default(), noop_waker());
        let mut said = Vec::new();
        gate.hold(0, || said.push("closed"));
        gate.hold(1, || said.push("closed again"));
        gate.release(2, || unreachable!("one hold is left"));
        assert!(!gate.is_open(&waker));
        gate.release(3, || Stamp { at: 3, ..Stamp::earlier(Seq(7)) });
        assert!(gate.is_open(&waker));
        assert_eq!((said, gate.reopened().map(|stamp| stamp.at)), (vec!["closed"], Some(3)));
    }
}
