//! Sealing: a thread beside the writer hands durable parts of the log to a [`Sealer`], which keeps them elsewhere.

mod maintenance;
mod requests;
mod segment;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anabranch_core::{BoxError, Group, GroupId, Seq};

pub(crate) use maintenance::Maintenance;
pub(crate) use requests::SealRequests;
use segment::SEGMENT_GROUPS;
pub use segment::Segment;

use crate::SealError;
use crate::write::Store;

/// Reads the payload of a group from the sealed segments; `None` if they do not hold it.
pub(crate) type ReadSealed = Box<dyn Fn(&GroupId) -> Result<Option<Group>, BoxError> + Send + Sync>;

type Seal = Box<dyn FnMut(&Segment) -> Result<(), BoxError> + Send>;

/// What seals the log. A thread of the log hands it each [`Segment`] once, in order, without gaps.
///
/// When it returns `Ok`, the segment counts as sealed. When it fails, the same events come again at the next seal,
/// possibly with more behind them.
pub struct Sealer {
    next: u64,
    seal: Seal,
    read: Option<ReadSealed>,
}

impl Sealer {
    /// A sealer that continues after `sealed_through`, the last event sealed so far.
    pub fn new(
        sealed_through: Option<Seq>,
        seal: impl FnMut(&Segment) -> Result<(), BoxError> + Send + 'static,
    ) -> Self {
        Self { next: sealed_through.map_or(0, |seq| seq.0 + 1), seal: Box::new(seal), read: None }
    }

    /// Says how to read a payload from the sealed segments, with the same bits as were sealed.
    ///
    /// With it, the log drops a payload once all kept checkpoints, except that of step 0, are past the event that
    /// settled its group, and calls `read` for it afterwards. Without it, the log keeps all payloads.
    #[must_use]
    pub fn reading(
        mut self,
        read: impl Fn(&GroupId) -> Result<Option<Group>, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.read = Some(Box::new(read));
        self
    }

    pub(crate) fn take_reader(&mut self) -> Option<ReadSealed> {
        self.read.take()
    }

    /// How many events are sealed.
    pub(crate) fn sealed(&self) -> u64 {
        self.next
    }

    /// Seals everything appended so far.
    fn seal(&mut self, store: &Store) -> Result<(), SealError> {
        let end = store.appended();
        if self.next >= end {
            return Ok(());
        }
        store.sync(end)?;
        while let Some(segment) = store.segment(self.next, end, SEGMENT_GROUPS)? {
            let sealed = catch_unwind(AssertUnwindSafe(|| (self.seal)(&segment)));
            let sealed = sealed.unwrap_or_else(|_| Err("the sealer panicked".into()));
            let (first, last) = (segment.first, segment.last);
            sealed.map_err(|error| SealError::Refused { first, last, problem: error.to_string() })?;
            self.next = last.0 + 1;
        }
        Ok(())
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("next", &self.next).finish_non_exhaustive()
    }
}
