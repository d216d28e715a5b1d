//! Where the groups of a session are, how long the buffer was empty or full, and how old its groups are.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::instrument::{Count, Facade, Level};
use crate::{Counters, Gauges, Histogram, names};
use anabranch_core::{OldestVersion, Version, VersionClock};

/// The number of groups at each place.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Being generated, scored or logged: between the lease and the buffer (or batch).
    pub in_flight: usize,
    /// Completed and waiting for room in the buffer.
    pub waiting: usize,
    /// In the buffer.
    pub buffered: usize,
    /// Out of the buffer, but not consumed yet.
    pub taken: usize,
}

/// Measures the places of one session. The log does not have these facts.
#[derive(Debug)]
pub struct PlaceMeter {
    places: Places,
    /// Known once there is a buffer.
    capacity: Option<usize>,
    /// The moment up to which time is counted, in nanoseconds since the session's start.
    counted_to: u64,
    closed: bool,
    empty: Count,
    full: Count,
    blocked: Count,
    /// The oldest versions of the groups in the buffer.
    versions: BTreeMap<Version, u64>,
    unknown: u64,
    in_flight: Level,
    waiting: Level,
    size: Level,
    capacity_shown: Level,
    taken: Level,
    gap_mean: Level,
    gap_max: Level,
    lag_mean: Level,
    lag_max: Level,
}

impl Default for PlaceMeter {
    fn default() -> Self {
        Self {
            places: Places::default(),
            capacity: None,
            counted_to: 0,
            closed: false,
            empty: Count::new(names::QUEUE_EMPTY),
            full: Count::new(names::QUEUE_FULL),
            blocked: Count::new(names::BLOCKED),
            versions: BTreeMap::new(),
            unknown: 0,
            in_flight: Level::new(names::IN_FLIGHT),
            waiting: Level::new(names::WAITING),
            size: Level::new(names::QUEUE_SIZE),
            capacity_shown: Level::new(names::QUEUE_CAPACITY),
            taken: Level::new(names::TAKEN),
            gap_mean: Level::new(names::BUFFERED_GAP_MEAN),
            gap_max: Level::new(names::BUFFERED_GAP_MAX),
            lag_mean: Level::new(names::BUFFERED_LAG_MEAN),
            lag_max: Level::new(names::BUFFERED_LAG_MAX),
        }
    }
}

impl PlaceMeter {
    /// Notes that the session opens now.
    pub fn open(&mut self, facade: &Facade, now: u64) {
        self.counted_to = now;
        for count in [&mut self.empty, &mut self.full, &mut self.blocked] {
            count.attach(facade);
        }
        let Self { in_flight, waiting, size, capacity_shown, taken, .. } = self;
        for level in [in_flight, waiting, size, capacity_shown, taken] {
            level.attach(facade);
        }
        let Self { gap_mean, gap_max, lag_mean, lag_max, .. } = self;
        for level in [gap_mean, gap_max, lag_mean, lag_max] {
            level.attach(facade);
        }
        self.show();
    }

    /// Notes that the run has a buffer of this capacity. It has been empty since the session opened.
    pub fn set_capacity(&mut self, groups: usize) {
        self.capacity = Some(groups);
        self.capacity_shown.set(Some(groups as f64));
        self.show();
    }

    /// Counts the time up to `now`, before a group enters the buffer, leaves it, or begins to wait for room.
    pub fn count_time(&mut self, now: u64) {
        let passed = now.saturating_sub(self.counted_to);
        // The buffer becomes known with its first group. The time before is counted then.
        let Some(capacity) = self.capacity.filter(|_| !self.closed && passed > 0) else { return };
        self.counted_to = now;
        let Places { waiting, buffered, .. } = self.places;
        self.empty.add(if buffered == 0 { passed } else { 0 });
        self.full.add(if buffered >= capacity || waiting > 0 { passed } else { 0 });
        self.blocked.add(if waiting > 0 { passed } else { 0 });
    }

    /// Notes that the groups are at these places now.
    pub fn moved(&mut self, places: Places) {
        self.places = places;
        self.show();
    }

    fn show(&mut self) {
        let Places { in_flight, waiting, buffered, taken } = self.places;
        self.in_flight.set(Some(in_flight as f64));
        self.waiting.set(Some(waiting as f64));
        self.size.set(self.capacity.map(|_| buffered as f64));
        self.taken.set(Some(taken as f64));
    }

    /// Notes that a group whose oldest version is `oldest` entered the buffer.
    pub fn enter(&mut self, oldest: Option<OldestVersion>) {
        match oldest {
            Some(OldestVersion::Known(version)) => *self.versions.entry(version).or_default() += 1,
            _ => self.unknown += 1,
        }
    }

    /// Notes that such a group left the buffer.
    pub fn leave(&mut self, oldest: Option<OldestVersion>) {
        let Some(OldestVersion::Known(version)) = oldest else {
            self.unknown -= 1;
            return;
        };
        if let Some(count) = self.versions.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                self.versions.remove(&version);
            }
        }
    }

    /// Notes that the session ends.
    pub fn close(&mut self, now: u64) {
        self.count_time(now);
        self.closed = true;
    }

    /// Returns the gaps and step lags of the groups in the buffer, and updates the recorder.
    pub fn buffered(&mut self, clocks: &VersionClock) -> [Histogram; 2] {
        let [mut gap, mut lag] = [Histogram::of_counts(), Histogram::of_counts()];
        for (&version, &groups) in &self.versions {
            gap.add(clocks.gap(OldestVersion::Known(version)), groups);
            lag.add(clocks.step_lag(OldestVersion::Known(version)), groups);
        }
        gap.add(None, self.unknown);
        lag.add(None, self.unknown);
        self.gap_mean.set(gap.mean());
        self.gap_max.set(gap.max().map(|max| max as f64));
        self.lag_mean.set(lag.mean());
        self.lag_max.set(lag.max().map(|max| max as f64));
        [gap, lag]
    }

    /// Fills in the metrics that are not in the events.
    pub fn fill(&mut self, clocks: &VersionClock, counters: &mut Counters, gauges: &mut Gauges) {
        let time = |count: &Count| self.capacity.map(|_| Duration::from_nanos(count.get()));
        counters.queue_empty = time(&self.empty);
        counters.queue_full = time(&self.full);
        counters.producer_blocked = time(&self.blocked);
        gauges.in_flight = self.places.in_flight;
        gauges.waiting = self.places.waiting;
        gauges.queue = self.capacity.map(|_| self.places.buffered);
        gauges.queue_capacity = self.capacity;
        gauges.taken = self.places.taken;
        [gauges.buffered_gap, gauges.buffered_step_lag] = self.buffered(clocks);
    }
}
