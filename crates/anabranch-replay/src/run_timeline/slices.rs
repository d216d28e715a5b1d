//! An axis of equal slices in bounded memory: the width of a slice doubles whenever the axis gets too long.

use crate::TIMELINE_SLICES;
use crate::run_timeline::{Slice, StepSlice};

/// A summary of a slice.
pub(super) trait Merge: Clone + Default {
    /// Adds the summary of the next slice.
    fn merge(&mut self, next: Self);
}

impl Merge for Slice {
    fn merge(&mut self, next: Self) {
        self.in_flight_ns += next.in_flight_ns;
        self.generating_ns += next.generating_ns;
        self.waiting_ns += next.waiting_ns;
        self.buffered_ns += next.buffered_ns;
        self.training_ns += next.training_ns;
        self.learner_wait_ns += next.learner_wait_ns;
        self.paused_ns += next.paused_ns;
        self.published += next.published;
        self.consumed += next.consumed;
        for (reason, groups) in next.excluded {
            *self.excluded.entry(reason).or_default() += groups;
        }
        self.gap_consumed.merge(&next.gap_consumed);
        self.gap_excluded.merge(&next.gap_excluded);
    }
}

impl Merge for StepSlice {
    fn merge(&mut self, next: Self) {
        self.steps += next.steps;
        self.loss.merge(next.loss);
        self.reward_consumed.merge(next.reward_consumed);
        self.reward_completed.merge(next.reward_completed);
        self.learner_wait.merge(&next.learner_wait);
    }
}

/// Merges all of `slices` into one.
pub(super) fn merge<T: Merge>(slices: &[T]) -> T {
    slices.iter().cloned().fold(T::default(), |mut merged, slice| {
        merged.merge(slice);
        merged
    })
}

#[derive(Clone, Debug)]
pub(super) struct Slices<T> {
    width: u64,
    slices: Vec<T>,
}

impl<T> Default for Slices<T> {
    fn default() -> Self {
        Self { width: 1, slices: Vec::new() }
    }
}

impl<T: Merge> Slices<T> {
    /// Makes the axis reach as far as `position`.
    pub(super) fn reach(&mut self, position: u64) {
        while position / self.width >= TIMELINE_SLICES as u64 {
            let mut halved: Vec<T> = Vec::with_capacity(TIMELINE_SLICES);
            for (index, slice) in std::mem::take(&mut self.slices).into_iter().enumerate() {
                match halved.last_mut() {
                    Some(last) if index % 2 == 1 => last.merge(slice),
                    _ => halved.push(slice),
                }
            }
            self.slices = halved;
            self.width *= 2;
        }
        let needed = (position / self.width) as usize + 1;
        if self.slices.len() < needed {
            self.slices.resize(needed, T::default());
        }
    }

    /// Returns the slice in which `position` lies.
    pub(super) fn at(&mut self, position: u64) -> &mut T {
        self.reach(position);
        &mut self.slices[(position / self.width) as usize]
    }

    /// Distributes `from..to` over the slices in which it lies.
    pub(super) fn spread(&mut self, from: u64, to: u64, mut add: impl FnMut(&mut T, u64)) {
        self.reach(from.max(to));
        let mut from = from;
        while from < to {
            let end = to.min((from / self.width + 1) * self.width);
            add(&mut self.slices[(from / self.width) as usize], end - from);
            from = end;
        }
    }

    /// Returns the width of a slice, and the slices.
    pub(super) fn finish(self) -> (u64, Vec<T>) {
        (self.width, self.slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_the_axis_grows() {
        let mut slices = Slices::<Slice>::default();
        for position in [0, 7, 479, 480, 1_000_000, 3] {
            slices.at(position).consumed += 1;
        }
        slices.spread(100, 900_000, |slice, ns| slice.training_ns += ns);
        slices.spread(5, 5, |slice, _| slice.published += 1);
        let (width, slices) = slices.finish();
        assert!(slices.len() <= TIMELINE_SLICES && width.is_power_of_two());
        assert!(slices.len() > TIMELINE_SLICES / 2, "no slice is wider than it has to be");
        let sum = |get: fn(&Slice) -> u64| slices.iter().map(get).sum::<u64>();
        assert_eq!((sum(|s| s.consumed), sum(|s| s.training_ns), sum(|s| s.published)), (6, 899_900, 0));
        assert!(slices.iter().all(|slice| slice.training_ns <= width));
        assert_eq!(slices[0].training_ns, width - 100);
    }
}
