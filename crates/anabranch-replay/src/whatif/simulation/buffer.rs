//! The simulated buffer: completed groups in the order in which they will leave it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use anabranch_core::Order;

/// A group's version and when it entered the buffer. A group of unknown version has the first version.
type Rank = (u64, u64);

/// The groups in a simulated buffer.
#[derive(Debug)]
pub(super) enum Buffer {
    /// Groups leave as they entered.
    Fifo(VecDeque<u32>),
    /// The newest version leaves first; of equal versions, the group that entered first. The number counts entries.
    Freshest(BinaryHeap<(u64, Reverse<u64>, u32)>, u64),
    /// The oldest version leaves first; of equal versions, the group that entered first. The number counts entries.
    Stalest(BinaryHeap<Reverse<(Rank, u32)>>, u64),
}

impl Buffer {
    pub(super) fn new(order: Order) -> Self {
        match order {
            Order::Fifo => Self::Fifo(VecDeque::new()),
            Order::Freshest => Self::Freshest(BinaryHeap::new(), 0),
            Order::Stalest => Self::Stalest(BinaryHeap::new(), 0),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Fifo(groups) => groups.len(),
            Self::Freshest(groups, _) => groups.len(),
            Self::Stalest(groups, _) => groups.len(),
        }
    }

    pub(super) fn push(&mut self, group: u32, oldest: u64) {
        match self {
            Self::Fifo(groups) => groups.push_back(group),
            Self::Freshest(groups, next) => {
                groups.push((oldest, Reverse(*next), group));
                *next += 1;
            }
            Self::Stalest(groups, next) => {
                groups.push(Reverse(((oldest, *next), group)));
                *next += 1;
            }
        }
    }

    /// Returns the group that leaves next.
    pub(super) fn first(&self) -> Option<u32> {
        match self {
            Self::Fifo(groups) => groups.front().copied(),
            Self::Freshest(groups, _) => groups.peek().map(|&(.., group)| group),
            Self::Stalest(groups, _) => groups.peek().map(|&Reverse((_, group))| group),
        }
    }

    pub(super) fn pop(&mut self) {
        match self {
            Self::Fifo(groups) => drop(groups.pop_front()),
            Self::Freshest(groups, _) => drop(groups.pop()),
            Self::Stalest(groups, _) => drop(groups.pop()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_leave_as_they_came() {
        let leave = |order| {
            let mut buffer = Buffer::new(order);
            for (group, oldest) in [(0, 2), (1, 3), (2, 1), (3, 3), (4, 1)] {
                buffer.push(group, oldest);
            }
            let left: Vec<u32> = std::iter::from_fn(|| {
                let first = buffer.first()?;
                buffer.pop();
                Some(first)
            })
            .collect();
            assert_eq!(buffer.len(), 0);
            left
        };
        assert_eq!(leave(Order::Fifo), [0, 1, 2, 3, 4]);
        assert_eq!(leave(Order::Freshest), [1, 3, 0, 2, 4]);
        assert_eq!(leave(Order::Stalest), [2, 4, 0, 1, 3]);
    }
}
