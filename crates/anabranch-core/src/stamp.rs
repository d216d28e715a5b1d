//! The times of events and the reasons for them, from which a schedule can be replayed.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// The place of an event in the log: dense, from 0.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A moment of a run. Its name lets a replay compute when it would happen under other settings.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Moment {
    /// An event of the log.
    Event(Seq),
    /// A sample of the group leased at `lease` ended. The group's `Completed` record has the time.
    SampleEnd {
        /// The `Leased` or `Reissued` record of the group.
        lease: Seq,
        /// The index of the sample in its group, from 0.
        sample: u32,
    },
    /// A group left the buffer. Its `BatchTaken` or `Excluded` record has the time.
    Dequeued {
        /// The `Admitted` record of the group.
        admitted: Seq,
    },
    /// The last reward of a group was known. The group's `Completed` record has the time.
    Scored {
        /// The `Leased` or `Reissued` record of the group.
        lease: Seq,
    },
}

impl Moment {
    /// The event, if it is one.
    pub fn event(self) -> Option<Seq> {
        if let Self::Event(seq) = self { Some(seq) } else { None }
    }

    /// The record that names the moment: the event itself, or the lease or admission that it follows.
    pub fn seq(self) -> Seq {
        match self {
            Self::Event(seq)
            | Self::SampleEnd { lease: seq, .. }
            | Self::Dequeued { admitted: seq }
            | Self::Scored { lease: seq } => seq,
        }
    }
}

/// A moment and its time, in nanoseconds since the session's start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The moment.
    pub moment: Moment,
    /// The time in nanoseconds since the start of the session; 0 for moments of earlier sessions.
    pub at: u64,
}

impl Stamp {
    /// Creates the stamp of a moment of an earlier session. It can enable an event but adds no delay.
    pub fn earlier(seq: Seq) -> Self {
        Self { moment: Moment::Event(seq), at: 0 }
    }
}

/// Why an event had to wait for another.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// The run was opened or resumed.
    Opened,
    /// A generation slot became free.
    Slot,
    /// The exclusion that queued the retry.
    Retry,
    /// Room in the buffer.
    Room,
    /// A batch asked for more groups (the synchronous schedule).
    Demand,
    /// The group was leased.
    Leased,
    /// The group was completed.
    Completed,
    /// The group was admitted.
    Admitted,
    /// The learner became free.
    LearnerFree,
    /// The batch was taken.
    Taken,
    /// The training step was made.
    Stepped,
    /// The publication began.
    Publishing,
    /// The new weights were installed.
    Installed,
    /// Submissions were reopened after a hold.
    Reopened,
    /// The pacing bound let one more lease out: a group was excluded, or weights of a later step were installed.
    Pace,
}

/// A reason why an event had to wait.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enabler {
    /// Why the event had to wait.
    pub cause: Cause,
    /// The moment that it waited for.
    pub moment: Moment,
}

/// The clock of a session, in nanoseconds since its start. Pipelines on tokio use a clock that follows tokio's time, so
/// that tests can use paused time.
#[derive(Clone)]
pub struct SessionClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl SessionClock {
    /// Creates a clock from `now`, which returns nanoseconds since the session's start and never goes back.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Creates a clock that starts now and follows the operating system's monotonic clock.
    pub fn monotonic() -> Self {
        let start = Instant::now();
        Self::new(move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Nanoseconds since the session's start.
    pub fn now(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for SessionClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionClock").field(&self.now()).finish()
    }
}
