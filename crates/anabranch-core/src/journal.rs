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
///
/// A complete journal that writes each event as a line of JSON. It keeps the groups in memory and no checkpoints, so a
/// run can be read from the lines but not resumed:
///
/// ```
/// use std::collections::HashMap;
/// use std::io::{self, Write};
/// use std::path::Path;
/// use std::sync::{Mutex, PoisonError};
///
/// use anabranch_core::{
///     AppendReceipt, BoxError, Cursor, Event, EventKind, Group, GroupId, Journal, JournalError, Seq,
/// };
///
/// struct JsonLines<W>(Mutex<State<W>>);
///
/// struct State<W> {
///     lines: W,
///     groups: HashMap<GroupId, Group>,
///     /// The result of the last write. After an error nothing more is written.
///     written: Result<(), JournalError>,
/// }
///
/// impl<W: Write> State<W> {
///     fn write(&mut self, events: &[Event], payloads: &[&Group]) -> io::Result<()> {
///         let mut text = Vec::new();
///         for event in events {
///             serde_json::to_writer(&mut text, event)?;
///             text.push(b'\n');
///         }
///         self.groups.extend(payloads.iter().map(|&group| (group.id.clone(), group.clone())));
///         self.lines.write_all(&text)
///     }
/// }
///
/// impl<W: Write + Send + 'static> Journal for JsonLines<W> {
///     fn append(&self, events: Vec<Event>, payloads: &[&Group]) -> AppendReceipt {
///         // The lock keeps the lines in the order of the calls.
///         let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         if state.written.is_ok() {
///             let written = state.write(&events, payloads);
///             state.written = written.map_err(|error| JournalError::caused("cannot write the events", error));
///         }
///         AppendReceipt::ready(state.written.clone())
///     }
///
///     fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
///         let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         state.groups.get(id).cloned().ok_or_else(|| JournalError::new(format!("the journal has no group {id}")))
///     }
///
///     fn checkpoint(
///         &self,
///         _: &Cursor,
///         _: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
///     ) -> Result<Option<String>, JournalError> {
///         Ok(None)
///     }
/// }
///
/// let journal = JsonLines(Mutex::new(State { lines: Vec::new(), groups: HashMap::new(), written: Ok(()) }));
/// let held = Event { seq: Seq(0), session: 1, at: 0, wall_ms: 0, enablers: vec![], delay: 0, kind: EventKind::Held };
/// futures::executor::block_on(journal.append(vec![held.clone()], &[]))?;
/// let lines = journal.0.into_inner().unwrap().lines;
/// assert_eq!(serde_json::from_slice::<Event>(&lines)?, held);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
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
