//! Verification: is this the log of a run that kept its contract? Answered from the log alone.

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

/// What verification found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Events read.
    pub events: u64,
    /// What is wrong, in the order of the log.
    pub violations: Vec<Violation>,
    /// The conservation law at the log's end.
    pub balance: Balance,
    /// The limits in force at the log's end.
    pub limits: Limits,
}

impl Report {
    /// Whether nothing is wrong.
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

/// Verifies a log, event by event: density, sessions and time; every lease settled exactly once and the conservation law
/// at every moment; retries linked; versions growing and never used again; gaps, lags, sizes, order and digests of
/// batches; steps after their batches and once.
///
/// Memory hardly grows with the log. What is open is kept whole, and the last few thousand groups that were settled; of
/// those before them only their names, about a byte each, since none may come again. An event leaves a byte (its kind,
/// which a later event may name as what enabled it), a training step fifty to a hundred (the digest that the same step,
/// made again, must have) and a publication thirty. In another order than first in, first out a settled group leaves some
/// 110 bytes until its session ends: only then is it certain who was in the buffer when.
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
    /// A verifier that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next event.
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

    /// What was found.
    pub fn finish(mut self) -> Report {
        self.departures.check(&mut self.report.violations);
        self.report.balance = self.ledger.balance().clone();
        self.report.limits = self.limits;
        self.report
    }
}

/// Verifies all events of a run, in order.
pub fn verify<'a>(events: impl IntoIterator<Item = &'a Event>) -> Report {
    let mut verifier = Verifier::new();
    events.into_iter().for_each(|event| verifier.push(event));
    verifier.finish()
}
