//! A record on its way into a batch.

use anabranch_core::{Event, EventKind, Group, JournalError, Seq};

use crate::{codec, keys};

/// What a database adds to a key and a value in a batch, at most.
pub(crate) const PREFIX: usize = 16;

/// A record, encoded: keys and values of its events, keys and values of its payloads.
pub(crate) struct Encoded {
    pub(crate) events: Vec<([u8; 8], Vec<u8>)>,
    pub(crate) groups: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Encoded {
    /// Encodes a record.
    pub(crate) fn new(events: &[Event], payloads: &[&Group]) -> Result<Self, JournalError> {
        let completed = events.iter().filter_map(|event| match &event.kind {
            EventKind::Completed { id, .. } => Some(id),
            _ => None,
        });
        if !completed.eq(payloads.iter().map(|group| &group.id)) {
            let first = events.first().map_or(Seq(0), |event| event.seq);
            let problem = format!("the record at {first} completes other groups than it brings payloads for");
            return Err(JournalError::new(problem));
        }
        let failed = |error| JournalError::caused("a record could not be encoded", error);
        let event = |event: &Event| {
            let key = keys::event(event.seq);
            Ok((key, codec::encode_event(&key, event).map_err(failed)?))
        };
        let group = |group: &&Group| {
            let key = keys::group(&group.id);
            let value = codec::encode_group(&key, group).map_err(failed)?;
            Ok((key, value))
        };
        Ok(Self {
            events: events.iter().map(event).collect::<Result<_, _>>()?,
            groups: payloads.iter().map(group).collect::<Result<_, _>>()?,
        })
    }

    /// What it takes in a batch, at most.
    pub(crate) fn bytes(&self) -> usize {
        let events = self.events.iter().map(|(key, value)| PREFIX + key.len() + value.len());
        let groups = self.groups.iter().map(|(key, value)| PREFIX + key.len() + value.len());
        events.sum::<usize>() + groups.sum::<usize>()
    }
}
