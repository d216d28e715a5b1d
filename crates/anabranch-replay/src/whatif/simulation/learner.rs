//! The learner: what it does, the batch it assembles, and how many training steps it has made.

/// What the learner does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Activity {
    Works,
    /// It waits for groups.
    Asks,
    /// Its batch is full and on its way.
    Takes,
}

/// The simulated learner.
#[derive(Debug)]
pub(super) struct Learner {
    activity: Activity,
    steps: u64,
    batch: Vec<u32>,
    /// A batch is taken and its training step is not made yet.
    training: bool,
    free_since: u64,
    asks_from: u64,
    /// When the last group left the buffer for the present batch.
    last_departure: u64,
}

impl Learner {
    pub(super) fn new(batch: usize) -> Self {
        Self {
            activity: Activity::Works,
            steps: 0,
            batch: Vec::with_capacity(batch),
            training: false,
            free_since: 0,
            asks_from: 0,
            last_departure: 0,
        }
    }

    /// Returns how many training steps it has made.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn asks(&self) -> bool {
        self.activity == Activity::Asks
    }

    pub(super) fn become_free(&mut self, now: u64) {
        (self.activity, self.free_since, self.last_departure) = (Activity::Asks, now, 0);
    }

    pub(super) fn ask_from(&mut self, at: u64) {
        self.asks_from = at;
    }

    /// Returns when a group that is ready at `ready` can leave for the batch at the earliest.
    pub(super) fn can_take_at(&self, ready: u64) -> u64 {
        ready.max(self.asks_from).max(self.last_departure)
    }

    /// Notes that a group left the buffer.
    pub(super) fn departed(&mut self, now: u64) {
        self.last_departure = now;
    }

    pub(super) fn hold(&mut self, group: u32) {
        self.batch.push(group);
    }

    /// Returns how many groups the batch has so far.
    pub(super) fn held(&self) -> usize {
        self.batch.len()
    }

    /// Stops asking: the batch is full.
    pub(super) fn begin_taking(&mut self) {
        self.activity = Activity::Takes;
    }

    /// Begins a training step; returns its batch, and how long the learner waited for it.
    pub(super) fn train(&mut self, now: u64) -> (Vec<u32>, u64) {
        (self.activity, self.training) = (Activity::Works, true);
        (std::mem::take(&mut self.batch), now - self.free_since)
    }

    /// Makes the training step; returns its number.
    pub(super) fn step(&mut self) -> u64 {
        self.training = false;
        self.steps += 1;
        self.steps
    }

    /// Loses the batch that is being assembled. Returns whether a batch is taken and its training step must be made
    /// again.
    pub(super) fn restart(&mut self) -> bool {
        self.batch.clear();
        self.activity = Activity::Works;
        std::mem::take(&mut self.training)
    }
}
