//! The queue that the feeder and the consumer of a buffer share. It knows nothing of locks or tasks.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};

use anabranch_core::{Error, Order, Stamp};

use crate::Capacity;

/// What a queue must know about an item.
pub(super) trait Item {
    /// How much of a capacity in bytes the item uses.
    fn bytes(&self) -> u64;

    /// The rank of the item in an order: the lowest rank leaves first.
    fn rank(&self, order: Order) -> u64;

    /// Notes that the item leaves the queue now. Returns the moment if the run is known.
    fn leave(&mut self) -> Option<Stamp>;
}

/// Completed groups, in the order in which they leave.
#[derive(Debug)]
pub(super) struct Queue<T> {
    capacity: Capacity,
    order: Order,
    line: Line<T>,
    bytes: u64,
    /// When each of the last `capacity` groups left, oldest first.
    departures: VecDeque<Option<Stamp>>,
    failure: Option<Error>,
    closed: bool,
    consumer: Option<Waker>,
    feeder: Option<Waker>,
}

/// The waiting items.
#[derive(Debug)]
enum Line<T> {
    /// In the order of admission.
    Arrival(VecDeque<T>),
    /// In the order of rank, then of admission (its count).
    Ranked(BTreeMap<(u64, u64), T>, u64),
}

impl<T: Item> Line<T> {
    fn new(order: Order) -> Self {
        match order {
            Order::Fifo => Self::Arrival(VecDeque::new()),
            Order::Freshest | Order::Stalest => Self::Ranked(BTreeMap::new(), 0),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Arrival(line) => line.len(),
            Self::Ranked(line, _) => line.len(),
        }
    }

    fn push(&mut self, item: T, order: Order) {
        match self {
            Self::Arrival(line) => line.push_back(item),
            Self::Ranked(line, admitted) => {
                line.insert((item.rank(order), *admitted), item);
                *admitted += 1;
            }
        }
    }

    fn pop(&mut self) -> Option<T> {
        match self {
            Self::Arrival(line) => line.pop_front(),
            Self::Ranked(line, _) => line.pop_first().map(|(_, item)| item),
        }
    }
}

impl<T: Item> Queue<T> {
    pub(super) fn new(capacity: Capacity, order: Order) -> Self {
        Self {
            capacity,
            order,
            line: Line::new(order),
            bytes: 0,
            departures: VecDeque::new(),
            failure: None,
            closed: false,
            consumer: None,
            feeder: None,
        }
    }

    /// Whether there is room for the item. If not, the next departure wakes `waker`.
    pub(super) fn has_room(&mut self, item: &T, waker: &Waker) -> bool {
        let fits = self.capacity.bytes().is_none_or(|limit| self.bytes + item.bytes() <= limit);
        let room = self.line.len() == 0 || (self.line.len() < self.capacity.get() && fits);
        if !room {
            self.feeder = Some(waker.clone());
        }
        room
    }

    /// The departure that made room for the next item. With a limit on groups, there are as many admissions between the
    /// two as the buffer holds; with a limit on bytes, it is the last departure.
    pub(super) fn room_made(&self) -> Option<Stamp> {
        let before = if self.capacity.bytes().is_some() { 1 } else { self.capacity.get() - self.line.len() };
        *self.departures.get(self.departures.len().checked_sub(before)?)?
    }

    pub(super) fn push(&mut self, item: T) {
        self.bytes += item.bytes();
        self.line.push(item, self.order);
        wake(&mut self.consumer);
    }

    /// Notes that the feeder has ended and no more items follow.
    pub(super) fn close(&mut self) {
        self.closed = true;
        wake(&mut self.consumer);
    }

    /// Notes that the feeder failed; its error overtakes the queued items.
    pub(super) fn fail(&mut self, error: Error) {
        self.failure = Some(error);
        self.close();
    }

    /// Returns the next item or the failure. This is one step, because between two steps the feeder could fail and
    /// close.
    pub(super) fn poll_pop(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        if let Some(error) = self.failure.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(mut item) = self.line.pop() else {
            if self.closed {
                return Poll::Ready(None);
            }
            self.consumer = Some(cx.waker().clone());
            return Poll::Pending;
        };
        self.bytes -= item.bytes();
        if self.departures.len() == self.capacity.get() {
            self.departures.pop_front();
        }
        self.departures.push_back(item.leave());
        wake(&mut self.feeder);
        Poll::Ready(Some(Ok(item)))
    }
}

fn wake(waker: &mut Option<Waker>) {
    waker.take().into_iter().for_each(Waker::wake);
}
