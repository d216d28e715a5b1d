//! What waits for the writer: records in their order, in batches of a bounded size.

use std::collections::{HashSet, VecDeque};

use anabranch_core::JournalError;
use futures::channel::oneshot;
use rocksdb::WriteBatch;

use crate::codec::Heads;

/// Room of a batch; what does not fit goes into the next one. Larger ones gain nothing: they only fall out of the caches
/// between the threads.
const BATCH: usize = 256 << 10;

/// Room for what the writer adds, and for the batch's own header.
const MARGIN: usize = 256;

/// Where somebody waits for a commit.
pub(crate) type Waiter = oneshot::Sender<Result<(), JournalError>>;
/// Ready once it has ended.
pub(crate) type Acknowledged = oneshot::Receiver<Result<(), JournalError>>;

pub(crate) struct Queue {
    batches: VecDeque<Pending>,
    pub(crate) heads: Heads,
    /// Keys of payloads appended since somebody began to look what may be dropped.
    pub(crate) completing: Option<HashSet<Vec<u8>>>,
    /// Why nothing is accepted any more.
    pub(crate) refusal: Option<JournalError>,
    /// Whether the writer ends once the queue is empty.
    pub(crate) closing: bool,
}

/// What is committed at once.
pub(crate) struct Pending {
    pub(crate) batch: WriteBatch,
    /// What it may grow to.
    room: usize,
    pub(crate) waiters: Vec<Waiter>,
    /// What the log comes to with it.
    pub(crate) heads: Heads,
}

impl Queue {
    pub(crate) fn new(heads: Heads) -> Self {
        Self { batches: VecDeque::new(), heads, completing: None, refusal: None, closing: false }
    }

    /// The batch that the next record, of about `bytes`, goes into.
    pub(crate) fn batch(&mut self, bytes: usize) -> &mut WriteBatch {
        if self.batches.back().is_none_or(|pending| pending.batch.size_in_bytes() + bytes > pending.room) {
            // In one piece: a batch that grows is copied each time it does.
            let room = bytes.max(BATCH);
            let batch = WriteBatch::with_capacity_bytes(room + MARGIN);
            self.batches.push_back(Pending { batch, room, waiters: Vec::new(), heads: self.heads });
        }
        let last = self.batches.len() - 1;
        &mut self.batches[last].batch
    }

    /// Ends a record that was put into [`batch`](Self::batch).
    pub(crate) fn commit(&mut self) -> Acknowledged {
        let (waiter, acknowledged) = oneshot::channel();
        if let Some(pending) = self.batches.back_mut() {
            pending.heads = self.heads;
            pending.waiters.push(waiter);
        }
        acknowledged
    }

    /// What is to be committed next.
    pub(crate) fn pop(&mut self) -> Option<Pending> {
        self.batches.pop_front()
    }

    /// Takes everything that waits.
    pub(crate) fn pop_all(&mut self) -> Option<Vec<Pending>> {
        (!self.batches.is_empty()).then(|| self.batches.drain(..).collect())
    }

    /// How many records wait.
    pub(crate) fn len(&self) -> usize {
        self.batches.iter().map(|pending| pending.waiters.len()).sum()
    }

    /// Lets go of everything; gives those who wait for it.
    pub(crate) fn abandon(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.batches).into_iter().flat_map(|pending| pending.waiters).collect()
    }
}
