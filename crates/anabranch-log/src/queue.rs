//! What waits for the writer: records in their order, in batches of a bounded size.

use std::collections::{HashSet, VecDeque};

use anabranch_core::JournalError;
use futures::channel::oneshot;
use rocksdb::WriteBatch;

use crate::codec::Heads;

/// From this size on, what is appended goes into the next batch: beyond it a batch gains nothing and only grows.
const BATCH: usize = 1 << 20;

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
    pub(crate) waiters: Vec<Waiter>,
    /// What the log comes to with it.
    pub(crate) heads: Heads,
}

impl Queue {
    pub(crate) fn new(heads: Heads) -> Self {
        Self { batches: VecDeque::new(), heads, completing: None, refusal: None, closing: false }
    }

    /// The batch that the next record goes into.
    pub(crate) fn batch(&mut self) -> &mut WriteBatch {
        if self.batches.back().is_none_or(|pending| pending.batch.size_in_bytes() >= BATCH) {
            let batch = WriteBatch::default();
            self.batches.push_back(Pending { batch, waiters: Vec::new(), heads: self.heads });
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

    /// How many records wait.
    pub(crate) fn len(&self) -> usize {
        self.batches.iter().map(|pending| pending.waiters.len()).sum()
    }

    /// Lets go of everything; gives those who wait for it.
    pub(crate) fn abandon(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.batches).into_iter().flat_map(|pending| pending.waiters).collect()
    }
}
