//! The trait of journals, which store events.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use serde::{Deserialize, Serialize};

use crate::{BoxError, Digest, Event, Group, GroupId, JournalError, Seq, TrainingStep, Version};

/// The point of the run that a checkpoint belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Completed training steps.
    pub step: TrainingStep,
    /// Optimizer updates.
    pub updates: u64,
    /// The `BatchTaken` record of the last step; `None` before the first step.
    pub taken: Option<Seq>,
    /// Digest of that batch.
    pub batch: Option<Digest>,
    /// Digest of the weights.
    pub weights: Digest,
    /// The version published last, and its training step.
    pub published: Option<(Version, TrainingStep)>,
}

/// The future of an append. It is ready when the records are durable in the journal's mode. Dropping it cancels
/// nothing; clones wait for the same append.
#[derive(Clone)]
pub struct AppendReceipt(Shared<BoxFuture<'static, Result<(), JournalError>>>);

impl AppendReceipt {
    /// Creates a receipt that is ready when `done` is.
    pub fn new(done: impl Future<Output = Result<(), JournalError>> + Send + 'static) -> Self {
        Self(done.boxed().shared())
    }

    /// Creates a receipt that is ready.
    pub fn ready(result: Result<(), JournalError>) -> Self {
        Self::new(std::future::ready(result))
    }
}

impl Future for AppendReceipt {
    type Output = Result<(), JournalError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx)
    }
}

impl fmt::Debug for AppendReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AppendReceipt").field(&self.0.peek()).finish()
    }
}

/// Stores the events of a run.
pub trait Journal: Send + Sync + 'static {
    /// Appends `events` (with dense `seq`) and the `payloads` of the groups that they complete, all or none. The order
    /// is fixed by the call. The call encodes the records but does not wait for the disk.
    fn append(&self, events: Vec<Event>, payloads: &[&Group]) -> AppendReceipt;

    /// Reads a completed group back, exactly as it was logged.
    ///
    /// # Errors
    /// Returns an error if the group is missing or damaged.
    fn payload(&self, id: &GroupId) -> Result<Group, JournalError>;

    /// Writes a durable checkpoint: `write` fills an empty directory. Blocks. Returns the name of the checkpoint, or
    /// `None` if this journal keeps no checkpoints.
    ///
    /// # Errors
    /// Returns an error if the checkpoint cannot be written. Earlier checkpoints stay untouched.
    fn checkpoint(
        &self,
        cursor: &Cursor,
        write: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
    ) -> Result<Option<String>, JournalError>;
}
