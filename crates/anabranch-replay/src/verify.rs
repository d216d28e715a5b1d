//! Verification: checks from the log alone whether a run kept its contract.

use std::fmt;

use anabranch_core::Event;
use serde::Serialize;

use crate::Violation;
use crate::buffer_order::Departures;
use crate::configuration::Limits;
use crate::event_sequence::{Retries, Sequence};
use crate::installed::Installed;
use crate::ledger::{Balance, Ledger};
use crate::training::Training;

/// The result of a verification. Its `Display` lists the violations and prints the conservation law.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// How many events were read.
    pub events: u64,
    /// The violations, in the order of the log.
    pub violations: Vec<Violation>,
    /// The conservation law at the log's end.
    pub balance: Balance,
    /// The limits in force at the log's end.
    pub limits: Limits,
}

impl Report {
    /// Returns whether there are no violations.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Balance { leased, consumed, in_flight, waiting, buffered, .. } = &self.balance;
        let excluded = self.balance.all_excluded();
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        match self.violations.len() {
            0 => write!(f, "sound: ")?,
            1 => write!(f, "1 violation: ")?,
            many => write!(f, "{many} violations: ")?,
        }
        write!(
            f,
            "{} events | {leased} leased = {consumed} consumed + {excluded} excluded + {in_flight} in flight + {waiting} \
             waiting + {buffered} buffered",
            self.events
        )
    }
}

/// Verifies a log, event by event.
///
/// It checks that sequence numbers, sessions and times follow each other; that every lease is settled exactly once and
/// the conservation law holds at every moment; that retries are linked; that versions grow and are never used again;
/// that gaps, lags, sizes, order and digests of batches are right; and that each step is made once, after its batch.
///
/// Memory hardly grows with the log. Open groups and the last few thousand settled groups are kept whole. Of groups
/// settled earlier only the names are kept, about a byte each, because no name may come again. An event takes one byte:
/// its kind, which a later event may name as its enabler. A training step takes fifty to a hundred bytes: the digest
/// that the same step must have if it is made again. A publication takes thirty bytes. If the buffer is not first in,
/// first out, a settled group takes some 110 bytes until its session ends, because only then its time in the buffer is
/// certain.
#[derive(Debug, Default)]
pub struct Verifier {
    sequence: Sequence,
    limits: Limits,
    ledger: Ledger,
    retries: Retries,
    installed: Installed,
    training: Training,
    departures: Departures,
    report: Report,
}

impl Verifier {
    /// Creates a verifier that has seen no event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next event of the run.
    pub fn push(&mut self, event: &Event) {
        let violations = &mut self.report.violations;
        self.limits.apply(event);
        self.sequence.apply(event, &self.ledger, violations);
        self.retries.apply(event, &self.limits, &self.ledger, violations);
        self.training.apply(event, &self.limits, &self.ledger, &self.installed, violations);
        self.departures.apply(event, &self.limits, &self.ledger, violations);
        self.installed.apply(event, violations);
        self.ledger.apply(event, violations);
        self.report.events += 1;
    }

    /// Returns the violations so far, with the balance and limits at the end.
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.departures.check(&mut self.report.violations);
        self.report.balance = self.ledger.balance().clone();
        self.report.limits = self.limits;
        self.report
    }
}

/// Verifies all events of a run, in order.
#[must_use]
pub fn verify<'a>(events: impl IntoIterator<Item = &'a Event>) -> Report {
    let mut verifier = Verifier::new();
    events.into_iter().for_each(|event| verifier.push(event));
    verifier.finish()
}
