//! Pacing: limits how far generation may run ahead, instead of throwing stale groups away.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Lease, Run};
use anabranch_core::{Error, Fields, Stamp, Value};
use futures::Stream;
use futures::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::MaxStaleness;
use crate::upstream::Upstream;

pin_project! {
    /// Stream for [`pace`](crate::RolloutExt::pace).
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct Pace<S> {
        #[pin]
        input: Upstream<S>,
        lead: MaxStaleness,
        batch: u64,
        interval: u64,
        run: Option<Run>,
        // Leases not passed on yet: the last one taken, and the ones before the last lease of an earlier session.
        waiting: VecDeque<Lease>,
    }
}

impl<S> Pace<S> {
    pub(crate) fn new(input: S, lead: MaxStaleness, batch: usize) -> Self {
        assert!(batch > 0, "batch: expected the number that .batch has, at least 1, found 0");
        Self {
            input: Upstream::new(input),
            lead,
            batch: batch as u64,
            interval: 1,
            run: None,
            waiting: VecDeque::new(),
        }
    }

    /// Sets after how many training steps weights are published: give the same number as to `publish_every`. The
    /// default is 1. If weights are published less often than that, generation waits forever for the next publication.
    ///
    /// # Panics
    /// Panics if `steps` is 0.
    pub fn update_interval(mut self, steps: u64) -> Self {
        assert!(steps > 0, "update_interval: expected at least 1 step, found 0");
        self.interval = steps;
        self
    }
}

/// The bound on the total number of groups: `(s + (η + 1)·k)·B`.
fn bound(step: u64, lead: MaxStaleness, interval: u64, batch: u64) -> u64 {
    step.saturating_add(lead.0.saturating_add(1).saturating_mul(interval)).saturating_mul(batch)
}

/// Whether another lease may be issued, and the event that allowed it: the later of the last installation and the last
/// exclusion.
fn room(run: &Run, lead: MaxStaleness, interval: u64, batch: u64) -> (bool, Option<Stamp>) {
    let clock = run.clock();
    let step = clock.version().and_then(|version| clock.step_of(version)).map_or(0, |step| step.0);
    let since = clock.published().into_iter().chain(run.last_excluded()).max_by_key(|stamp| stamp.at);
    drop(clock);
    (run.lead() < bound(step, lead, interval, batch), since)
}

impl<S: Stream<Item = Result<Lease, Error>>> Stream for Pace<S> {
    type Item = Result<Lease, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            if let Some(run) = this.run {
                // Check after registering the wakers, so that an event that makes room in between is not missed.
                run.wake_on_publication(cx.waker());
                run.wake_on_departure(cx.waker());
                let (open, since) = room(run, *this.lead, *this.interval, *this.batch);
                if open && let Some(mut lease) = this.waiting.pop_front() {
                    lease.pace(since);
                    return Poll::Ready(Some(Ok(lease)));
                }
                // Leases of earlier sessions count already. They pass whatever the bound is; otherwise nothing would
                // ever make room.
                if !open && run.left_over() == 0 {
                    return Poll::Pending;
                }
            }
            let lease = match this.input.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(lease))) => lease,
                Poll::Ready(None) if !this.waiting.is_empty() => return Poll::Pending,
                other => return other,
            };
            if this.run.is_none() {
                let settings = Fields::from([
                    ("max_staleness".to_owned(), Value::from(this.lead.0)),
                    ("batch".to_owned(), Value::from(*this.batch)),
                    ("publish_every".to_owned(), Value::from(*this.interval)),
                ]);
                if let Err(error) = lease.run().configure("pace", settings) {
                    return this.input.fail(error);
                }
                *this.run = Some(lease.run().clone());
            }
            if lease.was_leased() {
                return Poll::Ready(Some(Ok(lease)));
            }
            this.waiting.push_back(lease);
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.input.size_hint().1.and_then(|most| most.checked_add(self.waiting.len())))
    }
}

impl<S: Stream<Item = Result<Lease, Error>>> FusedStream for Pace<S> {
    fn is_terminated(&self) -> bool {
        self.input.has_ended() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Worked examples of the formula.
    #[test]
    fn the_bound_generalises_areals_to_an_interval() {
        assert_eq!(bound(0, MaxStaleness(2), 1, 4), 12);
        assert_eq!(bound(5, MaxStaleness(2), 1, 4), 32);
        assert_eq!(bound(0, MaxStaleness(0), 3, 4), 12, "without the interval the next publication would starve");
        let (bound, consumed) = (bound(50, MaxStaleness(1), 1, 4), 200);
        assert_eq!(bound - consumed, 8);
        assert_eq!(bound - consumed - 5, 3, "with five buffered");
    }
}
