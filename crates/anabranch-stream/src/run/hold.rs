//! Closing submissions: for an evaluation on shared engines, or for the user's own reasons.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use anabranch_core::{EventKind, Stamp, Version};
use futures::lock::OwnedMutexGuard;

use super::{Draft, Run};

/// Keeps submissions closed while it lives; nested holds reopen only after the last. See [`Run::hold`].
#[derive(Debug)]
#[must_use = "submissions reopen when this is dropped"]
pub struct Hold(Run);

impl Drop for Hold {
    fn drop(&mut self) {
        let reopened = || self.0.record(vec![Draft::new(EventKind::Reopened, Vec::new())], &[]).stamp(0);
        self.0.gate().release(self.0.now(), reopened);
    }
}

/// The engines of a run for an evaluation alone: see [`Run::evaluation`].
#[derive(Debug)]
#[must_use = "submissions reopen when this is dropped"]
pub struct Evaluation {
    // In this order: publications may go on before submissions reopen, not after.
    _turn: Arc<OwnedMutexGuard<()>>,
    hold: Hold,
}

impl Evaluation {
    /// The version that the whole evaluation runs on; nothing where none was installed.
    pub fn version(&self) -> Option<Version> {
        self.hold.0.clock().version()
    }
}

/// A request on an engine, counted as running while this lives: see [`Run::submit`].
#[derive(Debug)]
#[must_use = "the request counts as ended when this is dropped"]
pub(crate) struct Submission(Run);

impl Drop for Submission {
    fn drop(&mut self) {
        self.0.gate().leave(|| self.0.now());
    }
}

/// Generation stands still while this lives: see [`Run::stand_still`].
#[derive(Debug)]
#[must_use = "generation goes on when this is dropped"]
pub(crate) struct Standstill(Run);

impl Drop for Standstill {
    fn drop(&mut self) {
        self.0.gate().resume(self.0.now());
    }
}

impl Run {
    /// Closes submissions until the guard is dropped: no lease is issued and no request goes to an engine, a further
    /// turn or another try of a sample that is under way among them. What runs on the engines goes on. Recorded as
    /// `Held` and `Reopened`.
    pub fn hold(&self) -> Hold {
        let held = || drop(self.record(vec![Draft::new(EventKind::Held, Vec::new())], &[]));
        self.gate().hold(self.now(), held);
        Hold(self.clone())
    }

    /// The engines for an evaluation: closes submissions, waits until what runs on the engines has finished and until no
    /// publication is under way, and keeps both so until the guard is dropped, whatever happens meanwhile. Nothing waits
    /// for the buffer: completed groups may wait for room. Evaluations may nest, and share their hold; the evaluation
    /// itself is a chain on a run of its own, with the same engine.
    ///
    /// Before the initial installation the engines must have weights of their own: publications wait for the evaluation.
    /// Requests end only while their stream is polled: behind a `.buffer` that is always so; without one, keep polling
    /// the chain, or ask between two of its batches, when nothing is in flight.
    ///
    /// # Cancel safety
    /// Dropping the future reopens submissions.
    pub async fn evaluation(&self) -> Evaluation {
        let hold = self.hold();
        let turn = self.shared_publication_turn().await;
        poll_fn(|cx| if self.gate().is_idle(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }).await;
        Evaluation { _turn: turn, hold }
    }

    /// Whether submissions are open; if not, `waker` is woken when they reopen.
    pub(crate) fn submissions_open(&self, waker: &Waker) -> bool {
        self.gate().is_open(waker)
    }

    /// The record of the last reopening of submissions in this session.
    pub(crate) fn reopened(&self) -> Option<Stamp> {
        self.gate().reopened()
    }

    /// Waits until submissions are open; from then on until the guard is dropped a request counts as running.
    pub(crate) async fn submit(&self) -> Submission {
        poll_fn(|cx| if self.gate().try_enter(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }).await;
        Submission(self.clone())
    }

    /// Requests that run on engines now.
    pub(crate) fn running(&self) -> usize {
        self.gate().running()
    }

    /// A publication has stopped generation, until the guard is dropped.
    pub(crate) fn stand_still(&self) -> Standstill {
        self.gate().pause(self.now());
        Standstill(self.clone())
    }

    /// Nanoseconds since the session's start in which generation did not stand still: neither stopped by a publication,
    /// nor held with nothing running any more. Timeouts of generation are measured in it.
    pub(crate) fn generation_time(&self) -> u64 {
        self.gate().moved(self.now())
    }

    /// Ready when generation does not stand still.
    pub(crate) async fn moving(&self) {
        poll_fn(|cx| if self.gate().is_moving(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::future::FutureExt;

    use crate::Run;

    #[test]
    fn an_evaluation_waits_for_what_runs_and_for_publications() {
        let run = Run::in_memory();
        let (request, turn) = (block_on(run.submit()), block_on(run.publication_turn()));
        let mut evaluation = Box::pin(run.evaluation());
        assert!(evaluation.as_mut().now_or_never().is_none());
        assert!(run.submit().now_or_never().is_none(), "submissions are closed while it waits");
        drop(turn);
        assert!(evaluation.as_mut().now_or_never().is_none());
        drop(request);
        let evaluation = evaluation.now_or_never().expect("nothing runs, nothing is published");
        assert!(run.publication_turn().now_or_never().is_none(), "it runs on one version");
        let nested = run.evaluation().now_or_never().expect("evaluations share their hold");
        drop(evaluation);
        assert!(run.submit().now_or_never().is_none() && run.publication_turn().now_or_never().is_none());
        drop(nested);
        assert!(run.submit().now_or_never().is_some() && run.publication_turn().now_or_never().is_some());
    }

    #[test]
    fn giving_up_an_evaluation_reopens_submissions() {
        let run = Run::in_memory();
        let request = block_on(run.submit());
        assert!(run.evaluation().now_or_never().is_none());
        assert!(run.submit().now_or_never().is_some());
        drop(request);
    }
}
