//! A journal whose checkpoints are kept, so that a run in memory has sessions; and what its log says was trained.

use std::path::Path;
use std::sync::Arc;

use anabranch_core::{
    AppendReceipt, BoxError, Checkpoint, Cursor, Digest, Event, EventKind, Group, GroupId, Journal, JournalError,
    MemoryJournal, ResumeState,
};
use anabranch_metrics::Meter;
use anabranch_stream::Run;
use parking_lot::Mutex;

/// Events and payloads in memory, checkpoints in a directory.
pub struct DirJournal {
    pub memory: MemoryJournal,
    dir: tempfile::TempDir,
    checkpoints: Mutex<Vec<Checkpoint>>,
}

impl DirJournal {
    pub fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        Arc::new(Self { memory: MemoryJournal::new(), dir, checkpoints: Mutex::default() })
    }

    /// What the next session finds.
    pub fn past(&self) -> ResumeState {
        let mut past = anabranch_core::resume(self.memory.events()).unwrap();
        past.checkpoints = self.checkpoints.lock().iter().rev().cloned().collect();
        past
    }

    /// The next session of the run.
    pub fn open(self: &Arc<Self>) -> Run {
        Run::builder("test")
            .journal(self.clone())
            .resume(self.past(), Meter::of(&self.memory.events()))
            .clock(anabranch_stream::tokio_clock())
            .open()
            .unwrap()
    }
}

impl Journal for DirJournal {
    fn append(&self, events: Vec<Event>, payloads: &[&Group]) -> AppendReceipt {
        self.memory.append(events, payloads)
    }

    fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
        self.memory.payload(id)
    }

    fn checkpoint(
        &self,
        cursor: &Cursor,
        write: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
    ) -> Result<Option<String>, JournalError> {
        let mut checkpoints = self.checkpoints.lock();
        let name = format!("{:03}-step-{}", checkpoints.len(), cursor.step);
        let path = self.dir.path().join(&name);
        std::fs::create_dir(&path).unwrap();
        write(&path).map_err(|error| JournalError::new(error.to_string()))?;
        checkpoints.push(Checkpoint { name: name.clone(), path, cursor: cursor.clone() });
        Ok(Some(name))
    }
}

/// The batches of a log, and the digest of the weights after the last step.
pub fn trained(events: &[Event]) -> (Vec<Vec<GroupId>>, Option<Digest>) {
    let mut batches = Vec::new();
    let mut weights = None;
    for event in events {
        match &event.kind {
            EventKind::BatchTaken { groups, .. } => {
                batches.push(groups.iter().map(|group| group.id.clone()).collect());
            }
            EventKind::Stepped { weights: after, .. } => weights = Some(*after),
            _ => {}
        }
    }
    (batches, weights)
}
