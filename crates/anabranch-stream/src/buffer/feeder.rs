//! The buffer's task: polls upstream and admits groups in the order in which they complete.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anabranch_core::{Cause, Error, EventKind, Fields, Order, Stamp, Value};
use futures::Stream;

use super::queue::Queue;
use super::sync::Mutex;
use crate::demand::Demand;
use crate::entry::run_of;
use crate::run::{Draft, RecordReceipt, Stage};
use crate::upstream::Upstream;
use crate::{Capacity, Rollout, Run};

/// Continues to poll upstream while completed groups wait for room, so that requests and their timeouts do not stall,
/// but then asks for no new group.
pub(super) struct Feeder<S> {
    input: Pin<Box<Upstream<S>>>,
    settings: (Capacity, Order),
    queue: Arc<Mutex<Queue<Rollout>>>,
    run: Option<Run>,
    /// Completed groups that wait to be admitted, and whether each had to wait for room.
    waiting: VecDeque<(Rollout, bool)>,
    /// The departure that made room for the last waiting group.
    room_made: Option<Stamp>,
    /// What the run was told last.
    asked: Option<Demand>,
}

impl<S> Feeder<S> {
    pub(super) fn new(input: S, settings: (Capacity, Order), queue: Arc<Mutex<Queue<Rollout>>>) -> Self {
        Self {
            input: Box::pin(Upstream::new(input)),
            settings,
            queue,
            run: None,
            waiting: VecDeque::new(),
            room_made: None,
            asked: None,
        }
    }

    /// Takes a completed group in. Afterwards it has passed the entry checks and is in the log.
    fn accept(&mut self, mut group: Rollout) -> Result<(), Error> {
        let run = run_of(&mut group);
        if self.run.is_none() {
            let (capacity, order) = self.settings;
            let settings = Fields::from([
                ("groups".to_owned(), Value::from(capacity.get())),
                ("bytes".to_owned(), Value::from(capacity.bytes())),
                ("order".to_owned(), Value::from(order.name())),
            ]);
            run.configure("buffer", settings)?;
            run.set_buffer_capacity(capacity.get());
            self.run = Some(run);
        }
        let Some(mut group) = group.check_entry()? else { return Ok(()) };
        group.complete();
        self.waiting.push_back((group, false));
        Ok(())
    }

    /// Admits groups while there is room: first the record, then the group, so that the order in the log is the order
    /// here.
    fn admit(&mut self, cx: &Context<'_>) {
        let mut queue = self.queue.lock();
        while let Some((mut group, waited)) = self.waiting.pop_front() {
            if !queue.has_room(&group, cx.waker()) {
                self.waiting.push_front((group, waited));
                self.waiting.iter_mut().for_each(refuse);
                return;
            }
            let room = queue.room_made().filter(|_| waited);
            self.room_made = room.or(self.room_made);
            if group.admitted.is_none() {
                group.admitted = Some(admission(&group, room).stamp(0));
            }
            let oldest = group.oldest();
            group.lease.enter_buffer(oldest);
            queue.push(group);
        }
    }

    /// What upstream may bring now, as the run is told too.
    fn ask(&mut self) -> Demand {
        let groups = (!self.waiting.is_empty()).then_some(0);
        let demand = Demand { groups, since: self.room_made.map(|stamp| (Cause::Room, stamp)) };
        if let Some(run) = self.run.as_ref().filter(|_| self.asked != Some(demand)) {
            run.flow().set_demand(demand);
            self.asked = Some(demand);
        }
        demand
    }

    /// Whether to stop polling upstream, because it would only bring more groups that no demand holds back.
    fn is_flooded(&self) -> bool {
        self.waiting.iter().any(|(group, _)| group.lease.is_adopted())
    }

    fn fail(&mut self, error: Error) -> Poll<()> {
        // The waiting groups are in the log. Dropping the input stops everything that runs upstream.
        self.waiting.clear();
        self.input.as_mut().end();
        self.queue.lock().fail(error);
        Poll::Ready(())
    }
}

/// Notes that a group waits for room, once per group.
fn refuse((group, waited): &mut (Rollout, bool)) {
    if !*waited {
        group.lease.arrive(Stage::Waiting);
    }
    *waited = true;
}

fn admission(group: &Rollout, room: Option<Stamp>) -> RecordReceipt {
    let completed = group.completed.map(|stamp| (Cause::Completed, stamp));
    let enablers = completed.into_iter().chain(room.map(|stamp| (Cause::Room, stamp))).collect();
    let draft = Draft::new(EventKind::Admitted { id: group.id.clone() }, enablers);
    group.run().record(vec![draft], &[])
}

impl<S: Stream<Item = Result<Rollout, Error>>> Future for Feeder<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.admit(cx);
            if self.input.has_ended() && self.waiting.is_empty() {
                self.queue.lock().close();
                return Poll::Ready(());
            }
            if self.input.has_ended() || self.is_flooded() {
                return Poll::Pending;
            }
            let in_force = self.ask().enforce();
            let polled = self.input.as_mut().poll_next(cx);
            drop(in_force);
            match polled {
                Poll::Ready(Some(Ok(group))) => {
                    if let Err(error) = self.accept(group) {
                        return self.fail(error);
                    }
                }
                Poll::Ready(Some(Err(error))) => return self.fail(error),
                Poll::Ready(None) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
