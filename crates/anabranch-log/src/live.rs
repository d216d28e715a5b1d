//! Reading a log while its writer has it open.

use std::sync::Arc;

use anabranch_core::{Event, Group, GroupId, Journal, JournalError, MemoryJournal, Seq};

use crate::write::Store;

/// Reads the log of an open run, beside its writer: see [`EventLog::live`](crate::EventLog::live). Reading blocks. It may
/// outlive the run: once that is closed, what is asked for is refused.
#[derive(Clone, Debug)]
pub struct LiveLog(Kept);

#[derive(Clone, Debug)]
enum Kept {
    OnDisk(Arc<Store>),
    InMemory(Arc<MemoryJournal>),
}

impl LiveLog {
    pub(crate) fn on_disk(store: Arc<Store>) -> Self {
        Self(Kept::OnDisk(store))
    }

    pub(crate) fn in_memory(journal: Arc<MemoryJournal>) -> Self {
        Self(Kept::InMemory(journal))
    }

    /// The events recorded from `first` on, at most `most`, in order; none if the log ends there.
    ///
    /// # Errors
    /// If the run is closed and had recorded more, the log is poisoned, or an event is missing or damaged.
    pub fn events(&self, first: Seq, most: usize) -> Result<Vec<Event>, JournalError> {
        match &self.0 {
            Kept::OnDisk(store) => store.events(first, most),
            Kept::InMemory(journal) => Ok(journal.events_from(first, most)),
        }
    }

    /// The payload of a completed group, in the log or in the sealed segments.
    ///
    /// # Errors
    /// If it is not there, it is damaged, or the run is closed.
    pub fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
        match &self.0 {
            Kept::OnDisk(store) => store.payload(id),
            Kept::InMemory(journal) => journal.payload(id),
        }
    }
}
