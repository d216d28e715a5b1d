//! The column families and the keys in them.
//!
//! `events`: the seq, eight bytes big-endian, so that the database's order is the log's. `groups`: the dataset's name and
//! sixteen bytes: epoch, row and attempt, big-endian; the fixed tail makes the key unambiguous whatever the name.
//! `state`: short names.

use anabranch_core::{GroupId, PromptId, Seq};

/// Column family of the events.
pub(crate) const EVENTS: &str = "events";
/// Column family of the payloads.
pub(crate) const GROUPS: &str = "groups";
/// Column family of what is derived from the events.
pub(crate) const STATE: &str = "state";
/// Key of the heads in [`STATE`].
pub(crate) const HEADS: &[u8] = b"heads";

/// Key, in [`STATE`], of how far payloads were dropped.
pub(crate) const DROPPED: &[u8] = b"dropped";

const TAIL: usize = 16;

pub(crate) fn event(seq: Seq) -> [u8; 8] {
    seq.0.to_be_bytes()
}

pub(crate) fn event_seq(key: &[u8]) -> Option<Seq> {
    Some(Seq(u64::from_be_bytes(key.try_into().ok()?)))
}

pub(crate) fn group(id: &GroupId) -> Vec<u8> {
    let PromptId { dataset, epoch, row } = &id.prompt;
    let mut key = Vec::with_capacity(dataset.len() + TAIL);
    key.extend_from_slice(dataset.as_bytes());
    key.extend_from_slice(&epoch.to_be_bytes());
    key.extend_from_slice(&row.to_be_bytes());
    key.extend_from_slice(&id.attempt.to_be_bytes());
    key
}

pub(crate) fn group_id(key: &[u8]) -> Option<GroupId> {
    let (dataset, tail) = key.split_at_checked(key.len().checked_sub(TAIL)?)?;
    let (epoch, tail) = tail.split_first_chunk()?;
    let (row, tail) = tail.split_first_chunk()?;
    let dataset = std::str::from_utf8(dataset).ok()?.into();
    let prompt = PromptId { dataset, epoch: u32::from_be_bytes(*epoch), row: u64::from_be_bytes(*row) };
    Some(GroupId { prompt, attempt: u32::from_be_bytes(tail.try_into().ok()?) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn group_keys_name_exactly_one_group(dataset in ".{0,12}", epoch: u32, row: u64, attempt: u32) {
            let id = GroupId { prompt: PromptId { dataset: dataset.into(), epoch, row }, attempt };
            prop_assert_eq!(group_id(&group(&id)), Some(id));
        }

        #[test]
        fn event_keys_sort_as_the_log_does(a: u64, b: u64) {
            prop_assert_eq!(event(Seq(a)).cmp(&event(Seq(b))), a.cmp(&b));
            prop_assert_eq!(event_seq(&event(Seq(a))), Some(Seq(a)));
        }
    }

    #[test]
    fn short_keys_are_no_groups() {
        assert_eq!(group_id(&[0; 15]), None);
        assert_eq!(event_seq(&[0; 7]), None);
    }
}
