//! Turns events into rows. Sealing writes these rows to files, and a reader of the unsealed part of a log makes the
//! same rows: a row is the same whether it is sealed or not.

use anabranch_core::{BoxError, Event, EventKind, Group, GroupId};
use arrow::array::RecordBatch;
use arrow::error::ArrowError;

use crate::SegmentError;
use crate::events::{self, stepped, taken_for};
use crate::payloads::{self, SampleRow};
use crate::schema::{EVENTS, GROUPS, PUBLICATIONS, SAMPLES, STEPS, TableSchema};

/// How many groups are in memory at a time.
pub(crate) const GROUPS_AT_ONCE: usize = 64;
/// How many events are encoded at a time.
pub(crate) const EVENTS_AT_ONCE: usize = 1 << 12;

/// Rows of `events`.
pub(crate) fn events(events: &[Event]) -> Result<RecordBatch, SegmentError> {
    let encode = |event: &Event| {
        postcard::to_stdvec(event)
            .map_err(|source| SegmentError::Codec { what: format!("event {}", event.seq), source })
    };
    let rows: Vec<(&Event, Vec<u8>)> =
        events.iter().map(|event| Ok((event, encode(event)?))).collect::<Result<_, SegmentError>>()?;
    events::events(&rows).map_err(rows_of(&EVENTS))
}

/// Whether the event completes a group, and so makes rows of `groups` and `samples`.
pub(crate) fn completes(event: &Event) -> bool {
    matches!(event.kind, EventKind::Completed { .. })
}

/// Completed groups with their payloads.
pub(crate) struct CompletedGroups<'a>(Vec<(&'a Event, Group, Vec<u8>)>);

impl<'a> CompletedGroups<'a> {
    /// Asks `payload` for the groups of the events `completed`.
    pub(crate) fn read(
        completed: impl Iterator<Item = &'a Event>,
        mut payload: impl FnMut(&GroupId) -> Result<Group, BoxError>,
    ) -> Result<Self, SegmentError> {
        completed.map(|event| completed_group(event, &mut payload)).collect::<Result<_, _>>().map(Self)
    }

    /// The rows of `groups`.
    pub(crate) fn groups(&self) -> Result<RecordBatch, SegmentError> {
        payloads::groups(&self.0).map_err(rows_of(&GROUPS))
    }

    /// The rows of `samples`.
    pub(crate) fn samples(&self) -> Result<RecordBatch, SegmentError> {
        let mut rows: Vec<SampleRow<'_>> = Vec::new();
        for (event, group, _) in &self.0 {
            rows.extend(group.samples.iter().zip(0..).map(|(sample, index)| (event.seq.0, group, index, sample)));
        }
        payloads::samples(&rows).map_err(rows_of(&SAMPLES))
    }
}

fn completed_group<'a>(
    event: &'a Event,
    payload: &mut impl FnMut(&GroupId) -> Result<Group, BoxError>,
) -> Result<(&'a Event, Group, Vec<u8>), SegmentError> {
    let refused = |group: GroupId, source: BoxError| SegmentError::Payload { group, seq: event.seq, source };
    let EventKind::Completed { id, .. } = &event.kind else {
        return Err(SegmentError::Events(
            format!("expected an event that completes a group, found event {}", event.seq).into(),
        ));
    };
    let group = payload(id).map_err(|error| refused(id.clone(), error))?;
    if group.id != *id {
        return Err(refused(id.clone(), format!("expected its own payload, found the payload of {}", group.id).into()));
    }
    let raw = payloads::raw(&group).map_err(|error| refused(id.clone(), error.into()))?;
    Ok((event, group, raw))
}

/// The tables whose rows join two events: one event begins something, the other ends it. They may be in different
/// segments.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// `Publishing` and `Published`.
    Publications,
    /// `BatchTaken` and `Stepped`.
    Steps,
}

impl Joined {
    /// The version or step that the event begins.
    pub(crate) fn begun(self, kind: &EventKind) -> Option<u64> {
        match (self, kind) {
            (Self::Publications, EventKind::Publishing { version, .. }) => Some(version.0),
            (Self::Steps, kind) => taken_for(kind),
            _ => None,
        }
    }

    /// The version or step that the event ends.
    fn ended(self, kind: &EventKind) -> Option<u64> {
        match (self, kind) {
            (Self::Publications, EventKind::Published { version, .. }) => Some(version.0),
            (Self::Steps, kind) => stepped(kind),
            _ => None,
        }
    }

    /// Whether the first event that ends something has its beginning before `events`.
    pub(crate) fn began_before(self, events: &[Event]) -> bool {
        let mut joined = events.iter().filter(|event| self.ended(&event.kind).or(self.begun(&event.kind)).is_some());
        joined.next().is_some_and(|event| self.ended(&event.kind).is_some())
    }

    /// The last of `events` that begins something.
    pub(crate) fn last_begun(self, events: Vec<Event>) -> Option<Event> {
        events.into_iter().rfind(|event| self.begun(&event.kind).is_some())
    }

    /// The rows of `events`; `earlier` began what was open before them.
    pub(crate) fn rows(self, events: &[Event], earlier: Option<&Event>) -> Result<RecordBatch, SegmentError> {
        let (mut last, mut rows) = (earlier, Vec::new());
        for event in events {
            if self.begun(&event.kind).is_some() {
                last = Some(event);
            } else if let Some(ended) = self.ended(&event.kind) {
                rows.push((event, last.filter(|begun| self.begun(&begun.kind) == Some(ended))));
            } else if self == Self::Publications && matches!(event.kind, EventKind::Reinstalled { .. }) {
                rows.push((event, None));
            }
        }
        match self {
            Self::Publications => events::publications(&rows).map_err(rows_of(&PUBLICATIONS)),
            Self::Steps => events::steps(&rows).map_err(rows_of(&STEPS)),
        }
    }
}

fn rows_of(table: &TableSchema) -> impl FnOnce(ArrowError) -> SegmentError {
    move |source| SegmentError::Rows { table: table.name, source }
}
