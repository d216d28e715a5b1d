//! The input of an operator.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anabranch_core::Error;
use futures::Stream;
use pin_project_lite::pin_project;
use tokio::task::coop;

/// Calls `poll` at the cost of one unit of the task's budget. When the budget is used up, the task yields, so that
/// other tasks get their turns even if many items are ready.
pub(crate) fn in_turn<T>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let turn = ready!(coop::poll_proceed(cx));
    let polled = ready!(poll(cx));
    turn.made_progress();
    Poll::Ready(polled)
}

pin_project! {
    /// The input of an operator. After its end or its first error it is dropped, which stops everything that it runs,
    /// and it is never polled again. Every item is taken [`in_turn`].
    #[derive(Debug)]
    pub(crate) struct Upstream<S> {
        #[pin]
        stream: Option<S>,
    }
}

impl<S> Upstream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream: Some(stream) }
    }

    /// Drops the input.
    pub(crate) fn end(self: Pin<&mut Self>) {
        self.project().stream.set(None);
    }

    /// Whether the input has ended and was dropped.
    pub(crate) fn has_ended(&self) -> bool {
        self.stream.is_none()
    }

    /// Ends the stream with an error of the operator's own.
    pub(crate) fn fail<T>(self: Pin<&mut Self>, error: Error) -> Poll<Option<Result<T, Error>>> {
        self.end();
        Poll::Ready(Some(Err(error)))
    }
}

impl<S: Stream<Item = Result<T, Error>>, T> Stream for Upstream<S> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut stream = self.project().stream;
        let Some(running) = stream.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let item = ready!(in_turn(cx, |cx| running.poll_next(cx)));
        if !matches!(item, Some(Ok(_))) {
            stream.set(None);
        }
        Poll::Ready(item)
    }

    /// An error may end it early, so only the upper bound is kept.
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.as_ref().map_or((0, Some(0)), |stream| (0, stream.size_hint().1))
    }
}
