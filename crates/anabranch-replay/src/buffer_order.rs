//! The order of the buffer: when groups left it, and whether it was their turn.

use std::collections::BTreeMap;

use anabranch_core::{Event, EventKind, GroupId, OldestVersion, Order, Seq};

use crate::Violation;
use crate::configuration::Limits;
use crate::group_map::ById;
use crate::ledger::Ledger;

/// The groups that entered the buffer and the groups that left it, by session.
///
/// In a first-in, first-out buffer no group leaves before a group that was admitted earlier. In another order no group
/// leaves while the buffer has a group that must leave first. A departure is judged only if the log is certain. A group
/// of the same session was in the buffer if it was admitted at an earlier time and left at a later time, or in a later
/// place of a batch. An unsettled group was in the buffer until the session's last batch was complete.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    /// Groups that are admitted and not settled.
    inside: ById<Entrance>,
    /// Departures by session, with the order of the session's buffer if that is known. Departures from a first-in,
    /// first-out buffer are removed once they are judged.
    left: BTreeMap<u32, (Option<Order>, Vec<Departure>)>,
    /// For each session with a first-in, first-out buffer, the last departure that was judged.
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

/// A group's turn to leave. The lowest turn leaves first.
type Turn = (u64, Seq);

type Inside<'a> = BTreeMap<Turn, &'a GroupId>;

#[derive(Debug)]
struct Departure {
    entered: Entrance,
    dequeued: u64,
    settled: Seq,
    /// The group's place in the batch that took it, if one did.
    place: Option<usize>,
    group: GroupId,
}

impl Departures {
    /// Adds the next event. The ledger must not have it yet.
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
                // Every group admitted before those still inside has left. If an earlier session had another order, its
                // departures are kept, because later departures show which groups stayed inside then.
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

    /// Judges all departures so far.
    pub(crate) fn check(mut self, violations: &mut Vec<Violation>) {
        while let Some((session, (order, mut left))) = self.left.pop_first() {
            match order {
                Some(Order::Fifo) => {
                    first_in_first_out(self.judged.remove(&session), &mut left, Seq(u64::MAX), violations);
                }
                Some(order) => {
                    // Groups that a later session settled were still inside when this session ended.
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

/// Judges the departures of groups admitted before `until`, and forgets all of them but the last, which it returns.
/// `judged` is the last departure that was judged before.
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
    // The log does not tell when groups of earlier sessions came back. Their departures are judged, but no other group
    // has to wait for them.
    let leaving = left.iter().filter(|departure| departure.entered.session == session);
    let leaving = leaving.map(|departure| (departure.entered, &departure.group, Some(departure.dequeued)));
    let staying = staying.into_iter().map(|(entered, group)| (entered, group, None));
    // A group that left at the moment at which it entered kept no other group inside.
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
        // If several groups left at one moment, only those in batches have a known order.
        let (taken, excluded): (Vec<_>, Vec<_>) = moment.iter().partition(|departure| departure.place.is_some());
        for departure in &excluded {
            leaving.remove(&departure.entered.turn(order));
        }
        for departure in taken {
            leaving.remove(&departure.entered.turn(order));
            judge(departure, &leaving, &staying);
        }
        for departure in excluded {
            // After the last batch an unsettled group may have left as well.
            let none = Inside::new();
            judge(departure, &leaving, if now < last_taken { &staying } else { &none });
        }
    }
}
