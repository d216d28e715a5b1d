//! Writes groups to the log as soon as they are complete.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use anabranch_core::{AppendReceipt, Error};
use futures::stream::FusedStream;
use futures::{FutureExt, Stream};
use pin_project_lite::pin_project;

use crate::entry::{at, run_of};
use crate::run::Stage;
use crate::upstream::Upstream;
use crate::{Rollout, Run};

/// How many groups may wait for the journal at once. If more arrive, upstream waits too.
const MAX_WAITING: usize = 256;

pin_project! {
    /// Stream for [`log`](crate::RolloutExt::log).
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct Log<S> {
        #[pin]
        input: Upstream<S>,
        run: Run,
        // Appended but not durable yet; the journal acknowledges them in this order.
        waiting: VecDeque<(Rollout, AppendReceipt)>,
    }
}

impl<S> Log<S> {
    pub(crate) fn new(input: S, run: Run) -> Self {
        Self { input: Upstream::new(input), run, waiting: VecDeque::new() }
    }
}

/// Returns the group with its `Completed` record, or `None` if it was excluded.
fn completed(mut group: Rollout, run: &Run) -> Result<Option<(Rollout, AppendReceipt)>, Error> {
    if !run_of(&mut group).is_same(run) {
        let message = format!("group {} was leased by another run: pass .log the run of .prompts", group.id);
        return Err(Error::Argument { argument: "run", message });
    }
    let Some(mut group) = group.check_entry()? else { return Ok(None) };
    group.logged = true;
    let ack = group.complete().map_or_else(|| AppendReceipt::ready(Ok(())), |recorded| recorded.durable);
    Ok(Some((at(group, Stage::Working), ack)))
}

/// Passes the group on, which lets another lease out. The enabler is its record; the delay is the time of the journal.
fn departing(group: Rollout) -> Rollout {
    if let Some(completed) = group.completed {
        group.lease.note_departure(completed);
    }
    at(group, Stage::Upstream)
}

impl<S: Stream<Item = Result<Rollout, Error>>> Stream for Log<S> {
    type Item = Result<Rollout, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            if let Some((_, ack)) = this.waiting.front_mut()
                && let Poll::Ready(written) = ack.poll_unpin(cx)
            {
                let durable = this.waiting.pop_front().map(|(group, _)| departing(group));
                return match written {
                    Ok(()) => Poll::Ready(durable.map(Ok)),
                    Err(error) => {
                        this.waiting.clear();
                        this.input.fail(error.into())
                    }
                };
            }
            if this.input.has_ended() || this.waiting.len() >= MAX_WAITING {
                return if this.waiting.is_empty() { Poll::Ready(None) } else { Poll::Pending };
            }
            match this.input.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(group))) => match completed(group, this.run) {
                    Ok(logged) => this.waiting.extend(logged),
                    Err(error) => {
                        this.waiting.clear();
                        return this.input.fail(error);
                    }
                },
                // An error overtakes the groups that wait for the journal; they are in the log.
                Poll::Ready(Some(Err(error))) => {
                    this.waiting.clear();
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.input.size_hint().1.and_then(|most| most.checked_add(self.waiting.len())))
    }
}

impl<S: Stream<Item = Result<Rollout, Error>>> FusedStream for Log<S> {
    fn is_terminated(&self) -> bool {
        self.input.has_ended() && self.waiting.is_empty()
    }
}
