//! Events on their way to the log.

use anabranch_core::{AppendReceipt, Cause, EventKind, Moment, Seq, Stamp};

/// An event to be recorded.
#[derive(Debug)]
pub struct Draft {
    /// What happened.
    pub kind: EventKind,
    /// What let it happen.
    pub enablers: Vec<(Cause, Stamp)>,
    /// Set where the draft before it in the same record let it happen.
    pub(super) previous: Option<Cause>,
}

impl Draft {
    /// An event enabled by `enablers`.
    pub fn new(kind: EventKind, enablers: Vec<(Cause, Stamp)>) -> Self {
        Self { kind, enablers, previous: None }
    }

    /// Says that the draft before it in the same record let it happen.
    #[must_use]
    pub fn after_previous(mut self, cause: Cause) -> Self {
        self.previous = Some(cause);
        self
    }
}

/// Events that have their place in the log.
#[derive(Clone, Debug)]
#[must_use = "a receipt tells where its events are in the log, and when they are durable"]
pub struct RecordReceipt {
    pub(super) first: Seq,
    pub(super) count: u64,
    pub(super) at: u64,
    /// Ready when they are durable as the journal's mode promises.
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
