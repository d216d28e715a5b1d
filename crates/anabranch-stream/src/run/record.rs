//! Events that are being written to the log.

use anabranch_core::{AppendReceipt, Cause, EventKind, Moment, Seq, Stamp};

/// An event to be recorded.
#[derive(Debug)]
pub struct Draft {
    /// The kind of the event.
    pub kind: EventKind,
    /// The events that made it possible.
    pub enablers: Vec<(Cause, Stamp)>,
    /// Set if the previous event of the same record made it possible.
    pub(super) previous: Option<Cause>,
}

impl Draft {
    /// Creates an event that is enabled by `enablers`.
    pub fn new(kind: EventKind, enablers: Vec<(Cause, Stamp)>) -> Self {
        Self { kind, enablers, previous: None }
    }

    /// Notes that the previous event of the same record made this one possible.
    #[must_use]
    pub fn after_previous(mut self, cause: Cause) -> Self {
        self.previous = Some(cause);
        self
    }
}

/// The receipt of recorded events.
#[derive(Clone, Debug)]
#[must_use = "a receipt tells where its events are in the log, and when they are durable"]
pub struct RecordReceipt {
    pub(super) first: Seq,
    pub(super) count: u64,
    pub(super) at: u64,
    /// Ready when the events are durable in the journal's mode.
    pub durable: AppendReceipt,
}

impl RecordReceipt {
    /// The stamp of the event at `index` of the record.
    pub fn stamp(&self, index: u64) -> Stamp {
        Stamp { moment: Moment::Event(Seq(self.first.0 + index)), at: self.at }
    }

    /// The stamp of the last event of the record.
    pub fn last(&self) -> Stamp {
        self.stamp(self.count - 1)
    }

    /// The place of the last event of the record.
    pub fn last_seq(&self) -> Seq {
        Seq(self.first.0 + self.count - 1)
    }
}
