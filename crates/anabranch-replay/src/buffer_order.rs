//! The order of the buffer: when groups left it, and whether it was their turn.

use std::collections::BTreeMap;

use anabranch_core::{Event, EventKind, GroupId, OldestVersion, Order, Seq};

use crate::Violation;
use crate::configuration::Limits;
use crate::group_map::ById;
use crate::ledger::Ledger;

/// What entered the buffer and what left it, by session.
///
/// First in, first out: never before one that was admitted earlier. In another order: never while one that had to leave
/// before it was in the buffer. That is judged where the log is certain of it. A group of the same session was in the
/// buffer if it was admitted at an earlier time and left at a later one (or in a later place of a batch); one that nobody
/// settled was there until the session's last batch was complete, whose groups left before it.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    /// Admitted, not settled.
    inside: ById<Entrance>,
    /// By the session in which they left, with the order of its buffer where that is known; of a buffer that is first in,
    /// first out those alone that are not yet judged.
    left: BTreeMap<u32, (Option<Order>, Vec<Departure>)>,
    /// By session, the last departure judged of a buffer that is first in, first out.
    judged: BTreeMap<u32, Departure>,
}

#[derive(Copy, Clone, Debug)]
struct Entrance {
    session: u32,
    at: u64,
    admitted: Seq,
    oldest: Option<OldestVersion>,
}

impl Entrance {
    fn turn(&self, order: Order) -> Turn {
        (order.rank(self.oldest), self.admitted)
    }
}

/// The lowest leaves first.
type Turn = (u64, Seq);

type Inside<'a> = BTreeMap<Turn, &'a GroupId>;

#[derive(Debug)]
struct Departure {
    entered: Entrance,
    dequeued: u64,
    settled: Seq,
    /// Its place, where a batch took it.
    place: Option<usize>,
    group: GroupId,
}

impl Departures {
    /// Takes the next event, before the ledger does.
    pub(crate) fn apply(&mut self, event: &Event, limits: &Limits, ledger: &Ledger, violations: &mut Vec<Violation>) {
        match &event.kind {
            EventKind::Admitted { id } => {
                let Some(entry) = ledger.get(id).filter(|entry| entry.admitted.is_none()) else { return };
                let (session, at, admitted, oldest) = (event.session, event.at, event.seq, entry.oldest);
                let entered = Entrance { session, at, admitted, oldest };
                self.inside.insert(id.clone(), entered);
            }
            EventKind::BatchTaken { groups, .. } => {
                let mut last: Option<(u64, &GroupId)> = None;
                for (group, place) in groups.iter().zip(0..) {
                    violations.extend(self.leave(event, limits, &group.id, group.dequeued, Some(place)));
                    let Some(dequeued) = group.dequeued else { continue };
                    if let Some((before, after)) = last
                        && dequeued < before
                    {
                        let (seq, group, after) = (event.seq, group.id.clone(), after.clone());
                        violations.push(Violation::DequeuedEarlier { seq, group, after });
                    }
                    last = Some((dequeued, &group.id));
                }
                // None admitted before those that are still inside can leave any more; where an earlier session had
                // another order, what left later shows what stayed then.
                let inside = ledger.queue.first_key_value().map_or(event.seq, |(admitted, _)| *admitted);
                if self.left.values().all(|(order, _)| *order == Some(Order::Fifo))
                    && let Some((_, left)) = self.left.get_mut(&event.session)
                {
                    let judged = first_in_first_out(self.judged.remove(&event.session), left, inside, violations);
                    self.judged.extend(judged.map(|judged| (event.session, judged)));
                }
            }
            EventKind::Excluded { id, dequeued, .. } => {
                violations.extend(self.leave(event, limits, id, *dequeued, None));
            }
            _ => {}
        }
    }

    fn leave(
        &mut self,
        event: &Event,
        limits: &Limits,
        group: &GroupId,
        dequeued: Option<u64>,
        place: Option<usize>,
    ) -> Option<Violation> {
        let entered = self.inside.remove(group)?;
        let (dequeued, settled, group) = (dequeued?, event.seq, group.clone());
        let (order, left) = self.left.entry(event.session).or_default();
        *order = limits.order;
        left.push(Departure { entered, dequeued, settled, place, group: group.clone() });
        let early = entered.session == event.session && dequeued < entered.at;
        early.then_some(Violation::DequeuedUnadmitted { seq: settled, group, admitted: entered.admitted })
    }

    /// Judges all that was seen.
    pub(crate) fn check(mut self, violations: &mut Vec<Violation>) {
        while let Some((session, (order, mut left))) = self.left.pop_first() {
            match order {
                Some(Order::Fifo) => {
                    first_in_first_out(self.judged.remove(&session), &mut left, Seq(u64::MAX), violations);
                }
                Some(order) => {
                    // Those that a later session settled were still inside when this one ended.
                    let later = self.left.values().flat_map(|(_, left)| left);
                    let later = later.map(|departure| (departure.entered, &departure.group));
                    let staying = later.chain(self.inside.iter().map(|(group, &entered)| (entered, group)));
                    let staying = staying.filter(|(entered, _)| entered.session == session);
                    ranked(session, left, staying.collect(), order, violations);
                }
                None => {}
            }
        }
    }
}

/// Judges the departures of a session that were admitted before `until`, and forgets them but for the last: `judged` is
/// that of the time before.
fn first_in_first_out(
    mut judged: Option<Departure>,
    left: &mut Vec<Departure>,
    until: Seq,
    violations: &mut Vec<Violation>,
) -> Option<Departure> {
    left.sort_by_key(|departure| departure.entered.admitted);
    let before = left.partition_point(|departure| departure.entered.admitted < until);
    for later in left.drain(..before) {
        if let Some(earlier) = judged
            && later.dequeued < earlier.dequeued
        {
            let (seq, group, overtaken) = (later.settled, later.group.clone(), earlier.group);
            violations.push(Violation::Overtook { seq, group, overtaken });
        }
        judged = Some(later);
    }
    judged
}

/// Follows the buffer of a session from departure to departure.
fn ranked(
    session: u32,
    mut left: Vec<Departure>,
    staying: Vec<(Entrance, &GroupId)>,
    order: Order,
    violations: &mut Vec<Violation>,
) {
    left.sort_by_key(|departure| (departure.dequeued, departure.settled, departure.place));
    let last_taken = left.iter().rfind(|departure| departure.place.is_some()).map_or(0, |last| last.dequeued);
    // Groups of earlier sessions came back at a time that nobody recorded: they are judged, but not waited for.
    let leaving = left.iter().filter(|departure| departure.entered.session == session);
    let leaving = leaving.map(|departure| (departure.entered, &departure.group, Some(departure.dequeued)));
    let staying = staying.into_iter().map(|(entered, group)| (entered, group, None));
    // One that left at the moment it came was in nobody's way.
    let stayed = |(entered, _, dequeued): &(Entrance, &GroupId, Option<u64>)| dequeued.is_none_or(|at| entered.at < at);
    let mut entering: Vec<(Entrance, &GroupId, Option<u64>)> = leaving.chain(staying).filter(stayed).collect();
    entering.sort_by_key(|(entered, ..)| entered.admitted);
    let mut entering = entering.into_iter().peekable();
    let (mut leaving, mut staying) = (Inside::new(), Inside::new());
    for moment in left.chunk_by(|a, b| a.dequeued == b.dequeued) {
        let now = moment[0].dequeued;
        while let Some((entered, group, dequeued)) = entering.next_if(|(entered, ..)| entered.at < now) {
            let inside = if dequeued.is_some() { &mut leaving } else { &mut staying };
            inside.insert(entered.turn(order), group);
        }
        let mut judge = |departure: &Departure, leaving: &Inside<'_>, staying: &Inside<'_>| {
            let due = [leaving.first_key_value(), staying.first_key_value()].into_iter().flatten().min();
            let Some((_, &due)) = due.filter(|(turn, _)| **turn < departure.entered.turn(order)) else { return };
            let (seq, group, due) = (departure.settled, departure.group.clone(), due.clone());
            violations.push(Violation::NotDue { seq, group, due, order });
        };
        // In which order several left at one moment is known of those in batches alone.
        let (taken, excluded): (Vec<_>, Vec<_>) = moment.iter().partition(|departure| departure.place.is_some());
        for departure in &excluded {
            leaving.remove(&departure.entered.turn(order));
        }
        for departure in taken {
            leaving.remove(&departure.entered.turn(order));
            judge(departure, &leaving, &staying);
        }
        for departure in excluded {
            // After the last batch a group that nobody settled may have left as well.
            let none = Inside::new();
            judge(departure, &leaving, if now < last_taken { &staying } else { &none });
        }
    }
}
