//! The schedule, computed again from what it was computed from: completions, admissions, publications and settings.

use std::collections::BTreeMap;

use anabranch_core::{
    Batch, Digest, Event, EventKind, GroupId, OldestVersion, Order, Reason, Seq, TakenGroup, TrainingStep, Version,
};
use serde::Serialize;

use crate::Limits;
use crate::group_map::ById;

/// Where a log records something else than its own records make it. Prints as a sentence.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "difference", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the sentence of each variant documents its fields")]
pub enum Difference {
    #[error("{seq}: {group} leaves the queue, but no record before put it there")]
    NotQueued { seq: Seq, group: GroupId },
    #[error("{seq}: place {place} of the batch for step {step} has {group}, the queue makes that {}", shown(expected.as_ref()))]
    Place { seq: Seq, step: TrainingStep, place: usize, group: GroupId, expected: Option<GroupId> },
    #[error("{seq}: {group} leaves the queue as number {position} of those within the limit, a batch has {batch}")]
    Position { seq: Seq, group: GroupId, position: u64, batch: u64 },
    #[error("{seq}: the batch for step {step} is judged against {}, installed is {}", shown(*recorded), shown(*recomputed))]
    Version { seq: Seq, step: TrainingStep, recorded: Option<Version>, recomputed: Option<Version> },
    #[error("{seq}: {group} is recorded with gap {}, its spans and the publications before make that {}", shown(*recorded), shown(*recomputed))]
    Gap { seq: Seq, group: GroupId, recorded: Option<u64>, recomputed: Option<u64> },
    #[error("{seq}: {group} is {recorded}, but its gap is {} and the limit {}: it is to be {recomputed}", shown(*gap), shown(*limit))]
    Verdict {
        seq: Seq,
        group: GroupId,
        recorded: &'static str,
        recomputed: &'static str,
        gap: Option<u64>,
        limit: Option<u64>,
    },
    #[error(
        "{seq}: the batch for step {step} has {recorded} groups, configured are {configured}, and {waiting} more waited"
    )]
    Size { seq: Seq, step: TrainingStep, recorded: u64, configured: u64, waiting: u64 },
    #[error("{seq}: the batch for step {step} has digest {recorded}, its groups make that {recomputed}")]
    BatchDigest { seq: Seq, step: TrainingStep, recorded: Digest, recomputed: Digest },
}

impl Difference {
    /// The event that differs.
    pub fn seq(&self) -> Seq {
        match self {
            Self::NotQueued { seq, .. }
            | Self::Place { seq, .. }
            | Self::Position { seq, .. }
            | Self::Version { seq, .. }
            | Self::Gap { seq, .. }
            | Self::Verdict { seq, .. }
            | Self::Size { seq, .. }
            | Self::BatchDigest { seq, .. } => *seq,
        }
    }
}

fn shown<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// What was computed again, and found to be what the log records.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recomputed {
    /// Batches, with the groups, the version and the digest of each.
    pub batches: u64,
    /// Groups of these batches, each with its gap, its verdict and its place.
    pub consumed: u64,
    /// Exclusions at the exit, each with its gap and its verdict.
    pub excluded: u64,
}

/// A completed group that nothing has settled yet.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    completed: Seq,
    admitted: Option<Seq>,
    oldest: Option<OldestVersion>,
    payload: Digest,
}

/// Computes a schedule again, event by event: a pure function of the records of completions, admissions, publications
/// and settings. What it makes of them is compared with the batches and the exclusions at the exit that are recorded;
/// nothing of these is used otherwise, but that they happened where they did. Verdicts of filters are inputs.
///
/// Where the buffer is first in, first out, or there is none, this covers the place of each group. In the other orders it
/// depends on when the learner asked for groups: [`verify`](crate::verify) judges those by their recorded times.
#[derive(Debug, Default)]
pub struct Recompute {
    limits: Limits,
    buffered: bool,
    version: Option<Version>,
    waiting: ById<Waiting>,
    /// All of `waiting` by completion, and those admitted by admission.
    completed: BTreeMap<Seq, GroupId>,
    admitted: BTreeMap<Seq, GroupId>,
    found: Recomputed,
    difference: Option<Difference>,
}

impl Recompute {
    /// A schedule of no events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next event. Nothing is compared after the first difference: it has consequences.
    pub fn push(&mut self, event: &Event) {
        if self.difference.is_none() {
            self.difference = self.apply(event).err();
        }
    }

    /// What agreed.
    ///
    /// # Errors
    /// The first difference.
    pub fn finish(self) -> Result<Recomputed, Difference> {
        self.difference.map_or(Ok(self.found), Err)
    }

    fn apply(&mut self, event: &Event) -> Result<(), Difference> {
        let seq = event.seq;
        self.limits.apply(event);
        match &event.kind {
            EventKind::Configured { operator, .. } => self.buffered |= operator == "buffer",
            // A group adopted again after a restart begins anew.
            EventKind::Leased { id, .. } => {
                self.remove(id);
            }
            EventKind::Completed { id, summary, payload } => {
                let (oldest, payload) = (summary.oldest(), *payload);
                self.waiting.insert(id.clone(), Waiting { completed: seq, admitted: None, oldest, payload });
                self.completed.insert(seq, id.clone());
            }
            EventKind::Admitted { id } => {
                if let Some(waiting) = self.waiting.get_mut(id) {
                    waiting.admitted = Some(seq);
                    self.admitted.insert(seq, id.clone());
                }
            }
            EventKind::Published { version, .. } | EventKind::Reinstalled { version, .. } => {
                self.version = Some(*version);
            }
            EventKind::Excluded { id, reason, .. } => {
                match reason {
                    Reason::Stale { gap } => self.exit(seq, id, Some(*gap))?,
                    Reason::UnknownVersion => self.exit(seq, id, None)?,
                    _ => {}
                }
                self.remove(id);
            }
            EventKind::BatchTaken { step, version, groups, digest } => {
                self.batch(seq, *step, *version, groups, *digest)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn remove(&mut self, id: &GroupId) {
        if let Some(Waiting { completed, admitted, .. }) = self.waiting.remove(id) {
            self.completed.remove(&completed);
            admitted.and_then(|admitted| self.admitted.remove(&admitted));
        }
    }

    fn gap(&self, waiting: Waiting) -> Option<u64> {
        match waiting.oldest {
            Some(OldestVersion::Known(oldest)) => Some(self.version?.since(oldest)),
            _ => None,
        }
    }

    /// What the exit makes of a group with this gap.
    fn verdict(&self, gap: Option<u64>) -> &'static str {
        match (self.limits.max_staleness, gap) {
            (Some(limit), Some(gap)) if gap > limit => "excluded as stale",
            (Some(_), None) if !self.limits.allows_unknown() => "excluded as of unknown version",
            _ => "consumed",
        }
    }

    /// The groups that wait, in the order in which they leave; nothing where that is not a function of the log's order.
    fn queue(&self) -> Option<&BTreeMap<Seq, GroupId>> {
        match (self.buffered, self.limits.order) {
            (true, Some(Order::Fifo)) => Some(&self.admitted),
            (true, _) => None,
            (false, _) => Some(&self.completed),
        }
    }

    fn queued(&self, seq: Seq, id: &GroupId) -> Result<Waiting, Difference> {
        let waiting = self.waiting.get(id).copied().filter(|waiting| !self.buffered || waiting.admitted.is_some());
        waiting.ok_or_else(|| Difference::NotQueued { seq, group: id.clone() })
    }

    fn judge(&self, seq: Seq, id: &GroupId, recorded: &'static str) -> Result<Option<u64>, Difference> {
        let gap = self.gap(self.queued(seq, id)?);
        let (recomputed, limit) = (self.verdict(gap), self.limits.max_staleness);
        if recomputed == recorded {
            Ok(gap)
        } else {
            Err(Difference::Verdict { seq, group: id.clone(), recorded, recomputed, gap, limit })
        }
    }

    /// An exclusion at the exit: of a group that a batch reached.
    fn exit(&mut self, seq: Seq, id: &GroupId, recorded: Option<u64>) -> Result<(), Difference> {
        let said = recorded.map_or("excluded as of unknown version", |_| "excluded as stale");
        let gap = self.judge(seq, id, said)?;
        if gap != recorded {
            return Err(Difference::Gap { seq, group: id.clone(), recorded, recomputed: gap });
        }
        if let (Some(queue), Some(batch)) = (self.queue(), self.limits.batch) {
            let fresh = |id: &&GroupId| self.verdict(self.gap(self.waiting[*id])) == "consumed";
            let position = queue.values().take_while(|before| *before != id).filter(fresh).count() as u64;
            if position >= batch {
                return Err(Difference::Position { seq, group: id.clone(), position: position + 1, batch });
            }
        }
        self.found.excluded += 1;
        Ok(())
    }

    fn batch(
        &mut self,
        seq: Seq,
        step: TrainingStep,
        version: Option<Version>,
        groups: &[TakenGroup],
        digest: Digest,
    ) -> Result<(), Difference> {
        if version != self.version {
            return Err(Difference::Version { seq, step, recorded: version, recomputed: self.version });
        }
        if let Some(queue) = self.queue() {
            let mut expected = queue.values();
            for (taken, place) in groups.iter().zip(1..) {
                let expected = expected.next();
                if expected != Some(&taken.id) {
                    let (group, expected) = (taken.id.clone(), expected.cloned());
                    return Err(Difference::Place { seq, step, place, group, expected });
                }
            }
        }
        for TakenGroup { id, gap: recorded, .. } in groups {
            let gap = self.judge(seq, id, "consumed")?;
            if gap != *recorded {
                return Err(Difference::Gap { seq, group: id.clone(), recorded: *recorded, recomputed: gap });
            }
        }
        let payloads = groups.iter().filter_map(|taken| Some((&taken.id, self.waiting.get(&taken.id)?.payload)));
        let recomputed = Batch::digest_of(payloads);
        if recomputed != digest {
            return Err(Difference::BatchDigest { seq, step, recorded: digest, recomputed });
        }
        for taken in groups {
            self.remove(&taken.id);
        }
        let recorded = groups.len() as u64;
        if let Some(configured) = self.limits.batch {
            // A partial batch is what is left when nothing more comes.
            let waiting = self.queue().map_or(0, |queue| queue.len() as u64);
            let partial = self.limits.partial && recorded > 0 && recorded < configured && waiting == 0;
            if recorded != configured && !partial {
                return Err(Difference::Size { seq, step, recorded, configured, waiting });
            }
        }
        self.found.batches += 1;
        self.found.consumed += recorded;
        Ok(())
    }
}

/// Computes the schedule of a log again: see [`Recompute`].
///
/// # Errors
/// The first difference between what is recorded and what the records before it make that.
pub fn recompute<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Recomputed, Difference> {
    let mut schedule = Recompute::new();
    events.into_iter().for_each(|event| schedule.push(event));
    schedule.finish()
}
