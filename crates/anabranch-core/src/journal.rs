//! The journal trait: where events go.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use serde::{Deserialize, Serialize};

use crate::{BoxError, Digest, Event, Group, GroupId, JournalError, Seq, TrainingStep, Version};

/// What a checkpoint relies on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Completed training steps.
    pub step: TrainingStep,
    /// Optimizer updates.
    pub updates: u64,
    /// The `BatchTaken` of the last step; nothing before the first.
    pub taken: Option<Seq>,
    /// Digest of that batch.
    pub batch: Option<Digest>,
    /// Digest of the weights.
    pub weights: Digest,
    /// The version last published, and its training step.
    pub published: Option<(Version, TrainingStep)>,
}

/// The future of an append: ready when it is durable as the journal's mode promises. Dropping it cancels nothing;
/// clones wait for the same append.
#[derive(Clone)]
pub struct AppendReceipt(Shared<BoxFuture<'static, Result<(), JournalError>>>);

impl AppendReceipt {
    /// An append that ends as `done` does.
    pub fn new(done: impl Future<Output = Result<(), JournalError>> + Send + 'static) -> Self {
        Self(done.boxed().shared())
    }

    /// An append that has ended.
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

/// Where the events of a run go.
pub trait Journal: Send + Sync + 'static {
    /// Appends `events` (their `seq` set, dense) and the `payloads` of those among them that complete a group, all or
    /// none. The order is fixed at the call, which never waits for the disk longer than encoding takes.
    fn append(&self, events: Vec<Event>, payloads: &[&Group]) -> AppendReceipt;

    /// Reads a completed group back: as it was logged.
    ///
    /// # Errors
    /// Where it is not there, or damaged.
    fn payload(&self, id: &GroupId) -> Result<Group, JournalError>;

    /// Makes a checkpoint durable: `write` fills an empty directory. Blocks. Gives the checkpoint's name; nothing where
    /// this journal keeps none.
    ///
    /// # Errors
    /// Where it could not be written; checkpoints before it are untouched.
    fn checkpoint(
        &self,
        cursor: &Cursor,
        write: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
    ) -> Result<Option<String>, JournalError>;
}
