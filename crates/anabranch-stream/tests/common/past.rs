//! What a log says of its earlier sessions, folded in the plainest way, and a journal whose checkpoints are kept.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anabranch_core::{
    Ack, BoxError, Checkpoint, Cursor, Digest, Event, EventKind, Group, GroupId, Journal, JournalError, MemoryJournal,
    OpenLease, Past, QueuedGroup, RecordedBatch, Retry, Run, Seq, Stamp, Then,
};
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

    /// The next session of the run.
    pub fn open(self: &Arc<Self>) -> Run {
        let mut past = past_of(&self.memory.events());
        past.checkpoints = self.checkpoints.lock().iter().rev().cloned().collect();
        Run::new("test", self.clone(), past, anabranch_stream::tokio_timer(), [].into(), false)
    }
}

impl Journal for DirJournal {
    fn append(&self, events: Vec<Event>, payloads: &[&Group]) -> Ack {
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

/// Everything that resuming needs.
pub fn past_of(events: &[Event]) -> Past {
    let mut past = Past { next_seq: Seq(events.len() as u64), ..Past::default() };
    let mut leased: Vec<OpenLease> = Vec::new();
    let mut completed: BTreeMap<GroupId, Seq> = BTreeMap::new();
    let mut admitted: BTreeMap<GroupId, Seq> = BTreeMap::new();
    let mut order: Vec<GroupId> = Vec::new();
    for event in events {
        past.stats.count(&event.kind);
        past.session = event.session + 1;
        match &event.kind {
            EventKind::Leased { id, position } => {
                past.position = past.position.max(position.map_or(0, |position| position + 1));
                past.retries.retain(|retry| retry.lease != *id);
                leased.push(OpenLease { id: id.clone(), leased: event.seq, reissues: 0 });
            }
            EventKind::Reissued { id, reissue } => {
                let lease = leased.iter_mut().find(|lease| lease.id == *id).unwrap();
                (lease.leased, lease.reissues) = (event.seq, *reissue);
            }
            EventKind::Completed { id, .. } => {
                completed.insert(id.clone(), event.seq);
                order.push(id.clone());
            }
            EventKind::Admitted { id } => {
                admitted.insert(id.clone(), event.seq);
            }
            EventKind::Excluded { id, then, .. } => {
                leased.retain(|lease| lease.id != *id);
                if let Then::Retry(lease) = then {
                    past.retries.push_back(Retry { lease: lease.clone(), excluded: event.seq, at: 0 });
                }
            }
            EventKind::BatchTaken { step, version, groups, digest } => {
                leased.retain(|lease| groups.iter().all(|group| group.id != lease.id));
                past.batches.push(RecordedBatch {
                    taken: event.seq,
                    step: *step,
                    version: *version,
                    groups: groups.clone(),
                    digest: *digest,
                    stepped: None,
                });
            }
            EventKind::Stepped { step, updates, weights, .. } => {
                past.clock.complete(*step, *updates);
                past.batches.iter_mut().find(|batch| batch.step == *step).unwrap().stepped = Some(*weights);
            }
            EventKind::Publishing { version, .. } => past.clock.begin(*version),
            EventKind::Published { version, step, weights, .. } => {
                past.clock.install(*version, *step, Stamp::earlier(event.seq));
                past.published = Some((*version, *step, *weights));
            }
            EventKind::Configured { operator, settings } => {
                past.settings.insert(operator.clone(), settings.clone());
            }
            EventKind::RunClosed { .. } => past.closed = true,
            _ => {}
        }
    }
    order.sort_by_key(|id| (admitted.get(id).copied().unwrap_or(Seq(u64::MAX)), completed[id]));
    let place = |id: &GroupId| leased.iter().find(|lease| lease.id == *id).map(|lease| lease.leased);
    past.queued = order
        .iter()
        .filter_map(|id| {
            let admitted = admitted.get(id).copied();
            Some(QueuedGroup { id: id.clone(), leased: place(id)?, completed: completed[id], admitted })
        })
        .collect();
    past.open = leased.into_iter().filter(|lease| !completed.contains_key(&lease.id)).collect();
    past
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
