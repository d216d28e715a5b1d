//! The schedule of a log: each event happens when the last of its enablers did, plus its recorded delay.

use std::collections::{HashMap, VecDeque};

use anabranch_core::{Cause, Enabler, Event, EventKind, GroupId, Moment, Seq, Value};
use serde::Serialize;

use crate::group_map::ById;

/// A recorded time that differs from the one that its causes give. Its `Display` is a sentence.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "mismatch", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the sentence of each variant documents its fields")]
pub enum Mismatch {
    #[error(
        "{seq} ({event}) is recorded at {recorded} ns; expected {computed} ns from its enablers and its delay of {delay} ns"
    )]
    Time { seq: Seq, event: &'static str, recorded: u64, computed: u64, delay: u64 },
    #[error("{seq} ({event}) has a delay of {delay} ns, but no enabler")]
    NoEnabler { seq: Seq, event: &'static str, delay: u64 },
    #[error("{seq} ({event}): expected an enabler before it, found {enabler}")]
    EnablerLater { seq: Seq, event: &'static str, enabler: Seq },
    #[error("{seq} ({event}) of {group}: expected {expected} as its {cause:?} enabler, found {found}")]
    EnablerOther { seq: Seq, event: &'static str, group: GroupId, cause: Cause, found: Seq, expected: Seq },
    #[error("{seq} ({event}) of {group}: {what} at {recorded} ns, expected {from} to {to} ns")]
    Moment { seq: Seq, event: &'static str, group: GroupId, what: &'static str, recorded: u64, from: u64, to: u64 },
    #[error("expected event {expected}, found {seq}: events are missing, doubled or out of place")]
    NotDense { seq: Seq, expected: Seq },
}

impl Mismatch {
    /// Returns the event that does not match.
    pub fn seq(&self) -> Seq {
        match self {
            Self::Time { seq, .. }
            | Self::NoEnabler { seq, .. }
            | Self::EnablerLater { seq, .. }
            | Self::EnablerOther { seq, .. }
            | Self::Moment { seq, .. }
            | Self::NotDense { seq, .. } => *seq,
        }
    }
}

/// An event whose time depends on moments that only later records tell.
#[derive(Debug)]
struct Pending {
    seq: Seq,
    name: &'static str,
    recorded: u64,
    delay: u64,
    /// The latest enabler so far.
    latest: u64,
    unknown: usize,
}

/// The records of a group that is not settled.
#[derive(Copy, Clone, Debug)]
struct Open {
    leased: Seq,
    completed: Option<Seq>,
    admitted: Option<Seq>,
}

/// When the work on a group ended.
#[derive(Debug)]
struct Ended {
    /// Generation of each sample.
    samples: Vec<Option<u64>>,
    /// The last reward.
    scored: Option<u64>,
}

impl Ended {
    /// Returns the time of `moment` of this group.
    fn at(&self, moment: Moment) -> Option<u64> {
        match moment {
            Moment::SampleEnd { sample, .. } => self.samples.get(sample as usize).copied().flatten(),
            Moment::Scored { .. } => self.scored,
            Moment::Event(_) | Moment::Dequeued { .. } => None,
        }
    }
}

/// Computes the time of each event of a log from its enablers, event by event, and compares it with the recorded time.
///
/// The end of a sample and a departure from the buffer are not events. Later records tell their times. An event that
/// such a moment enabled is judged at that later record, or never if the log ends before it.
#[derive(Debug, Default)]
pub struct Schedule {
    first: Option<Seq>,
    /// The time of each event.
    times: Vec<u64>,
    /// The first event of the session.
    session: Seq,
    open: ById<Open>,
    /// When the work on each group ended, by the group's lease.
    ends: HashMap<Seq, Ended>,
    /// Leases in the order of their groups' completion. Slots are taken in the order in which they were freed. So only
    /// the last groups to end, one for each slot, and the groups in flight can still enable a lease.
    completed: VecDeque<Seq>,
    slots: Option<usize>,
    /// When each group left the buffer, by the group's admission.
    departures: HashMap<Seq, u64>,
    /// The events that wait for the end of a sample or for a departure, by lease or admission.
    waiting: HashMap<Seq, Vec<(Moment, Seq)>>,
    pending: HashMap<Seq, Pending>,
    mismatch: Option<Mismatch>,
}

impl Schedule {
    /// Creates a schedule without events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next event of the run.
    pub fn push(&mut self, event: &Event) {
        if matches!(self.mismatch, Some(Mismatch::NotDense { .. })) {
            return;
        }
        let first = *self.first.get_or_insert(event.seq);
        let expected = Seq(first.0 + self.times.len() as u64);
        if event.seq != expected {
            return self.note(Mismatch::NotDense { seq: event.seq, expected });
        }
        if matches!(event.kind, EventKind::RunOpened { .. } | EventKind::RunResumed { .. }) {
            // Moments of the session before that are unknown by now stay unknown.
            self.session = event.seq;
            self.waiting.clear();
            self.pending.clear();
            self.ends.clear();
            self.completed.clear();
            self.departures.clear();
        }
        self.times.push(event.at);
        self.follow(event);
        self.judge(event);
    }

    /// Ends the check.
    ///
    /// # Errors
    /// Returns the first event's mismatch.
    pub fn finish(self) -> Result<(), Mismatch> {
        self.mismatch.map_or(Ok(()), Err)
    }

    fn note(&mut self, mismatch: Mismatch) {
        if self.mismatch.as_ref().is_none_or(|noted| mismatch.seq() < noted.seq()) {
            self.mismatch = Some(mismatch);
        }
    }

    /// Returns when an event of this session happened. Moments of earlier sessions enable without a delay.
    fn time(&self, seq: Seq) -> u64 {
        if seq < self.session {
            return 0;
        }
        let index = self.first.and_then(|first| seq.0.checked_sub(first.0));
        index.and_then(|index| self.times.get(index as usize)).copied().unwrap_or_default()
    }

    fn judge(&mut self, event: &Event) {
        let (seq, name, delay) = (event.seq, event.kind.name(), event.delay);
        if event.enablers.is_empty() && delay > 0 {
            return self.note(Mismatch::NoEnabler { seq, event: name, delay });
        }
        let mut pending = Pending { seq, name, recorded: event.at, delay, latest: 0, unknown: 0 };
        for &Enabler { moment, .. } in &event.enablers {
            let enabler = moment.seq();
            if enabler >= seq {
                return self.note(Mismatch::EnablerLater { seq, event: name, enabler });
            }
            let at = match moment {
                Moment::Event(enabler) => Some(self.time(enabler)),
                Moment::SampleEnd { lease, .. } | Moment::Scored { lease } => {
                    self.ends.get(&lease).and_then(|ended| ended.at(moment))
                }
                Moment::Dequeued { admitted } => self.departures.get(&admitted).copied(),
            };
            if let Some(at) = at {
                pending.latest = pending.latest.max(at);
            } else {
                pending.unknown += 1;
                self.waiting.entry(enabler).or_default().push((moment, seq));
            }
        }
        if pending.unknown > 0 {
            self.pending.insert(seq, pending);
        } else if !event.enablers.is_empty() {
            self.decide(&pending);
        }
    }

    fn decide(&mut self, pending: &Pending) {
        let computed = pending.latest.saturating_add(pending.delay);
        if computed != pending.recorded {
            let Pending { seq, name: event, recorded, delay, .. } = *pending;
            self.note(Mismatch::Time { seq, event, recorded, computed, delay });
        }
    }

    /// Judges the events that waited for moments of the group of this lease or admission: the log now tells their
    /// times.
    fn learn(&mut self, of: Seq, at: impl Fn(Moment) -> Option<u64>) {
        for (moment, seq) in self.waiting.remove(&of).unwrap_or_default() {
            let (Some(pending), Some(at)) = (self.pending.get_mut(&seq), at(moment)) else { continue };
            pending.latest = pending.latest.max(at);
            pending.unknown -= 1;
            if pending.unknown == 0
                && let Some(pending) = self.pending.remove(&seq)
            {
                self.decide(&pending);
            }
        }
    }

    /// Follows each group through its records. Each record must name the one before it and hold only moments between
    /// them.
    fn follow(&mut self, event: &Event) {
        let seq = event.seq;
        match &event.kind {
            EventKind::Configured { operator, settings } if operator == "generate" => {
                let count =
                    |field: &str| settings.get(field).and_then(Value::as_int).unwrap_or_default().max(0) as usize;
                self.slots = Some(count("in_flight") * (count("samples") + 1));
            }
            EventKind::Leased { id, .. } | EventKind::Reissued { id, .. } => {
                self.open.insert(id.clone(), Open { leased: seq, completed: None, admitted: None });
            }
            EventKind::Completed { id, summary, .. } => {
                let Some(open) = self.open.get_mut(id) else { return };
                open.completed = Some(seq);
                let lease = open.leased;
                self.same(event, id, Cause::Leased, Some(lease));
                let ends: Vec<Option<u64>> = summary.samples.iter().map(|sample| sample.times.ended).collect();
                for &ended in ends.iter().flatten() {
                    self.within(event, id, "a sample ended", ended, self.time(lease));
                }
                let scored = summary.samples.iter().filter_map(|sample| sample.times.scored).max();
                let ended = Ended { samples: ends, scored };
                self.learn(lease, |moment| ended.at(moment));
                self.ends.insert(lease, ended);
                self.completed.push_back(lease);
                self.forget();
            }
            EventKind::Admitted { id } => {
                let Some(open) = self.open.get_mut(id) else { return };
                open.admitted = Some(seq);
                let completed = open.completed;
                self.same(event, id, Cause::Completed, completed);
            }
            EventKind::Excluded { id, dequeued, .. } => {
                let Some(open) = self.open.remove(id) else { return };
                self.same(event, id, Cause::Completed, open.completed);
                self.same(event, id, Cause::Admitted, open.admitted);
                self.left(event, id, open, *dequeued);
            }
            EventKind::BatchTaken { groups, .. } => {
                for group in groups {
                    let Some(open) = self.open.remove(&group.id) else { continue };
                    self.left(event, &group.id, open, group.dequeued);
                }
            }
            _ => {}
        }
    }

    /// Drops the ends of samples that cannot enable a lease any more.
    fn forget(&mut self) {
        while self.slots.is_some_and(|slots| self.completed.len() > slots)
            && let Some(lease) = self.completed.pop_front()
        {
            self.ends.remove(&lease);
        }
    }

    /// Checks that the enabler of this cause is the group's own record.
    fn same(&mut self, event: &Event, group: &GroupId, cause: Cause, expected: Option<Seq>) {
        let Some(expected) = expected else { return };
        let named = event.enablers.iter().filter(|enabler| enabler.cause == cause);
        let other = named.filter_map(|enabler| enabler.moment.event()).find(|&found| found != expected);
        if let Some(found) = other {
            let (seq, event, group) = (event.seq, event.kind.name(), group.clone());
            self.note(Mismatch::EnablerOther { seq, event, group, cause, found, expected });
        }
    }

    /// Notes when the group left the buffer.
    fn left(&mut self, event: &Event, group: &GroupId, open: Open, dequeued: Option<u64>) {
        let Some((admitted, at)) = open.admitted.zip(dequeued) else { return };
        self.within(event, group, "it left the buffer", at, self.time(admitted));
        self.departures.insert(admitted, at);
        self.learn(admitted, |_| Some(at));
    }

    fn within(&mut self, event: &Event, group: &GroupId, what: &'static str, recorded: u64, from: u64) {
        if !(from..=event.at).contains(&recorded) {
            let (seq, to, event, group) = (event.seq, event.at, event.kind.name(), group.clone());
            self.note(Mismatch::Moment { seq, event, group, what, recorded, from, to });
        }
    }
}

/// Checks that the time of each event of a log is that of its last enabler plus its recorded delay. Every answer to a
/// what-if question rests on this.
///
/// # Errors
/// Returns the first event's mismatch.
pub fn self_check<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<(), Mismatch> {
    let mut schedule = Schedule::new();
    events.into_iter().for_each(|event| schedule.push(event));
    schedule.finish()
}
