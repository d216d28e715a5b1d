//! Counts where the groups of a run are.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use anabranch_core::{OldestVersion, Retry, Stamp};
use anabranch_metrics::{PlaceMeter, Places};
use parking_lot::Mutex;

use super::wakers::Wakers;
use crate::demand::Demand;

/// Where a lease's group is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Between the source and the operator that issues it: adaptors may hold any number of these.
    Offered,
    /// With an operator that is generating, scoring or logging it.
    Working,
    /// Between two operators before the buffer (or batch).
    Upstream,
    /// Waiting for room in the buffer.
    Waiting,
    /// In the buffer.
    Buffered,
    /// Between the buffer and a batch.
    Dequeued,
    /// In a batch that is being assembled; it no longer keeps the source waiting.
    Held,
    /// Consumed, excluded or abandoned.
    Settled,
}

impl Stage {
    /// Whether time in this stage is measured.
    pub(crate) fn is_timed(self) -> bool {
        matches!(self, Self::Waiting | Self::Buffered)
    }
}

#[derive(Debug, Default)]
struct State {
    offered: usize,
    working: usize,
    upstream: usize,
    waiting: usize,
    buffered: usize,
    dequeued: usize,
    held: usize,
    meter: PlaceMeter,
    source_ended: bool,
    retries: VecDeque<Retry>,
    excluded: Option<Stamp>,
    /// The event that let the last group leave an operator.
    departed: Option<Stamp>,
    /// The number of leases that `.pace` passed and that are not issued yet.
    paced: usize,
    /// The number of groups and leases of earlier sessions that the source has not handed out yet.
    left: usize,
    source: Option<Waker>,
    /// What `.buffer` or `.batch` asked for last; nothing before the first group reached them.
    demand: Option<Demand>,
    /// Operators that may not issue a lease before a group leaves.
    room: Wakers,
}

/// Counts of open leases by stage and queued retries; shared by all operators of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow(Arc<Mutex<State>>);

impl Flow {
    pub(crate) fn enter(&self, stage: Stage) {
        if let Some(count) = self.0.lock().count(stage) {
            *count += 1;
        }
    }

    /// Moves a group, whose oldest version is `oldest`, to another stage. `now` is known if time in one of the two
    /// stages is measured.
    pub(crate) fn travel(&self, from: Stage, to: Stage, oldest: Option<OldestVersion>, now: Option<u64>) {
        let mut state = self.0.lock();
        if let Some(now) = now {
            state.meter.count_time(now);
        }
        if let Some(count) = state.count(from) {
            *count -= 1;
        }
        if let Some(count) = state.count(to) {
            *count += 1;
        }
        if from == Stage::Buffered {
            state.meter.leave(oldest);
        }
        if to == Stage::Buffered {
            state.meter.enter(oldest);
        }
        state.measure();
        // The source may end once no lease is open. It must be woken to notice that.
        let waker = state.source.take();
        let departed = from != to
            && match from {
                Stage::Working | Stage::Waiting => true,
                Stage::Upstream => to != Stage::Waiting,
                _ => false,
            };
        let waiting = if departed { state.room.take() } else { Wakers::default() };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        waiting.wake();
    }

    /// Counts a held group as open again, so that the source cannot end before the retry is queued. Returns `false` if
    /// the source has ended.
    pub(crate) fn reopen_held(&self) -> bool {
        let mut state = self.0.lock();
        if !state.source_ended {
            state.held -= 1;
            state.upstream += 1;
            state.measure();
        }
        !state.source_ended
    }

    /// Wakes `waker` when the next group leaves an operator, or enters the buffer or a batch.
    pub(crate) fn wake_on_departure(&self, waker: &Waker) {
        self.0.lock().room.add(waker);
    }

    pub(crate) fn upstream(&self) -> usize {
        let state = self.0.lock();
        state.working + state.upstream + state.waiting
    }

    /// Notes an exclusion. A batch then needs one more group, and the pace passes one more lease.
    pub(crate) fn exclude(&self, stamp: Stamp) {
        self.make_room(|state| state.excluded = Some(stamp));
    }

    /// Notes when a group leaves an operator, just before it does.
    pub(crate) fn depart(&self, stamp: Stamp) {
        self.0.lock().departed = Some(stamp);
    }

    pub(crate) fn last_departed(&self) -> Option<Stamp> {
        self.0.lock().departed
    }

    pub(crate) fn pace(&self) {
        self.0.lock().paced += 1;
    }

    pub(crate) fn unpace(&self) {
        self.make_room(|state| state.paced -= 1);
    }

    pub(crate) fn paced(&self) -> usize {
        self.0.lock().paced
    }

    pub(crate) fn leave_over(&self, left: usize) {
        self.0.lock().left = left;
    }

    /// Notes that the source has handed out or settled a group or lease of an earlier session.
    pub(crate) fn hand_out(&self) {
        self.0.lock().left -= 1;
    }

    pub(crate) fn left_over(&self) -> usize {
        self.0.lock().left
    }

    /// The operator that takes groups in asks for so many.
    pub(crate) fn set_demand(&self, demand: Demand) {
        self.make_room(|state| state.demand = Some(demand));
    }

    /// The demand to issue leases under: that of the poll under way, or else what the run was told last.
    pub(crate) fn demand(&self) -> Demand {
        Demand::in_force().or_else(|| self.0.lock().demand).unwrap_or_default()
    }

    fn make_room(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock();
        change(&mut state);
        let waiting = state.room.take();
        drop(state);
        waiting.wake();
    }

    pub(crate) fn last_excluded(&self) -> Option<Stamp> {
        self.0.lock().excluded
    }

    pub(crate) fn working(&self) -> usize {
        self.0.lock().working
    }

    /// Measures the places of groups in this session: see [`PlaceMeter`].
    pub(crate) fn with_meter<T>(&self, read: impl FnOnce(&mut PlaceMeter) -> T) -> T {
        read(&mut self.0.lock().meter)
    }

    /// Queues a retry. Its lease is still open, so the source has not ended.
    pub(crate) fn queue(&self, retry: Retry) {
        let mut state = self.0.lock();
        state.retries.push_back(retry);
        let waker = state.source.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Takes the retry that was queued first.
    pub(crate) fn next_retry(&self) -> Option<Retry> {
        self.0.lock().retries.pop_front()
    }

    pub(crate) fn has_retries(&self) -> bool {
        !self.0.lock().retries.is_empty()
    }

    /// Ends the source if nothing is open or queued. Otherwise the next change wakes `waker`.
    pub(crate) fn try_end(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        let upstream = state.offered + state.working + state.upstream + state.waiting;
        if upstream + state.buffered + state.dequeued == 0 && state.retries.is_empty() {
            state.source_ended = true;
        } else {
            state.source = Some(waker.clone());
        }
        state.source_ended
    }
}

impl State {
    fn count(&mut self, stage: Stage) -> Option<&mut usize> {
        match stage {
            Stage::Offered => Some(&mut self.offered),
            Stage::Working => Some(&mut self.working),
            Stage::Upstream => Some(&mut self.upstream),
            Stage::Waiting => Some(&mut self.waiting),
            Stage::Buffered => Some(&mut self.buffered),
            Stage::Dequeued => Some(&mut self.dequeued),
            Stage::Held => Some(&mut self.held),
            Stage::Settled => None,
        }
    }

    fn measure(&mut self) {
        self.meter.moved(Places {
            in_flight: self.working + self.upstream,
            waiting: self.waiting,
            buffered: self.buffered,
            taken: self.dequeued + self.held,
        });
    }
}
