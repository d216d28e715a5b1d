//! What the feeder and the consumer of a buffer share.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use anabranch_core::{Error, Group, Moment, Stage, Stamp};

use crate::Capacity;

/// Completed groups in the order of their admission.
#[derive(Debug)]
pub(super) struct Queue {
    capacity: Capacity,
    groups: VecDeque<Group>,
    bytes: u64,
    /// When each of the last `capacity` groups left, oldest first.
    departures: VecDeque<Option<Stamp>>,
    failure: Option<Error>,
    closed: bool,
    consumer: Option<Waker>,
    feeder: Option<Waker>,
}

/// What a group takes of a capacity in bytes: tokens, masks and log-probs.
fn bytes(group: &Group) -> u64 {
    let sample = |sample: &anabranch_core::Sample| {
        let words =
            sample.tokens.len() + sample.logprobs.len() + sample.truncated_logprobs.as_ref().map_or(0, Vec::len);
        4 * words as u64 + sample.loss_mask.len() as u64
    };
    group.samples.iter().map(sample).sum()
}

impl Queue {
    pub(super) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            groups: VecDeque::new(),
            bytes: 0,
            departures: VecDeque::new(),
            failure: None,
            closed: false,
            consumer: None,
            feeder: None,
        }
    }

    /// Whether there is room for the group; if not, `waker` is woken by the next departure.
    pub(super) fn has_room(&mut self, group: &Group, waker: &Waker) -> bool {
        let fits = self.capacity.bytes().is_none_or(|limit| self.bytes + bytes(group) <= limit);
        let room = self.groups.is_empty() || (self.groups.len() < self.capacity.get() && fits);
        if !room {
            self.feeder = Some(waker.clone());
        }
        room
    }

    /// The departure that made room for the next group: with a bound on groups, as many admissions lie between the two
    /// as the buffer holds; with one on bytes, the last.
    pub(super) fn room_made(&self) -> Option<Stamp> {
        let before = if self.capacity.bytes().is_some() { 1 } else { self.capacity.get() - self.groups.len() };
        *self.departures.get(self.departures.len().checked_sub(before)?)?
    }

    pub(super) fn push(&mut self, group: Group) {
        self.bytes += bytes(&group);
        self.groups.push_back(group);
        wake(&mut self.consumer);
    }

    /// The feeder is done: nothing more comes.
    pub(super) fn close(&mut self) {
        self.closed = true;
        wake(&mut self.consumer);
    }

    /// The feeder failed: the error overtakes what is queued.
    pub(super) fn fail(&mut self, error: Error) {
        self.failure = Some(error);
        self.close();
    }

    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    pub(super) fn poll_pop(&mut self, cx: &mut Context<'_>) -> Poll<Option<Group>> {
        let Some(mut group) = self.groups.pop_front() else {
            if self.closed {
                return Poll::Ready(None);
            }
            self.consumer = Some(cx.waker().clone());
            return Poll::Pending;
        };
        self.bytes -= bytes(&group);
        let at = group.context.lease.as_ref().map(|lease| lease.run().now());
        group.context.dequeued = at;
        if let Some(lease) = &mut group.context.lease {
            lease.arrive(Stage::Dequeued);
        }
        let admitted = group.context.admitted.and_then(|stamp| stamp.moment.event());
        let departure = admitted.zip(at).map(|(admitted, at)| Stamp { moment: Moment::Dequeued { admitted }, at });
        if self.departures.len() == self.capacity.get() {
            self.departures.pop_front();
        }
        self.departures.push_back(departure);
        wake(&mut self.feeder);
        Poll::Ready(Some(group))
    }
}

fn wake(waker: &mut Option<Waker>) {
    waker.take().into_iter().for_each(Waker::wake);
}
