//! Computes the state of a run from its log. Every resume begins with this fold.

use std::collections::HashMap;

use crate::{
    Event, EventKind, FORMAT, GroupId, OpenLease, QueuedGroup, RecordedBatch, ResumeState, Retry, Seq, Stamp, Then,
    TrainingStep,
};

/// The name of the settings of `RunOpened` among the settings of the operators.
pub const RUN_SETTINGS: &str = "run";

/// The log cannot be the log of a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// An event is missing or occurs twice.
    #[error("expected event {expected}, found event {found}: the log is damaged; restore it from a backup")]
    NotDense {
        /// The expected event.
        expected: Seq,
        /// The event found.
        found: Seq,
    },
    /// The first event does not open the run.
    #[error(
        "expected a log that begins with `run_opened`, found `{0}`: the log is damaged, or does not belong to a run"
    )]
    NotOpened(&'static str),
    /// A newer library wrote the log.
    #[error(
        "expected an event format up to {FORMAT}, found {found}: open the log with the newer library \
         that wrote it"
    )]
    Newer {
        /// The format of the log.
        found: u32,
    },
    /// A record about a group contradicts the records before it.
    #[error("event {seq} ({event}) of group {group}: {problem}; `anabranch verify` lists every such record")]
    Contradiction {
        /// The event.
        seq: Seq,
        /// The kind of the event.
        event: &'static str,
        /// The group.
        group: GroupId,
        /// The contradiction.
        problem: &'static str,
    },
    /// A training step whose batch was never taken.
    #[error("event {seq} records training step {step}, but no batch was taken for it; the log is damaged")]
    NoBatch {
        /// The event.
        seq: Seq,
        /// The training step.
        step: TrainingStep,
    },
}

/// A lease that no event has settled yet.
struct Unsettled {
    /// The `Leased` record, which gives the order in which leases are issued again.
    first: Seq,
    /// The last `Leased` or `Reissued` record.
    leased: Seq,
    reissues: u32,
    completed: Option<Seq>,
    admitted: Option<Seq>,
}

/// The fold over a run's events: [`apply`](Self::apply) each event in order, then get the [`ResumeState`].
///
/// Memory grows with the number of unsettled leases and batches, not with the number of events.
#[derive(Default)]
pub struct Resume {
    state: ResumeState,
    unsettled: HashMap<GroupId, Unsettled>,
}

/// Computes the state of a run from all its events, in order. The log does not contain checkpoints and lost events; the
/// code that opened the log fills them in.
///
/// # Errors
/// Returns an error that names the first event that contradicts the events before it.
pub fn resume(events: impl IntoIterator<Item = Event>) -> Result<ResumeState, ResumeError> {
    let mut fold = Resume::new();
    for event in events {
        fold.apply(&event)?;
    }
    Ok(fold.into_state())
}

impl Resume {
    /// Starts with no events.
    pub fn new() -> Self {
        Self::default()
    }

    /// The `seq` that the next event must have.
    pub fn next_seq(&self) -> Seq {
        self.state.next_seq
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// Returns an error if the event cannot follow: its `seq` is not the next one, its format is newer, or its group is
    /// not in the right state.
    pub fn apply(&mut self, event: &Event) -> Result<(), ResumeError> {
        let expected = self.state.next_seq;
        if event.seq != expected {
            return Err(ResumeError::NotDense { expected, found: event.seq });
        }
        match &event.kind {
            EventKind::RunOpened { format, .. } if *format > FORMAT => {
                return Err(ResumeError::Newer { found: *format });
            }
            EventKind::RunOpened { settings, .. } => {
                self.state.settings.insert(RUN_SETTINGS.to_owned(), settings.clone());
            }
            kind if expected == Seq(0) => return Err(ResumeError::NotOpened(kind.name())),
            _ => {}
        }
        self.leases(event)?;
        self.training(event)?;
        self.state.session = self.state.session.max(event.session + 1);
        self.state.next_seq = Seq(expected.0 + 1);
        Ok(())
    }

    /// Returns the state after these events.
    pub fn into_state(self) -> ResumeState {
        let mut state = self.state;
        let mut open = Vec::new();
        let mut queued = Vec::new();
        for (id, Unsettled { first, leased, reissues, completed, admitted }) in self.unsettled {
            match completed {
                Some(completed) => queued.push(QueuedGroup { id, leased, completed, admitted }),
                None => open.push((first, OpenLease { id, leased, reissues })),
            }
        }
        open.sort_by_key(|(first, _)| *first);
        state.open = open.into_iter().map(|(_, lease)| lease).collect();
        queued.sort_by_key(|group| (group.admitted.is_none(), group.admitted.unwrap_or(group.completed)));
        state.queued = queued;
        state
    }

    /// Applies the event to the leases and the retries.
    fn leases(&mut self, event: &Event) -> Result<(), ResumeError> {
        let seq = event.seq;
        match &event.kind {
            EventKind::Leased { id, position } => {
                // A group that is adopted again after a restart keeps its name, and its lease begins again.
                let lease = Unsettled { first: seq, leased: seq, reissues: 0, completed: None, admitted: None };
                self.unsettled.insert(id.clone(), lease);
                let queued = self.state.retries.iter().position(|retry| retry.lease == *id);
                queued.and_then(|index| self.state.retries.remove(index));
                let next = position.map_or(0, |position| position + 1);
                self.state.position = self.state.position.max(next);
                self.state.closed = false;
            }
            EventKind::Reissued { id, reissue } => {
                let lease = self.unsettled(event, id)?;
                if lease.completed.is_some() {
                    return Err(contradiction(event, id, "the group is complete and needs no new lease"));
                }
                (lease.leased, lease.reissues) = (seq, *reissue);
                self.state.closed = false;
            }
            EventKind::Completed { id, .. } => {
                let before = self.unsettled(event, id)?.completed.replace(seq);
                if before.is_some() {
                    return Err(contradiction(event, id, "the group was completed before"));
                }
            }
            EventKind::Admitted { id } => {
                let lease = self.unsettled(event, id)?;
                if lease.completed.is_none() {
                    return Err(contradiction(event, id, "the group is not complete"));
                }
                if lease.admitted.replace(seq).is_some() {
                    return Err(contradiction(event, id, "the group was admitted before"));
                }
            }
            EventKind::Excluded { id, then, .. } => {
                self.settle(event, id)?;
                if let Then::Retry(next) = then {
                    self.state.retries.push_back(Retry { lease: next.clone(), excluded: seq, at: 0 });
                }
            }
            EventKind::BatchTaken { groups, .. } => {
                for group in groups {
                    if self.settle(event, &group.id)?.completed.is_none() {
                        return Err(contradiction(event, &group.id, "the group is not complete"));
                    }
                }
                self.state.closed = false;
            }
            EventKind::RunClosed { .. } => self.state.closed = true,
            _ => {}
        }
        Ok(())
    }

    /// Applies the event to batches, steps and versions.
    fn training(&mut self, event: &Event) -> Result<(), ResumeError> {
        let state = &mut self.state;
        match &event.kind {
            EventKind::Configured { operator, settings } => {
                state.settings.insert(operator.clone(), settings.clone());
            }
            EventKind::BatchTaken { step, version, groups, digest } => state.batches.push(RecordedBatch {
                taken: event.seq,
                step: *step,
                version: *version,
                groups: groups.clone(),
                digest: *digest,
                stepped: None,
            }),
            EventKind::Stepped { step, updates, weights, .. } => {
                let batch = state.batches.iter_mut().rev().find(|batch| batch.step == *step);
                let batch = batch.ok_or(ResumeError::NoBatch { seq: event.seq, step: *step })?;
                batch.stepped = Some(*weights);
                state.clock.complete(*step, *updates);
            }
            EventKind::Publishing { version, .. } => state.clock.begin(*version),
            EventKind::Published { version, step, weights, .. } => {
                state.clock.install(*version, *step, Stamp::earlier(event.seq));
                state.published = Some((*version, *step, *weights));
            }
            EventKind::Reinstalled { version, step, .. } => {
                state.clock.install(*version, *step, Stamp::earlier(event.seq));
            }
            _ => {}
        }
        Ok(())
    }

    fn unsettled(&mut self, event: &Event, id: &GroupId) -> Result<&mut Unsettled, ResumeError> {
        self.unsettled.get_mut(id).ok_or_else(|| contradiction(event, id, NOT_LEASED))
    }

    fn settle(&mut self, event: &Event, id: &GroupId) -> Result<Unsettled, ResumeError> {
        self.unsettled.remove(id).ok_or_else(|| contradiction(event, id, NOT_LEASED))
    }
}

const NOT_LEASED: &str = "the lease was never issued, or is settled already";

fn contradiction(event: &Event, group: &GroupId, problem: &'static str) -> ResumeError {
    ResumeError::Contradiction { seq: event.seq, event: event.kind.name(), group: group.clone(), problem }
}

#[cfg(test)]
mod tests;
