//! Compares the queue with a plain list that implements the rules directly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use anabranch_core::{Error, Moment, OldestVersion, Order, Seq, Stamp, Version};
use proptest::prelude::*;

use super::queue::{Item, Queue};
use crate::Capacity;

/// An item: its number, its bytes, and its oldest version if known.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Fake {
    number: u64,
    bytes: u64,
    version: Option<u64>,
}

impl Item for Fake {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn rank(&self, order: Order) -> u64 {
        order.rank(Some(self.version.map_or(OldestVersion::Unknown, |version| OldestVersion::Known(Version(version)))))
    }

    fn leave(&mut self) -> Option<Stamp> {
        Some(departure(self.number))
    }
}

fn departure(number: u64) -> Stamp {
    Stamp { moment: Moment::Dequeued { admitted: Seq(number) }, at: number }
}

#[derive(Copy, Clone, Debug)]
enum Action {
    /// Admits an item with these bytes and this version if there is room.
    Admit(u64, Option<u64>),
    Pop,
    Close,
    Fail,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let admit = || (0..50_u64, proptest::option::weighted(0.9, 0..5_u64));
    let action = prop_oneof![
        60 => admit().prop_map(|(bytes, version)| Action::Admit(bytes, version)),
        50 => Just(Action::Pop),
        1 => Just(Action::Close),
        1 => Just(Action::Fail),
    ];
    proptest::collection::vec(action, 1..80)
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The expected state of the queue.
#[derive(Default)]
struct Model {
    inside: Vec<Fake>,
    left: Vec<u64>,
    closed: bool,
    failed: bool,
    consumer: Sleeper,
    feeder: Sleeper,
}

/// Whether the task waits to be woken, and how often it was woken.
#[derive(Default)]
struct Sleeper {
    waits: bool,
    woken: usize,
}

impl Sleeper {
    fn wake(&mut self) {
        self.woken += usize::from(std::mem::take(&mut self.waits));
    }
}

impl Model {
    fn has_room(&self, item: Fake, groups: usize, bytes: Option<u64>) -> bool {
        let held: u64 = self.inside.iter().map(|item| item.bytes).sum();
        let fits = bytes.is_none_or(|limit| held + item.bytes <= limit);
        self.inside.is_empty() || (self.inside.len() < groups && fits)
    }

    /// Looks at all of them, in the order of their admission.
    fn pop(&mut self, order: Order) -> Option<Fake> {
        let mut due = 0;
        for (index, item) in self.inside.iter().enumerate() {
            let before = match order {
                Order::Fifo => false,
                Order::Freshest => item.version > self.inside[due].version,
                Order::Stalest => item.version < self.inside[due].version,
            };
            due = if before { index } else { due };
        }
        (due < self.inside.len()).then(|| self.inside.remove(due))
    }
}

fn check(groups: usize, bytes: Option<u64>, order: Order, actions: &[Action]) -> Result<(), TestCaseError> {
    let capacity = bytes.map_or(Capacity::groups(groups), |bytes| Capacity::groups(groups).and_bytes(bytes));
    let (mut queue, mut model) = (Queue::new(capacity, order), Model::default());
    let (consumer, feeder) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
    let (consumer_waker, feeder_waker) = (Waker::from(consumer.clone()), Waker::from(feeder.clone()));
    for (&action, number) in actions.iter().zip(0..) {
        match action {
            Action::Admit(..) | Action::Close | Action::Fail if model.closed => continue,
            Action::Admit(size, version) => {
                let item = Fake { number, bytes: size, version };
                let room = model.has_room(item, groups, bytes);
                prop_assert_eq!(queue.has_room(&item, &feeder_waker), room);
                model.feeder.waits |= !room;
                if room {
                    // With one more inside than the groups allow, this one could not have come: the departure that
                    // made the difference.
                    let admitted = model.left.len() + model.inside.len();
                    let made = if bytes.is_some() { model.left.len() } else { (admitted + 1).saturating_sub(groups) };
                    let made = made.checked_sub(1).map(|index| departure(model.left[index]));
                    prop_assert_eq!(queue.room_made(), made);
                    queue.push(item);
                    model.inside.push(item);
                    model.consumer.wake();
                }
            }
            Action::Pop => {
                let popped = queue.poll_pop(&mut Context::from_waker(&consumer_waker));
                if std::mem::take(&mut model.failed) {
                    prop_assert!(matches!(popped, Poll::Ready(Some(Err(_)))), "the failure overtakes the queued items");
                } else if let Some(due) = model.pop(order) {
                    let Poll::Ready(Some(Ok(item))) = popped else { return Err(TestCaseError::fail("none left")) };
                    prop_assert_eq!(item, due);
                    model.left.push(due.number);
                    model.feeder.wake();
                } else if model.closed {
                    prop_assert!(matches!(popped, Poll::Ready(None)));
                } else {
                    prop_assert!(popped.is_pending());
                    model.consumer.waits = true;
                }
            }
            Action::Close => {
                queue.close();
                model.closed = true;
                model.consumer.wake();
            }
            Action::Fail => {
                queue.fail(Error::Task("gone".to_owned()));
                (model.closed, model.failed) = (true, true);
                model.consumer.wake();
            }
        }
        let woken = (consumer.0.load(Relaxed), feeder.0.load(Relaxed));
        prop_assert_eq!(woken, (model.consumer.woken, model.feeder.woken), "a waiting task is woken exactly once");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_is_what_the_rules_say(
        groups in 1..9_usize,
        bytes in proptest::option::of(0..120_u64),
        order in prop_oneof![Just(Order::Fifo), Just(Order::Freshest), Just(Order::Stalest)],
        actions in actions(),
    ) {
        check(groups, bytes, order, &actions)?;
    }
}
