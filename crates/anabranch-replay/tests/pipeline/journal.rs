//! The journal of the scripted pipelines.

use std::path::Path;
use std::sync::Mutex;

use anabranch_core::{
    AppendReceipt, BoxError, Checkpoint, Cursor, Event, Group, GroupId, Journal, JournalError, MemoryJournal,
};

use super::{mix, ms};

/// A journal in memory that acknowledges late; runs that are to be resumed keep their checkpoints in a directory.
pub struct SlowJournal {
    pub memory: MemoryJournal,
    pub ack: u64,
    pub dir: Option<tempfile::TempDir>,
    pub checkpoints: Mutex<Vec<Checkpoint>>,
}

impl Journal for SlowJournal {
    fn append(&self, events: Vec<Event>, payloads: &[&Group]) -> AppendReceipt {
        let first = events.first().map_or(0, |event| event.seq.0);
        let done = self.memory.append(events, payloads);
        if self.ack == 0 {
            return done;
        }
        let acknowledged = tokio::time::Instant::now() + ms(mix(first) % self.ack);
        AppendReceipt::new(async move {
            tokio::time::sleep_until(acknowledged).await;
            done.await
        })
    }

    fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
        self.memory.payload(id)
    }

    fn checkpoint(
        &self,
        cursor: &Cursor,
        write: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
    ) -> Result<Option<String>, JournalError> {
        let Some(dir) = &self.dir else { return Ok(None) };
        let mut checkpoints = self.checkpoints.lock().unwrap();
        let name = checkpoints.len().to_string();
        let path = dir.path().join(&name);
        std::fs::create_dir(&path).unwrap();
        write(&path).unwrap();
        checkpoints.push(Checkpoint { name: name.clone(), path, cursor: cursor.clone() });
        Ok(Some(name))
    }
}
