//! What is summed up on the way.

use super::{Fate, Publication, Simulation};
use crate::whatif::outcome::{LengthBias, Little};
use crate::whatif::prediction::Sink;

/// Integrals over time, in group-nanoseconds.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Tally {
    in_flight: u128,
    buffered: u128,
    passed: u64,
    /// Both, and the time, when the last batch was taken.
    at_batch: (u128, u128, u64),
}

impl<S: Sink> Simulation<'_, S> {
    /// Sums up `passed` nanoseconds in the present state.
    pub(super) fn tally_time(&mut self, passed: u64) {
        self.tally.passed += passed;
        self.tally.in_flight += self.upstream as u128 * u128::from(passed);
        self.tally.buffered += (self.buffer.len() + self.held.len()) as u128 * u128::from(passed);
        let slots = self.settings.slots_of_group();
        let stall = &mut self.outcome.stall;
        match self.publication {
            Publication::Draining | Publication::Lingering => {
                stall.paused_ns += passed;
                stall.publication_slot_ns += (self.entering.len() * slots) as u64 * passed;
            }
            Publication::Still | Publication::Installed => {
                let busy = self.settings.slots() - self.slots.len();
                stall.paused_ns += passed;
                stall.publication_slot_ns += busy as u64 * passed;
            }
            Publication::None | Publication::Begun => {}
        }
        if !self.waiting.is_empty() && self.has_prompt() {
            self.outcome.stall.full_buffer_slot_ns += self.slots.len() as u64 * passed;
        }
    }

    /// A batch is taken.
    pub(super) fn tally_batch(&mut self) {
        self.tally.at_batch = (self.tally.in_flight, self.tally.buffered, self.tally.passed);
    }

    /// New weights are installed: counts the publication for each group that has sampled a token by then.
    pub(super) fn tally_publication(&mut self) {
        if !S::COUNTS {
            return;
        }
        let mut vacant = vec![false; self.alive.len()];
        self.vacant.iter().for_each(|&index| vacant[index as usize] = true);
        self.entering.iter().for_each(|&index| vacant[index as usize] = true);
        for (group, vacant) in self.alive.iter_mut().zip(vacant) {
            let floor = group.floor >= self.versions.len() as u64 - 1;
            group.publications += u64::from(!vacant && !floor && group.first <= self.generated);
        }
    }

    /// The run is over.
    pub(super) fn end(&mut self) {
        let vacant: std::collections::BTreeSet<u32> = self.vacant.iter().copied().collect();
        for index in (0..self.alive.len() as u32).filter(|index| !vacant.contains(index)) {
            let group = &self.alive[index as usize];
            let tokens = if group.completed == u64::MAX { 0 } else { group.tokens };
            self.outcome.left.add(tokens);
            self.tell(index, Fate::Left, None);
        }
        let wall = self.wall + self.now - self.recording.sessions[self.session].opened;
        let wasted = self.outcome.wasted_total();
        self.outcome.wall_ns = wall;
        self.outcome.stall.slot_ns = wall * self.settings.slots() as u64;
        self.outcome.length =
            LengthBias { consumed: self.outcome.consumed.mean_tokens(), excluded: wasted.mean_tokens() };
        let (in_flight, buffered, at) = self.tally.at_batch;
        let over = at as f64;
        let interval = self.settings.update_interval.unwrap_or(1) as f64;
        self.outcome.little = (over > 0.0).then(|| {
            let (in_flight, buffered) = (in_flight as f64 / over, buffered as f64 / over);
            let step_lag = (in_flight + buffered) / self.settings.batch as f64 + (interval - 1.0) / 2.0;
            Little { in_flight, buffered, step_lag }
        });
    }
}
