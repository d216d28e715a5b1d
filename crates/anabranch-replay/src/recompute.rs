//! The schedule, computed again from completions, admissions, publications and settings.

use std::collections::BTreeMap;

use anabranch_core::{
    Batch, Digest, Event, EventKind, GroupId, OldestVersion, Order, Reason, Seq, TakenGroup, TrainingStep, Version,
};
use serde::Serialize;

use crate::Limits;
use crate::group_map::ById;

/// A record that differs from what the records before it give. Its `Display` is a sentence.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "difference", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the sentence of each variant documents its fields")]
pub enum Difference {
    #[error("{seq}: expected a group from the queue, found {group}, which no earlier record put there")]
    NotQueued { seq: Seq, group: GroupId },
    #[error("{seq}: place {place} of the batch for step {step}: expected {} from the queue, found {group}", shown(expected.as_ref()))]
    Place { seq: Seq, step: TrainingStep, place: usize, group: GroupId, expected: Option<GroupId> },
    #[error(
        "{seq}: expected an exclusion among the next {batch} groups within the limit, found {group}, which is number {position}"
    )]
    Position { seq: Seq, group: GroupId, position: u64, batch: u64 },
    #[error("{seq}: the batch for step {step}: expected the installed version {}, found {}", shown(*recomputed), shown(*recorded))]
    Version { seq: Seq, step: TrainingStep, recorded: Option<Version>, recomputed: Option<Version> },
    #[error("{seq}: {group}: expected gap {} from its spans and the publications before, found {}", shown(*recomputed), shown(*recorded))]
    Gap { seq: Seq, group: GroupId, recorded: Option<u64>, recomputed: Option<u64> },
    #[error("{seq}: {group}, with gap {} and limit {}: expected {recomputed}, found {recorded}", shown(*gap), shown(*limit))]
    Verdict {
        seq: Seq,
        group: GroupId,
        recorded: &'static str,
        recomputed: &'static str,
        gap: Option<u64>,
        limit: Option<u64>,
    },
    #[error(
        "{seq}: the batch for step {step}: expected {configured} groups as configured, found {recorded} while {waiting} more waited"
    )]
    Size { seq: Seq, step: TrainingStep, recorded: u64, configured: u64, waiting: u64 },
    #[error("{seq}: the batch for step {step}: expected digest {recomputed} from its groups, found {recorded}")]
    BatchDigest { seq: Seq, step: TrainingStep, recorded: Digest, recomputed: Digest },
}

impl Difference {
    /// Returns the event that differs.
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

/// How much of a log was computed again and found as recorded.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Recomputed {
    /// Batches, each with its groups, its version and its digest.
    pub batches: u64,
    /// Groups of those batches, each with its gap, its verdict and its place.
    pub consumed: u64,
    /// Exclusions at the exit check, each with its gap and its verdict.
    pub excluded: u64,
}

/// A completed group that is not settled yet.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    completed: Seq,
    admitted: Option<Seq>,
    oldest: Option<OldestVersion>,
    payload: Digest,
}

/// Computes a schedule again, event by event, as a pure function of the records of completions, admissions,
/// publications and settings. It compares the computed schedule with the recorded batches and the recorded exclusions
/// at the exit check. Of those records it uses only their place in the log. Verdicts of filters are inputs.
///
/// In a pipeline with a first-in, first-out buffer or without a buffer, this covers the place of each group. In the
/// other orders the place depends on when the learner asked for groups: [`verify`](crate::verify) judges those orders
/// by their recorded times.
#[derive(Debug, Default)]
pub struct Recompute {
    limits: Limits,
    buffered: bool,
    version: Option<Version>,
    waiting: ById<Waiting>,
    /// All groups of `waiting` by completion, and the admitted ones by admission.
    completed: BTreeMap<Seq, GroupId>,
    admitted: BTreeMap<Seq, GroupId>,
    found: Recomputed,
    difference: Option<Difference>,
}

impl Recompute {
    /// Creates a schedule without events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next event. After the first difference nothing is compared, because one difference causes others.
    pub fn push(&mut self, event: &Event) {
        if self.difference.is_none() {
            self.difference = self.apply(event).err();
        }
    }

    /// Returns how much of the log agrees.
    ///
    /// # Errors
    /// Returns the first difference.
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

    /// Returns the verdict of the exit check on a group with this gap.
    fn verdict(&self, gap: Option<u64>) -> &'static str {
        match (self.limits.max_staleness, gap) {
            (Some(limit), Some(gap)) if gap > limit => "excluded as stale",
            (Some(_), None) if !self.limits.allows_unknown() => "excluded as of unknown version",
            _ => "consumed",
        }
    }

    /// Returns the waiting groups in the order in which they leave, or `None` if that order is not a function of the
    /// log's.
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

    /// Judges an exclusion at the exit check. The group must be among those that the next batch reaches.
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
            // A partial batch has the groups that are left at the end of the source.
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

/// Computes the schedule of a log again. See [`Recompute`].
///
/// # Errors
/// Returns the first record that differs from what the records before it give.
pub fn recompute<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Recomputed, Difference> {
    let mut schedule = Recompute::new();
    events.into_iter().for_each(|event| schedule.push(event));
    schedule.finish()
}
