//! The sequence of events, and the links between them: what holds before any event is understood.

use anabranch_core::{Cause, Enabler, Event, EventKind, Moment, Seq, Then};

use crate::Violation;
use crate::group_map::ById;
use crate::ledger::Ledger;

/// Checks the order of events, their sessions and times, and the links to the events that enabled them.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    next: Seq,
    session: u32,
    at: u64,
    /// The kind of each event so far, as an index into `names`.
    kinds: Vec<u8>,
    names: Vec<&'static str>,
}

impl Sequence {
    /// Adds the next event. The ledger must not have it yet.
    pub(crate) fn apply(&mut self, event: &Event, ledger: &Ledger, violations: &mut Vec<Violation>) {
        let seq = event.seq;
        if seq != self.next {
            violations.push(Violation::NotDense { expected: self.next, found: seq });
        }
        let first = self.kinds.is_empty();
        if first && !matches!(event.kind, EventKind::RunOpened { .. }) {
            violations.push(Violation::NotOpened { seq, event: event.kind.name() });
        }
        let resumed = matches!(event.kind, EventKind::RunResumed { .. });
        let expected = if resumed { self.session + 1 } else { self.session };
        if !first && event.session != expected {
            violations.push(Violation::Session { seq, expected, found: event.session });
        }
        if !first && event.session == self.session && event.at < self.at {
            violations.push(Violation::TimeBackwards { seq, by: self.at - event.at });
        }
        for enabler in &event.enablers {
            self.link(event, *enabler, ledger, violations);
        }
        self.remember(event);
        (self.next, self.session, self.at) = (Seq(seq.0 + 1), event.session, event.at);
    }

    fn remember(&mut self, event: &Event) {
        let name = event.kind.name();
        let index = self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        });
        // The places of missing events stay empty, so that links across them are still checked.
        let place = usize::try_from(event.seq.0).unwrap_or(usize::MAX);
        if place >= self.kinds.len() && place < self.kinds.len() + (1 << 20) {
            self.kinds.resize(place, u8::MAX);
            self.kinds.push(index as u8);
        }
    }

    fn kind(&self, seq: Seq) -> Option<&'static str> {
        let kind = *self.kinds.get(usize::try_from(seq.0).ok()?)?;
        self.names.get(usize::from(kind)).copied()
    }

    fn link(
        &self,
        event: &Event,
        Enabler { cause, moment }: Enabler,
        ledger: &Ledger,
        violations: &mut Vec<Violation>,
    ) {
        let seq = event.seq;
        let enabler = moment.seq();
        if enabler >= seq {
            return violations.push(Violation::EnablerLater { seq, enabler });
        }
        if let (Moment::Event(_), Some(kind)) = (moment, self.kind(enabler))
            && !allowed(cause).is_empty()
            && !allowed(cause).contains(&kind)
        {
            violations.push(Violation::EnablerKind { seq, cause, enabler, event: kind });
        }
        let Some(group) = event.kind.group() else { return };
        let Some(entry) = ledger.get(group) else { return };
        let expected = match (cause, &event.kind) {
            (Cause::Leased, EventKind::Completed { .. }) => Some(entry.leased),
            (Cause::Completed, EventKind::Admitted { .. } | EventKind::Excluded { .. }) => entry.completed,
            (Cause::Admitted, EventKind::Excluded { .. }) => entry.admitted,
            _ => return,
        };
        if moment.event() != expected {
            let group = group.clone();
            violations.push(Violation::EnablerGroup { seq, group, cause, enabler, expected });
        }
    }
}

/// Returns the events that a cause can name. The list is empty if the cause can name anything.
fn allowed(cause: Cause) -> &'static [&'static str] {
    match cause {
        // A checkpoint or a resumption of generation may lie between the opening or the step and what it lets happen.
        Cause::Opened => &["run_opened", "run_resumed", "checkpointed", "generation_resumed"],
        Cause::Retry => &["excluded"],
        Cause::Leased => &["leased", "reissued"],
        Cause::Completed => &["completed"],
        Cause::Admitted => &["admitted"],
        Cause::Taken => &["batch_taken"],
        Cause::Stepped => &["stepped", "restepped", "checkpointed", "generation_resumed", "run_resumed"],
        Cause::Publishing => &["publishing"],
        Cause::Installed => &["published", "reinstalled"],
        Cause::Reopened => &["reopened"],
        Cause::Pace => &["excluded", "published", "reinstalled"],
        _ => &[],
    }
}

/// Checks that exactly one exclusion queues every later attempt at a prompt.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    queued: ById<Seq>,
}

impl Retries {
    /// Adds the next event.
    pub(crate) fn apply(
        &mut self,
        event: &Event,
        limits: &crate::Limits,
        ledger: &Ledger,
        violations: &mut Vec<Violation>,
    ) {
        let seq = event.seq;
        match &event.kind {
            EventKind::Excluded { id, reason, then, .. } => {
                let retriable = matches!(reason.name(), "aborted" | "stale");
                if let Then::Retry(next) = then {
                    if *next != id.retry() {
                        let (group, next) = (id.clone(), next.clone());
                        violations.push(Violation::RetryMislinked { seq, group, next });
                    }
                    if !retriable {
                        let (group, reason) = (id.clone(), reason.name());
                        violations.push(Violation::RetryForbidden { seq, group, reason });
                    }
                    self.queued.insert(next.clone(), seq);
                }
                if let (Then::Exhausted, Some(max_attempts)) = (then, limits.max_attempts)
                    && id.attempt + 1 < max_attempts
                {
                    let (group, attempt) = (id.clone(), id.attempt);
                    violations.push(Violation::ExhaustedEarly { seq, group, attempt, max_attempts });
                }
            }
            EventKind::Leased { id, position } if limits.source && position.is_none() => {
                let queued = self.queued.remove(id);
                if id.attempt > 0 && queued.is_none() && !ledger.knows(id) {
                    violations.push(Violation::RetryUnlinked { seq, group: id.clone() });
                }
                if let Some(max_attempts) = limits.max_attempts.filter(|max| id.attempt >= *max) {
                    let (group, attempt) = (id.clone(), id.attempt);
                    violations.push(Violation::TooManyAttempts { seq, group, attempt, max_attempts });
                }
            }
            _ => {}
        }
    }
}
