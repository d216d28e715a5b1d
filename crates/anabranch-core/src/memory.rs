//! A journal in memory, for tests and for runs that are not stored.

use std::collections::HashMap;
use std::path::Path;

use parking_lot::Mutex;

use crate::{AppendReceipt, BoxError, Cursor, Event, Group, GroupId, Journal, JournalError, Seq};

/// Keeps events and payloads in memory. It acknowledges appends at once and keeps no checkpoints.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    first: u64,
    events: Vec<Event>,
    payloads: HashMap<GroupId, Group>,
}

impl MemoryJournal {
    /// Creates an empty journal.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty journal whose first event will be `seq`. It does not have the events before.
    pub fn starting_at(seq: Seq) -> Self {
        Self { state: Mutex::new(State { first: seq.0, ..State::default() }) }
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Event> {
        self.state.lock().events.clone()
    }

    /// The events from `first` on, at most `most`.
    pub fn events_from(&self, first: Seq, most: usize) -> Vec<Event> {
        let state = self.state.lock();
        let before = usize::try_from(first.0.saturating_sub(state.first)).unwrap_or(usize::MAX);
        state.events.iter().skip(before).take(most).cloned().collect()
    }
}

impl Journal for MemoryJournal {
    fn append(&self, events: Vec<Event>, payloads: &[&Group]) -> AppendReceipt {
        let mut state = self.state.lock();
        for event in events {
            let expected = state.first + state.events.len() as u64;
            if event.seq.0 != expected {
                let message = format!("expected event #{expected}, found {}: two processes write the run", event.seq);
                return AppendReceipt::ready(Err(JournalError::new(message)));
            }
            state.events.push(event);
        }
        for group in payloads {
            state.payloads.insert(group.id.clone(), (*group).clone());
        }
        AppendReceipt::ready(Ok(()))
    }

    fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
        let state = self.state.lock();
        state.payloads.get(id).cloned().ok_or_else(|| JournalError::new(format!("the journal has no group {id}")))
    }

    fn checkpoint(
        &self,
        _: &Cursor,
        _: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
    ) -> Result<Option<String>, JournalError> {
        Ok(None)
    }
}
