//! The part of a log that no segment has yet, as row streams read it.

use std::fmt;

use anabranch_core::{BoxError, Event, Group, GroupId, Seq};

type ReadEvents = Box<dyn Fn(Seq, usize) -> Result<Vec<Event>, BoxError> + Send>;
type ReadPayload = Box<dyn Fn(&GroupId) -> Result<Group, BoxError> + Send>;

/// How the log behind the segments is read. Both calls may block.
pub struct Unsealed {
    events: ReadEvents,
    payload: ReadPayload,
}

impl Unsealed {
    /// Of two functions. `events` gives the events from a seq on, at most as many as asked for, and none if the log ends
    /// there. `payload` gives the payload of a completed group.
    pub fn new(
        events: impl Fn(Seq, usize) -> Result<Vec<Event>, BoxError> + Send + 'static,
        payload: impl Fn(&GroupId) -> Result<Group, BoxError> + Send + 'static,
    ) -> Self {
        Self { events: Box::new(events), payload: Box::new(payload) }
    }

    pub(crate) fn events(&self, first: Seq, most: usize) -> Result<Vec<Event>, BoxError> {
        (self.events)(first, most)
    }

    pub(crate) fn payload(&self, id: &GroupId) -> Result<Group, BoxError> {
        (self.payload)(id)
    }
}

impl fmt::Debug for Unsealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsealed").finish_non_exhaustive()
    }
}
