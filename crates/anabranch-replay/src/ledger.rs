//! The ledger: the place of every lease of a run. Verification and audit keep one.

use std::collections::{BTreeMap, VecDeque};

use anabranch_core::{Digest, Event, EventKind, GroupId, GroupSummary, OldestVersion, Seq, Version};
use serde::Serialize;

use crate::Violation;
use crate::group_map::ById;
use crate::settled_groups::Settled;

/// How many settled groups are kept with their records, so that a violation can name the record that it contradicts. A
/// record that contradicts a settlement usually comes soon after it. Of groups settled earlier only the names are kept.
const REMEMBERED: usize = 1 << 14;

/// The place of a group.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Place {
    /// Leased and not completed.
    InFlight,
    /// Completed and not in the buffer.
    Waiting,
    /// In the buffer, or in a batch that is being assembled.
    Buffered,
    /// Consumed by a batch.
    Consumed,
    /// Excluded.
    Excluded,
}

impl Place {
    /// Returns the name of the place, in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::InFlight => "in flight",
            Self::Waiting => "waiting for room",
            Self::Buffered => "buffered",
            Self::Consumed => "consumed",
            Self::Excluded => "excluded",
        }
    }
}

/// A lease in the ledger.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) session: u32,
    pub(crate) first_leased: Seq,
    /// The last `Leased` or `Reissued` record.
    pub(crate) leased: Seq,
    pub(crate) reissues: u32,
    pub(crate) completed: Option<Seq>,
    pub(crate) admitted: Option<Seq>,
    pub(crate) settled: Option<Seq>,
    pub(crate) oldest: Option<OldestVersion>,
    pub(crate) newest: Option<Version>,
    pub(crate) tokens: u64,
    /// The version installed when the group was completed. The audit fills it in.
    pub(crate) completed_under: Option<Version>,
    pub(crate) payload: Digest,
}

impl Entry {
    fn leased(event: &Event) -> Self {
        Self {
            place: Place::InFlight,
            session: event.session,
            first_leased: event.seq,
            leased: event.seq,
            reissues: 0,
            completed: None,
            admitted: None,
            settled: None,
            oldest: None,
            newest: None,
            tokens: 0,
            completed_under: None,
            payload: Digest::default(),
        }
    }

    fn complete(&mut self, seq: Seq, summary: &GroupSummary, payload: Digest) {
        self.place = Place::Waiting;
        self.completed = Some(seq);
        self.oldest = summary.oldest();
        self.newest = summary.samples.iter().filter_map(|sample| sample.newest).max();
        self.tokens = summary.generated();
        self.payload = payload;
    }
}

/// The two sides of the conservation law: leased = consumed + excluded + in flight + waiting + buffered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Balance {
    /// Leases issued. A re-issue does not count again.
    pub leased: u64,
    /// Groups consumed by batches.
    pub consumed: u64,
    /// Groups excluded, by reason.
    pub excluded: BTreeMap<&'static str, u64>,
    /// Leases in flight.
    pub in_flight: u64,
    /// Completed groups that are not in the buffer.
    pub waiting: u64,
    /// Groups in the buffer, or in a batch that is being assembled.
    pub buffered: u64,
}

impl Balance {
    /// Returns how many groups were excluded, for any reason.
    pub fn all_excluded(&self) -> u64 {
        self.excluded.values().sum()
    }

    fn accounted(&self) -> u64 {
        self.consumed + self.all_excluded() + self.in_flight + self.waiting + self.buffered
    }
}

/// The places of all leases. It counts the left side of the conservation law from the events and the right side from
/// the places.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The groups that are open, and those settled last.
    entries: ById<Entry>,
    /// The groups settled last, in the order of their settlement.
    remembered: VecDeque<GroupId>,
    /// The groups settled before those.
    settled: Settled,
    /// The groups in the buffer, by their `Admitted` record.
    pub(crate) queue: BTreeMap<Seq, GroupId>,
    balance: Balance,
    off_by: i64,
}

impl Ledger {
    pub(crate) fn get(&self, id: &GroupId) -> Option<&Entry> {
        self.entries.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &GroupId) -> Option<&mut Entry> {
        self.entries.get_mut(id)
    }

    /// Returns whether the group was ever leased.
    pub(crate) fn knows(&self, id: &GroupId) -> bool {
        self.entries.contains_key(id) || self.settled.contains(id)
    }

    pub(crate) fn balance(&self) -> &Balance {
        &self.balance
    }

    /// Adds the next event, and its violations.
    pub(crate) fn apply(&mut self, event: &Event, violations: &mut Vec<Violation>) {
        let seq = event.seq;
        match &event.kind {
            EventKind::Leased { id, position } => self.lease(event, id, position.is_some(), violations),
            EventKind::Reissued { id, reissue } => self.reissue(seq, id, *reissue, violations),
            EventKind::Completed { id, summary, payload } => match self.entries.get_mut(id) {
                None => violations.push(self.absent(seq, id, "completed")),
                Some(entry) => {
                    if let Some(first) = entry.completed {
                        violations.push(Violation::CompletedTwice { seq, group: id.clone(), first });
                    } else if let Some(first) = entry.settled {
                        let (group, event) = (id.clone(), "completed");
                        violations.push(Violation::SettledTwice { seq, group, event, first });
                    } else {
                        entry.complete(seq, summary, *payload);
                        self.balance.in_flight -= 1;
                        self.balance.waiting += 1;
                    }
                }
            },
            EventKind::Admitted { id } => self.admit(seq, id, violations),
            EventKind::Excluded { id, reason, .. } => {
                *self.balance.excluded.entry(reason.name()).or_default() += 1;
                self.settle(seq, id, Place::Excluded, violations);
            }
            EventKind::BatchTaken { groups, .. } => {
                self.balance.consumed += groups.len() as u64;
                for group in groups {
                    self.settle(seq, &group.id, Place::Consumed, violations);
                }
            }
            EventKind::RunClosed { left } => {
                for id in left {
                    match self.entries.get(id).map(|entry| entry.settled) {
                        None => violations.push(self.absent(seq, id, "left")),
                        Some(Some(first)) => {
                            violations.push(Violation::LeftSettled { seq, group: id.clone(), first });
                        }
                        Some(None) => {}
                    }
                }
            }
            _ => return,
        }
        self.weigh(seq, violations);
    }

    fn lease(&mut self, event: &Event, id: &GroupId, fresh: bool, violations: &mut Vec<Violation>) {
        let seq = event.seq;
        if let Some(entry) = self.entries.get_mut(id) {
            // A group adopted again after a restart keeps its name: its lease begins anew.
            if entry.session < event.session && entry.settled.is_none() && !fresh {
                let before = std::mem::replace(entry, Entry::leased(event));
                self.leave(before.place, before.admitted);
                self.balance.in_flight += 1;
                return;
            }
            violations.push(Violation::LeasedTwice { seq, group: id.clone(), first: entry.first_leased });
        } else if self.settled.contains(id) {
            violations.push(Violation::SettledLongBefore { seq, group: id.clone(), event: "leased" });
        } else {
            self.entries.insert(id.clone(), Entry::leased(event));
            self.balance.in_flight += 1;
        }
        self.balance.leased += 1;
    }

    fn reissue(&mut self, seq: Seq, id: &GroupId, reissue: u32, violations: &mut Vec<Violation>) {
        let Some(entry) = self.entries.get_mut(id) else {
            return violations.push(self.absent(seq, id, "reissued"));
        };
        if entry.place != Place::InFlight {
            let place = entry.place.name();
            return violations.push(Violation::ReissuedSettled { seq, group: id.clone(), place });
        }
        let expected = entry.reissues + 1;
        if reissue != expected {
            violations.push(Violation::ReissueCount { seq, group: id.clone(), expected, found: reissue });
        }
        (entry.leased, entry.reissues) = (seq, reissue);
    }

    fn admit(&mut self, seq: Seq, id: &GroupId, violations: &mut Vec<Violation>) {
        let event = "admitted";
        let Some(entry) = self.entries.get_mut(id) else {
            return violations.push(self.absent(seq, id, event));
        };
        match (entry.settled, entry.admitted, entry.place) {
            (Some(first), ..) => violations.push(Violation::SettledTwice { seq, group: id.clone(), event, first }),
            (_, Some(first), _) => violations.push(Violation::AdmittedTwice { seq, group: id.clone(), first }),
            (_, _, Place::InFlight) => violations.push(Violation::NotCompleted { seq, group: id.clone(), event }),
            _ => {
                entry.place = Place::Buffered;
                entry.admitted = Some(seq);
                self.queue.insert(seq, id.clone());
                self.balance.waiting -= 1;
                self.balance.buffered += 1;
            }
        }
    }

    fn settle(&mut self, seq: Seq, id: &GroupId, place: Place, violations: &mut Vec<Violation>) {
        let event = place.name();
        let Some(entry) = self.entries.get_mut(id) else {
            return violations.push(self.absent(seq, id, event));
        };
        if let Some(first) = entry.settled {
            return violations.push(Violation::SettledTwice { seq, group: id.clone(), event, first });
        }
        if entry.completed.is_none() {
            violations.push(Violation::NotCompleted { seq, group: id.clone(), event });
        }
        let (before, admitted) = (std::mem::replace(&mut entry.place, place), entry.admitted);
        entry.settled = Some(seq);
        self.leave(before, admitted);
        self.remembered.push_back(id.clone());
        if self.remembered.len() > REMEMBERED
            && let Some(id) = self.remembered.pop_front()
        {
            self.entries.remove(&id);
            self.settled.insert(&id);
        }
    }

    /// Returns the violation of a record about a group that has no entry.
    fn absent(&self, seq: Seq, id: &GroupId, event: &'static str) -> Violation {
        let group = id.clone();
        if self.settled.contains(id) {
            Violation::SettledLongBefore { seq, group, event }
        } else {
            Violation::NotLeased { seq, group, event }
        }
    }

    /// Takes a group out of its place.
    fn leave(&mut self, place: Place, admitted: Option<Seq>) {
        match place {
            Place::InFlight => self.balance.in_flight -= 1,
            Place::Waiting => self.balance.waiting -= 1,
            Place::Buffered => {
                self.balance.buffered -= 1;
                admitted.and_then(|admitted| self.queue.remove(&admitted));
            }
            Place::Consumed | Place::Excluded => {}
        }
    }

    /// Checks the conservation law. An imbalance is reported at the event that causes it, not at every later event.
    fn weigh(&mut self, seq: Seq, violations: &mut Vec<Violation>) {
        let off_by = self.balance.leased as i64 - self.balance.accounted() as i64;
        if off_by != std::mem::replace(&mut self.off_by, off_by) {
            let Balance { leased, consumed, in_flight, waiting, buffered, .. } = self.balance;
            let excluded = self.balance.all_excluded();
            violations.push(Violation::Unbalanced { seq, leased, consumed, excluded, in_flight, waiting, buffered });
        }
    }
}
