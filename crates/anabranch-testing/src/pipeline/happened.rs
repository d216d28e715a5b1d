//! What happened in a run, by its log and by a prediction, in a form in which the two can be compared.

use std::collections::BTreeMap;

use anabranch_core::{Event, EventKind, GroupId, OldestVersion};
use anabranch_replay::Fate;

/// What happened to a group, by the log: its prompt's position and attempt, times, oldest version and fate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Happened {
    /// When it was leased.
    pub leased: u64,
    /// When all its samples had ended.
    pub completed: Option<u64>,
    /// When a buffer took it.
    pub admitted: Option<u64>,
    /// When a buffer gave it.
    pub dequeued: Option<u64>,
    /// When it was consumed or excluded.
    pub settled: Option<u64>,
    /// The oldest version that wrote one of its tokens.
    pub oldest: Option<u64>,
    /// What became of it.
    pub fate: Option<Fate>,
}

/// All groups of a log, by position and attempt.
pub fn happened(events: &[Event]) -> BTreeMap<(u64, u32), Happened> {
    let mut groups: BTreeMap<(u64, u32), Happened> = BTreeMap::new();
    let key = |id: &GroupId| (id.prompt.row, id.attempt);
    for event in events {
        match &event.kind {
            EventKind::Leased { id, .. } => {
                groups.insert(key(id), Happened { leased: event.at, fate: Some(Fate::Left), ..Happened::default() });
            }
            EventKind::Completed { id, summary, .. } => {
                let group = groups.get_mut(&key(id)).unwrap();
                group.completed = Some(event.at);
                group.oldest = summary.oldest().map(|oldest| match oldest {
                    OldestVersion::Known(version) => version.0,
                    OldestVersion::Unknown => panic!("the scripted engine knows its versions"),
                });
            }
            EventKind::Reissued { id, .. } => groups.get_mut(&key(id)).unwrap().leased = event.at,
            EventKind::Admitted { id } => groups.get_mut(&key(id)).unwrap().admitted = Some(event.at),
            EventKind::Excluded { id, reason, then, dequeued } => {
                let group = groups.get_mut(&key(id)).unwrap();
                (group.settled, group.dequeued) = (Some(event.at), *dequeued);
                let gap = if let anabranch_core::Reason::Stale { gap } = reason { Some(*gap) } else { None };
                let retried = matches!(then, anabranch_core::Then::Retry(_));
                group.fate = Some(Fate::Excluded { reason: reason.name(), gap, retried });
            }
            EventKind::BatchTaken { step, groups: taken, .. } => {
                for taken in taken {
                    let group = groups.get_mut(&key(&taken.id)).unwrap();
                    (group.settled, group.dequeued) = (Some(event.at), taken.dequeued);
                    group.fate = Some(Fate::Consumed { step: step.0, gap: taken.gap });
                }
            }
            _ => {}
        }
    }
    groups
}

/// The same of a prediction.
pub fn predicted(prediction: &anabranch_replay::Prediction) -> BTreeMap<(u64, u32), Happened> {
    let group = |group: &anabranch_replay::PredictedGroup| Happened {
        leased: group.leased_ns,
        completed: group.completed_ns,
        admitted: group.admitted_ns,
        // Of a group left in an unfinished batch the log does not tell it.
        dequeued: group.dequeued_ns.filter(|_| group.fate != Fate::Left),
        settled: group.settled_ns,
        oldest: group.oldest,
        fate: Some(group.fate),
    };
    prediction.groups.iter().map(|predicted| ((predicted.position, predicted.attempt), group(predicted))).collect()
}

/// The first group, by lease, of which the two say different things.
pub fn first_difference(
    happened: &BTreeMap<(u64, u32), Happened>,
    predicted: &BTreeMap<(u64, u32), Happened>,
) -> Option<String> {
    let mut differing: Vec<_> = happened
        .iter()
        .filter(|(key, group)| predicted.get(key) != Some(group))
        .map(|(key, group)| (group.leased.min(predicted.get(key).map_or(u64::MAX, |other| other.leased)), key))
        .chain(predicted.iter().filter(|(key, _)| !happened.contains_key(key)).map(|(key, group)| (group.leased, key)))
        .collect();
    differing.sort_unstable();
    let (_, key) = differing.first()?;
    Some(format!(
        "{} groups differ; the first, {key:?}:\nhappened {:?}\npredicted {:?}",
        differing.len(),
        happened.get(key),
        predicted.get(key)
    ))
}

/// Steps of a log: batch, step, installation.
pub fn steps(events: &[Event]) -> Vec<(u64, u64, Option<u64>)> {
    let mut steps = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::BatchTaken { .. } => steps.push((event.at, 0, None)),
            EventKind::Stepped { .. } => steps.last_mut().unwrap().1 = event.at,
            EventKind::Published { step, .. } if step.0 > 0 => steps.last_mut().unwrap().2 = Some(event.at),
            _ => {}
        }
    }
    steps
}
