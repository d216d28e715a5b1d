//! The buffer: the one point where generation runs ahead of training.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use anabranch_core::{Error, Group};
use futures::{FutureExt, Stream};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use self::feeder::Feeder;
use self::queue::Queue;
use crate::Capacity;

mod feeder;
mod queue;

/// Stream for [`buffer`](crate::RolloutExt::buffer).
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Buffer<S> {
    state: State<S>,
}

#[derive(Debug)]
enum State<S> {
    /// Not polled yet.
    Idle(Box<S>, Capacity),
    Running(Arc<Mutex<Queue>>, FeederTask),
    Ended,
}

/// The feeder's task; it ends with its handle.
#[derive(Debug)]
struct FeederTask(Option<JoinHandle<()>>);

impl FeederTask {
    /// Whether the task has returned. A panic of it goes on here.
    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let Some(handle) = &mut self.0 else { return Ok(()) };
        let Poll::Ready(ended) = handle.poll_unpin(cx) else { return Ok(()) };
        self.0 = None;
        match ended.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(()) => Ok(()),
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(cancelled)) => Err(Error::Task(format!("the feeder of .buffer: {cancelled}"))),
        }
    }
}

impl Drop for FeederTask {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl<S> Buffer<S> {
    pub(crate) fn new(input: S, capacity: Capacity) -> Self {
        Self { state: State::Idle(Box::new(input), capacity) }
    }
}

impl<S: Stream<Item = Result<Group, Error>> + Send + 'static> Stream for Buffer<S> {
    type Item = Result<Group, Error>;

    /// # Panics
    /// At the first poll outside a tokio runtime; with the feeder's panic.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Whatever goes wrong below, a panic included, the stream has then ended.
        let (queue, mut task) = match std::mem::replace(&mut self.state, State::Ended) {
            State::Idle(input, capacity) => {
                let queue = Arc::new(Mutex::new(Queue::new(capacity)));
                let task = tokio::spawn(Feeder::new(*input, capacity, queue.clone()));
                (queue, FeederTask(Some(task)))
            }
            State::Running(queue, task) => (queue, task),
            State::Ended => return Poll::Ready(None),
        };
        let failure = queue.lock().take_failure();
        if let Some(error) = failure.or(task.poll(cx).err()) {
            return Poll::Ready(Some(Err(error)));
        }
        let popped = queue.lock().poll_pop(cx);
        if !matches!(popped, Poll::Ready(None)) {
            self.state = State::Running(queue, task);
        }
        Poll::Ready(ready!(popped).map(Ok))
    }
}
