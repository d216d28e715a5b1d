//! The writer: appends are queued in order, one thread commits all that is ready as one batch, then acknowledges.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anabranch_core::{AppendReceipt, BoxError, Cursor, Event, Group, GroupId, Journal, JournalError, Seq};
use futures::executor::block_on;
use parking_lot::{Condvar, Mutex, RwLock};
use rocksdb::WriteBatch;

use crate::checkpoint::Checkpoints;
use crate::codec::Heads;
use crate::database::Database;
use crate::encoded::{self, Encoded};
use crate::head::HeadFile;
use crate::queue::{Acknowledged, Pending, Queue, Waiter};
use crate::seal::{ReadSealed, SealRequests};
use crate::{Durability, ReadError, SealError, Segment, failpoint};

/// The journal of a run on disk.
///
/// [`append`](Journal::append) encodes and queues; it never waits for the disk. The queue has no bound of its own,
/// since every operator that completes a group waits for its acknowledgement before it passes the group on: it holds at
/// most the payloads of the groups that the pipeline allows outside the buffer.
pub(crate) struct Store {
    run: PathBuf,
    durability: Durability,
    database: RwLock<Option<Database>>,
    queue: Mutex<Queue>,
    queued: Condvar,
    progress: Mutex<Progress>,
    progressed: Condvar,
    pub(crate) checkpoints: Checkpoints,
    /// Reads payloads that were dropped.
    sealed: Option<ReadSealed>,
    pub(crate) seals: SealRequests,
}

/// The commit before.
#[derive(Default)]
struct Last {
    records: usize,
    took: Duration,
}

/// How many events are committed, and how many of these survive a power loss.
struct Progress {
    written: u64,
    synced: u64,
    failure: Option<JournalError>,
}

impl Store {
    pub(crate) fn new(
        run: &Path,
        durability: Durability,
        database: Database,
        heads: Heads,
        checkpoints: Checkpoints,
        sealed: Option<ReadSealed>,
    ) -> Self {
        // Opening a database moves what its write-ahead log held into synced files.
        let progress = Progress { written: heads.next, synced: heads.next, failure: None };
        Self {
            run: run.to_owned(),
            durability,
            database: RwLock::new(Some(database)),
            queue: Mutex::new(Queue::new(heads)),
            queued: Condvar::new(),
            progress: Mutex::new(progress),
            progressed: Condvar::new(),
            checkpoints,
            sealed,
            seals: SealRequests::default(),
        }
    }

    /// Whether dropped payloads can be read.
    pub(crate) fn reads_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// How many events were appended.
    pub(crate) fn appended(&self) -> u64 {
        self.queue.lock().heads.next
    }

    /// How many events are committed.
    pub(crate) fn written(&self) -> u64 {
        self.progress.lock().written
    }

    /// Waits until the first `end` events are committed.
    pub(crate) fn wait_written(&self, end: u64) -> Result<(), JournalError> {
        let mut progress = self.progress.lock();
        while progress.written < end {
            if let Some(failure) = &progress.failure {
                return Err(failure.clone());
            }
            self.progressed.wait(&mut progress);
        }
        Ok(())
    }

    /// Waits until the first `end` events survive a power loss.
    pub(crate) fn sync(&self, end: u64) -> Result<(), JournalError> {
        self.wait_written(end)?;
        let written = {
            let progress = self.progress.lock();
            if let Some(failure) = &progress.failure {
                return Err(failure.clone());
            }
            if progress.synced >= end {
                return Ok(());
            }
            progress.written
        };
        let synced = self.with_database(Database::sync)?.map_err(|error| error.to_string());
        let synced = synced.and_then(|()| failpoint::at("synced").map_err(|error| error.to_string()));
        if let Err(error) = synced {
            return Err(self.poison("syncing", &error));
        }
        let mut progress = self.progress.lock();
        progress.synced = progress.synced.max(written);
        Ok(())
    }

    /// A part of what is committed, for sealing: at most `groups` groups, and nothing from event `end` on.
    pub(crate) fn segment(&self, first: u64, end: u64, groups: usize) -> Result<Option<Segment>, SealError> {
        Ok(self.with_database(|database| database.segment(Seq(first), Seq(end), groups, None))??)
    }

    /// The events appended from `first` on, at most `most`.
    pub(crate) fn events(&self, first: Seq, most: usize) -> Result<Vec<Event>, JournalError> {
        let end = self.appended();
        if first.0 >= end {
            return Ok(Vec::new());
        }
        self.wait_written(end)?;
        let most = most.min(usize::try_from(end - first.0).unwrap_or(usize::MAX));
        let events = self.with_database(|database| database.events(first).take(most).collect::<Result<_, _>>())?;
        events.map_err(|error: ReadError| JournalError::caused(error.to_string(), error))
    }

    /// The writer's loop: ends when the store is closing and the queue is empty, or after a failure.
    pub(crate) fn write_until_closed(&self, head: &HeadFile) {
        let mut sealable = self.queue.lock().heads.completed;
        let mut last = Last::default();
        while let Some(ready) = self.next_ready(&last) {
            let begun = Instant::now();
            let (mut waiters, mut heads) = (Vec::new(), Heads::default());
            let batches = ready.into_iter().map(|pending| {
                waiters.extend(pending.waiters);
                heads = pending.heads;
                (pending.batch, pending.heads)
            });
            let batches = batches.collect();
            let result = self.commit(batches, heads, head).map_err(|problem| self.poison("writing", &problem));
            last = Last { records: waiters.len(), took: begun.elapsed() };
            let failed = result.is_err();
            acknowledge(waiters, &result);
            if failed {
                return;
            }
            self.seals.completed(heads.completed - sealable);
            sealable = heads.completed;
        }
    }

    /// Waits for something to write. Where every commit is synced, that is all that is queued, and whoever waited for the
    /// last one is given a moment, a part of what a sync takes, to come again: else the first of them would be synced
    /// alone and the others wait for it.
    fn next_ready(&self, last: &Last) -> Option<Vec<Pending>> {
        let mut queue = self.queue.lock();
        while queue.len() == 0 && !queue.closing {
            self.queued.wait(&mut queue);
        }
        if self.durability == Durability::Sync {
            let deadline = Instant::now() + last.took / 8;
            while queue.len() < last.records && !queue.closing {
                if self.queued.wait_until(&mut queue, deadline).timed_out() {
                    break;
                }
            }
            return queue.pop_all();
        }
        queue.pop().map(|next| vec![next])
    }

    /// Commits batches, each with the heads that it brings the log to, and says in HEAD how far that is.
    fn commit(&self, batches: Vec<(WriteBatch, Heads)>, heads: Heads, head: &HeadFile) -> Result<(), String> {
        let (sync, last) = (self.durability == Durability::Sync, batches.len());
        failpoint::at("commit").map_err(|error| error.to_string())?;
        let committed = self.with_database(|database| {
            batches.into_iter().zip(1..).try_for_each(|((mut batch, heads), nth)| {
                database.put_heads(&mut batch, heads);
                // A sync covers every write before it.
                database.commit(batch, sync && nth == last)
            })
        });
        committed.map_err(|error| error.message)?.map_err(|error| error.to_string())?;
        let unsynced = {
            let mut progress = self.progress.lock();
            progress.written = heads.next;
            if sync {
                progress.synced = heads.next;
            }
            self.progressed.notify_all();
            progress.written - progress.synced
        };
        let written = failpoint::at("committed").and_then(|()| head.write(heads.next, unsynced));
        let written = written.and_then(|()| failpoint::at("head-written"));
        written.map_err(|error| format!("{}: {error}", head.path().display()))
    }

    /// Refuses everything from now on, also what is queued: after an error it is unknown what reached the disk.
    pub(crate) fn poison(&self, doing: &str, problem: &dyn fmt::Display) -> JournalError {
        let failure = JournalError::new(format!(
            "{doing} the log in {} failed: {problem}; nothing more is accepted: mend the disk (is it full?) and open the \
             run again, it resumes from what was acknowledged",
            self.run.display()
        ));
        let acks = {
            let mut queue = self.queue.lock();
            let refusal = failure.clone();
            queue.refusal = Some(refusal);
            queue.abandon()
        };
        let failure = self.progress.lock().failure.get_or_insert(failure).clone();
        self.progressed.notify_all();
        acknowledge(acks, &Err(failure.clone()));
        tracing::error!(error = %failure, "the log is poisoned");
        failure
    }

    /// Refuses new appends; what is queued is still written.
    pub(crate) fn stop_accepting(&self) {
        let mut queue = self.queue.lock();
        queue.closing = true;
        queue.refusal.get_or_insert_with(|| closed(&self.run));
        self.queued.notify_all();
    }

    /// The failure that poisoned the log, if one did.
    pub(crate) fn failure(&self) -> Option<JournalError> {
        self.progress.lock().failure.clone()
    }

    /// Closes the database, so that the directory can be opened again. Writer and sealer must have ended.
    pub(crate) fn close_database(&self) {
        drop(self.database.write().take());
    }

    pub(crate) fn with_database<T>(&self, read: impl FnOnce(&Database) -> T) -> Result<T, JournalError> {
        self.database.read().as_ref().map(read).ok_or_else(|| closed(&self.run))
    }

    /// Queues a record in its place.
    fn enqueue(&self, first: Seq, record: &Encoded) -> Result<Acknowledged, JournalError> {
        let mut queue = self.queue.lock();
        if let Some(refusal) = &queue.refusal {
            return Err(refusal.clone());
        }
        let expected = Seq(queue.heads.next);
        if first != expected {
            let problem = format!("event {first} is not the expected {expected}: the run has two writers");
            return Err(JournalError::new(problem));
        }
        self.with_database(|database| {
            let batch = queue.batch(record.bytes());
            for (key, value) in &record.events {
                database.put_event(batch, key, value);
            }
            for (key, value) in &record.groups {
                database.put_group(batch, key, value);
            }
        })?;
        if let Some(completing) = &mut queue.completing {
            completing.extend(record.groups.iter().map(|(key, _)| key.clone()));
        }
        queue.heads.next += record.events.len() as u64;
        queue.heads.completed += record.groups.len() as u64;
        let acknowledged = queue.commit();
        drop(queue);
        self.queued.notify_one();
        Ok(acknowledged)
    }

    /// Begins to note which payloads are appended, for [`drop_payloads`](Self::drop_payloads); gives how many events were
    /// appended before.
    pub(crate) fn note_completions(&self) -> u64 {
        let mut queue = self.queue.lock();
        queue.completing = Some(HashSet::new());
        queue.heads.next
    }

    /// Ends the noting.
    pub(crate) fn forget_completions(&self) {
        self.queue.lock().completing = None;
    }

    /// Deletes the payloads under `keys`, except those appended since they began to be noted, and records that this is
    /// done for all groups settled before `before`. Blocks.
    pub(crate) fn drop_payloads(&self, keys: &HashSet<Vec<u8>>, before: Seq) -> Result<(), JournalError> {
        let deleted = {
            let mut queue = self.queue.lock();
            let again = queue.completing.take().unwrap_or_default();
            let delete = |batch: &mut WriteBatch| {
                self.with_database(|database| {
                    keys.difference(&again).for_each(|key| database.delete_group(batch, key));
                    database.put_dropped(batch, before);
                })
            };
            match &queue.refusal {
                // The writer may have ended. Nothing is appended any more that this could delete.
                Some(_) if queue.closing => {
                    let mut batch = WriteBatch::default();
                    delete(&mut batch)?;
                    drop(queue);
                    return self
                        .with_database(|database| database.commit(batch, false))?
                        .map_err(|error| self.poison("dropping payloads of", &error));
                }
                Some(refusal) => return Err(refusal.clone()),
                None => {
                    delete(queue.batch(keys.iter().map(|key| key.len() + encoded::PREFIX).sum()))?;
                    queue.commit()
                }
            }
        };
        self.queued.notify_one();
        block_on(deleted).unwrap_or_else(|_| Err(closed(&self.run)))
    }
}

impl Journal for Store {
    fn append(&self, events: Vec<Event>, payloads: &[&Group]) -> AppendReceipt {
        let Some(first) = events.first().map(|event| event.seq) else { return AppendReceipt::ready(Ok(())) };
        let io = |error: std::io::Error| JournalError::caused(error.to_string(), error);
        let record = failpoint::of("append", &events).map_err(io).and_then(|()| Encoded::new(&events, payloads));
        // A record that is missing leaves a hole that nothing may be built on, a checkpoint least of all.
        let queued = record.map_err(|error| self.poison("appending to", &error));
        let queued = queued.and_then(|record| self.enqueue(first, &record));
        let queued = queued.and_then(|queued| failpoint::of("appended", &events).map_err(io).map(|()| queued));
        match queued {
            Ok(acknowledged) => {
                let run = self.run.clone();
                AppendReceipt::new(async move { acknowledged.await.unwrap_or_else(|_| Err(closed(&run))) })
            }
            Err(error) => AppendReceipt::ready(Err(error)),
        }
    }

    fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
        let read = || self.with_database(|database| database.group(id));
        let sealed = || self.with_database(|database| database.group_or_sealed(id, self.sealed.as_ref()));
        let group = match read()? {
            // It may still be queued.
            Err(ReadError::Missing { .. }) => {
                self.wait_written(self.appended())?;
                sealed()?
            }
            group => group,
        };
        group.map_err(|error| JournalError::caused(error.to_string(), error))
    }

    fn checkpoint(
        &self,
        cursor: &Cursor,
        write: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
    ) -> Result<Option<String>, JournalError> {
        // It relies on everything recorded before it; more than its batch, which can only notice more damage.
        let relied_on = self.appended();
        let name = self.checkpoints.write(cursor, relied_on, write, &mut || self.sync(relied_on))?;
        self.seals.due();
        Ok(Some(name))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("run", &self.run).finish_non_exhaustive()
    }
}

/// Tells those who wait. Some may no longer.
fn acknowledge(acks: Vec<Waiter>, result: &Result<(), JournalError>) {
    for ack in acks {
        drop(ack.send(result.clone()));
    }
}

fn closed(run: &Path) -> JournalError {
    let problem = "was closed with its `RunLog`: keep that until the pipeline has ended";
    JournalError::new(format!("the log in {} {problem}", run.display()))
}
