//! What a sealer is handed.

use anabranch_core::{Event, Group, Seq};

/// The most groups in a segment. As many new ones make a seal due.
pub(crate) const SEGMENT_GROUPS: usize = 256;

/// A contiguous part of the log, synced, to be sealed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Segment {
    /// The seq of its first event.
    pub first: Seq,
    /// The seq of its last event.
    pub last: Seq,
    /// All its events, in order.
    pub events: Vec<Event>,
    /// The payload of each of its `Completed` events, in their order.
    pub groups: Vec<Group>,
}
