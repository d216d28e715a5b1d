//! Rewards from a synchronous function.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use anabranch_core::{Error, Group, Status};
use futures::Stream;
use futures::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::panics::{caught, handler_error};
use crate::upstream::Upstream;
use crate::{Response, Rollout};

pin_project! {
    /// Stream for [`score`](crate::RolloutExt::score).
    #[must_use = "streams do nothing unless polled"]
    pub struct Score<S, F> {
        #[pin]
        input: Upstream<S>,
        score: F,
    }
}

impl<S, F> Score<S, F> {
    pub(crate) fn new(input: S, score: F) -> Self {
        Self { input: Upstream::new(input), score }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for Score<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Score").field("input", &self.input).finish_non_exhaustive()
    }
}

/// Returns an error if the group is in the log already, because the log would lack the reward.
pub(crate) fn refuse_logged(group: &Rollout) -> Result<(), Error> {
    if group.completed.is_none() {
        return Ok(());
    }
    let message = format!("group {} is in the log already, without its rewards: move .score before .log", group.id);
    Err(Error::Argument { argument: "score", message })
}

/// Aborts a sample without a reward because the reward function failed.
pub(crate) fn abort_unscored(group: &mut Group, index: usize, message: &str) {
    let sample = &mut group.samples[index];
    sample.status = Status::Aborted;
    sample.cause = Some(format!("reward: {message}"));
}

fn scored<R: Into<f64>>(mut group: Rollout, score: &mut impl FnMut(Response<'_>) -> R) -> Result<Rollout, Error> {
    if group.is_restored() {
        return Ok(group);
    }
    refuse_logged(&group)?;
    for index in 0..group.samples.len() {
        let response = Response { prompt: &group.prompt, sample: &group.samples[index] };
        if response.status == Status::Aborted {
            continue;
        }
        match caught(|| score(response).into()) {
            Ok(reward) => {
                let now = Some(group.run().now());
                let sample = &mut group.samples[index];
                sample.reward = Some(reward);
                sample.times.scored = now;
            }
            Err(message) => {
                abort_unscored(&mut group, index, &message);
                group.complete();
                return Err(handler_error("score", &group.id, message));
            }
        }
    }
    Ok(group)
}

impl<S, F, R> Stream for Score<S, F>
where
    S: Stream<Item = Result<Rollout, Error>>,
    F: FnMut(Response<'_>) -> R,
    R: Into<f64>,
{
    type Item = Result<Rollout, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        match this.input.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(group))) => match scored(group, this.score) {
                Ok(group) => Poll::Ready(Some(Ok(group))),
                Err(error) => this.input.fail(error),
            },
            other => other,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint()
    }
}

impl<S, F, R> FusedStream for Score<S, F>
where
    S: Stream<Item = Result<Rollout, Error>>,
    F: FnMut(Response<'_>) -> R,
    R: Into<f64>,
{
    fn is_terminated(&self) -> bool {
        self.input.has_ended()
    }
}
