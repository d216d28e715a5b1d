//! The buffer: the only place where generation runs ahead of training.

use std::fmt;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anabranch_core::{Error, Order};
use futures::stream::FusedStream;
use futures::{FutureExt, Stream};

use self::feeder::Feeder;
use self::queue::Queue;
use self::sync::{JoinHandle, Mutex, panic_of, spawn};
use crate::{Capacity, Rollout};

mod feeder;
#[cfg(test)]
mod interleavings;
mod item;
#[cfg(test)]
mod model;
mod queue;
mod sync;

/// Stream for [`buffer`](crate::RolloutExt::buffer).
#[must_use = "streams do nothing unless polled"]
pub struct Buffer<S> {
    state: State<S>,
}

enum State<S> {
    /// Not polled yet.
    Idle(Box<S>, Capacity, Order),
    Running(Arc<Mutex<Queue<Rollout>>>, FeederTask<S>),
    Ended,
}

/// The feeder and its task. Both end with this handle.
struct FeederTask<S> {
    /// Shared with the task, so that dropping the stream stops the feeder at once. Aborting the task is not enough: it
    /// may be in the middle of a poll on another thread and continue to write records.
    feeder: Arc<Mutex<Option<Feeder<S>>>>,
    handle: Option<JoinHandle<()>>,
}

impl<S: Stream<Item = Result<Rollout, Error>> + Send + 'static> FeederTask<S> {
    fn spawn(feeder: Feeder<S>) -> Self {
        let feeder = Arc::new(Mutex::new(Some(feeder)));
        let polled = feeder.clone();
        let task = poll_fn(move |cx| {
            let mut feeder = polled.lock();
            let done = feeder.as_mut().map_or(Poll::Ready(()), |feeder| feeder.poll_unpin(cx));
            if done.is_ready() {
                *feeder = None;
            }
            done
        });
        Self { feeder, handle: Some(spawn(task)) }
    }
}

impl<S> FeederTask<S> {
    /// Whether the task has returned. A panic of the task continues here.
    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let Some(handle) = &mut self.handle else { return Ok(()) };
        let Poll::Ready(ended) = handle.poll_unpin(cx) else { return Ok(()) };
        self.handle = None;
        match ended.map_err(panic_of) {
            Ok(()) => Ok(()),
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(cancelled)) => Err(Error::Task(format!("the feeder of .buffer: {cancelled}"))),
        }
    }
}

impl<S> Drop for FeederTask<S> {
    fn drop(&mut self) {
        // A running poll ends first; no poll follows it.
        let feeder = self.feeder.lock().take();
        drop(feeder);
        if let Some(task) = &self.handle {
            task.abort();
        }
    }
}

impl<S> Buffer<S> {
    pub(crate) fn new(input: S, capacity: Capacity) -> Self {
        Self { state: State::Idle(Box::new(input), capacity, Order::default()) }
    }

    /// Sets which group leaves next. The default is [`Order::Fifo`]. With another order a group may wait forever while
    /// better groups keep arriving; with a limit on staleness, such a group becomes stale. The cost per group grows
    /// with the logarithm of the capacity; with `Fifo` it is constant.
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, WeightSync};
    /// # use anabranch_sim::Sim;
    /// # use anabranch_stream::{Capacity, InFlight, Order, RolloutExt, Run, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
    /// # let rows = (0..9).map(|row| (vec![row], Fields::new())).collect();
    /// let groups = run
    ///     .prompts(Dataset::new("d", rows).expect("nine rows"))
    ///     .generate(&engine, InFlight::groups(2), Samples(2))
    ///     .buffer(Capacity::groups(4))
    ///     .order(Order::Freshest);
    /// assert_eq!(groups.try_collect::<Vec<_>>().await?.len(), 9);
    /// # Ok(())
    /// # }
    /// ```
    pub fn order(mut self, order: Order) -> Self {
        if let State::Idle(.., set) = &mut self.state {
            *set = order;
        }
        self
    }
}

impl<S: Stream<Item = Result<Rollout, Error>> + Send + 'static> Stream for Buffer<S> {
    type Item = Result<Rollout, Error>;

    /// # Panics
    /// Panics if it is first polled outside a tokio runtime, or if the feeder panics.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // If anything below fails, even with a panic, the stream has ended.
        let (queue, mut task) = match std::mem::replace(&mut self.state, State::Ended) {
            State::Idle(input, capacity, order) => {
                let queue = Arc::new(Mutex::new(Queue::new(capacity, order)));
                let task = FeederTask::spawn(Feeder::new(*input, (capacity, order), queue.clone()));
                (queue, task)
            }
            State::Running(queue, task) => (queue, task),
            State::Ended => return Poll::Ready(None),
        };
        if let Err(error) = task.poll(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        let popped = queue.lock().poll_pop(cx);
        if matches!(popped, Poll::Pending | Poll::Ready(Some(Ok(_)))) {
            self.state = State::Running(queue, task);
        }
        popped
    }
}

impl<S: Stream<Item = Result<Rollout, Error>> + Send + 'static> FusedStream for Buffer<S> {
    fn is_terminated(&self) -> bool {
        matches!(self.state, State::Ended)
    }
}

impl<S> fmt::Debug for Buffer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Idle(..) => "idle",
            State::Running(..) => "running",
            State::Ended => "ended",
        };
        f.debug_struct("Buffer").field("state", &state).finish_non_exhaustive()
    }
}
