//! Closes submissions, for an evaluation on shared engines or for the user's own purposes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use anabranch_core::{EventKind, Stamp, Version};
use futures::lock::OwnedMutexGuard;

use super::{Draft, Run};

/// Keeps submissions closed while it exists. With several holds, submissions reopen after the last one. See
/// [`Run::hold`].
#[derive(Debug)]
#[must_use = "submissions reopen when this is dropped"]
pub struct Hold(Run);

impl Drop for Hold {
    fn drop(&mut self) {
        let reopened = || self.0.record(vec![Draft::new(EventKind::Reopened, Vec::new())], &[]).stamp(0);
        self.0.gate().release(self.0.now(), reopened);
    }
}

/// Exclusive use of a run's engines for an evaluation: see [`Run::evaluation`].
#[derive(Debug)]
#[must_use = "submissions reopen when this is dropped"]
pub struct Evaluation {
    // The order of the fields matters: publications must be allowed before submissions reopen.
    _turn: Arc<OwnedMutexGuard<()>>,
    hold: Hold,
}

impl Evaluation {
    /// The version of the whole evaluation; `None` if no version was installed.
    pub fn version(&self) -> Option<Version> {
        self.hold.0.clock().version()
    }
}

/// A request on an engine, which counts as running while this exists: see [`Run::submit`].
#[derive(Debug)]
#[must_use = "the request counts as ended when this is dropped"]
pub(crate) struct Submission(Run);

impl Drop for Submission {
    fn drop(&mut self) {
        self.0.gate().leave(|| self.0.now());
    }
}

/// Generation counts as paused while this exists: see [`Run::stand_still`].
#[derive(Debug)]
#[must_use = "generation resumes when this is dropped"]
pub(crate) struct Standstill(Run);

impl Drop for Standstill {
    fn drop(&mut self) {
        self.0.gate().resume(self.0.now());
    }
}

impl Run {
    /// Closes submissions until the guard is dropped: no lease is issued and no request goes to an engine, not even for
    /// a further turn or a retry of a running sample. Running requests continue. The log records `Held` and `Reopened`.
    pub fn hold(&self) -> Hold {
        let held = || drop(self.record(vec![Draft::new(EventKind::Held, Vec::new())], &[]));
        self.gate().hold(self.now(), held);
        Hold(self.clone())
    }

    /// Gives the caller exclusive use of the engines for an evaluation. It closes submissions and waits until all
    /// running requests have finished and no publication is in progress. Both stay so until the guard is dropped, even
    /// by an error or panic. The evaluation does not wait for the buffer: completed groups may wait for room.
    /// Evaluations may overlap and then share their hold. The evaluation itself is a chain on a run of its own, with
    /// the same engine.
    ///
    /// Before the initial installation the engines must have weights from elsewhere, because publications wait for the
    /// evaluation. Requests end only while their stream is polled. Behind a `.buffer` that is always the case; without
    /// one, keep polling the chain, or start the evaluation between two batches, when nothing is in flight.
    ///
    /// # Cancel safety
    /// Dropping the future reopens submissions.
    pub async fn evaluation(&self) -> Evaluation {
        let hold = self.hold();
        let turn = self.shared_publication_turn().await;
        poll_fn(|cx| if self.gate().is_idle(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }).await;
        Evaluation { _turn: turn, hold }
    }

    /// Whether submissions are open. If not, `waker` is woken when they reopen.
    pub(crate) fn submissions_open(&self, waker: &Waker) -> bool {
        self.gate().is_open(waker)
    }

    /// The record of the last reopening of submissions in this session.
    pub(crate) fn reopened(&self) -> Option<Stamp> {
        self.gate().reopened()
    }

    /// Waits until submissions are open. From then on a request counts as running, until the guard is dropped.
    pub(crate) async fn submit(&self) -> Submission {
        poll_fn(|cx| if self.gate().try_enter(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }).await;
        Submission(self.clone())
    }

    /// The number of requests that run on engines.
    pub(crate) fn running(&self) -> usize {
        self.gate().running()
    }

    /// Notes that a publication has paused generation, until the guard is dropped.
    pub(crate) fn stand_still(&self) -> Standstill {
        self.gate().pause(self.now());
        Standstill(self.clone())
    }

    /// The nanoseconds since the session's start in which generation was not paused: neither by a publication, nor by a
    /// hold during which no request runs any more. Timeouts of generation use this time.
    pub(crate) fn generation_time(&self) -> u64 {
        self.gate().moved(self.now())
    }

    /// Waits until generation is not paused.
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
