//! Training: one step per batch, with checkpoints and publications between steps.

use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::{Restored, Run};
use anabranch_core::{AppendReceipt, Batch, Engine, Error, Learner, WeightSync};
use futures::future::BoxFuture;
use futures::stream::FusedStream;
use futures::{FutureExt, Stream};

use self::trainer::{Plan, Publishing, Trainer};
use crate::upstream::Upstream;
use anabranch_core::Step;

mod replay;
mod trainer;

/// Stream for [`train`](crate::RolloutExt::train).
#[must_use = "streams do nothing unless polled"]
pub struct Train<S, L: Learner> {
    input: Pin<Box<Upstream<S>>>,
    run: Run,
    phase: Phase<L>,
}

enum Phase<L: Learner> {
    /// Not polled yet.
    Idle(Box<Restored<L>>, Plan<L::Weights>),
    /// The learner is training, or its weights are being published.
    Working(BoxFuture<'static, Worked<L>>),
    /// The learner has been waiting for a batch since this moment.
    Waiting(Box<Trainer<L>>, u64),
    /// `RunClosed` is being written to the disk.
    Closing(AppendReceipt),
    Ended,
}

/// A trainer after its work, with the step that it made, if any.
type Worked<L> = Result<(Box<Trainer<L>>, Option<Step>), Error>;

impl<S, L: Learner> Train<S, L> {
    pub(crate) fn new(input: S, restored: Restored<L>) -> Self {
        let run = restored.run.clone();
        Self { input: Box::pin(Upstream::new(input)), run, phase: Phase::Idle(Box::new(restored), Plan::default()) }
    }

    /// Saves a checkpoint of the learner after every training step divisible by `steps`, before that step's
    /// publication. By default only checkpoint 0, before training, is saved.
    ///
    /// # Panics
    /// Panics if `steps` is 0.
    pub fn checkpoint_every(self, steps: u64) -> Self {
        assert!(steps > 0, "checkpoint_every: expected at least 1 step, found 0");
        self.planned(|plan| plan.checkpoint_every = Some(steps))
    }

    /// Publishes the weights to `engine` after every training step divisible by `steps`, one publication at a time. The
    /// initial weights, or after a restart the weights published last, are installed before upstream is first polled.
    ///
    /// # Panics
    /// Panics if `steps` is 0.
    pub fn publish_every<E>(self, steps: u64, engine: &E) -> Self
    where
        E: Engine<Weights = L::Weights> + Clone,
    {
        assert!(steps > 0, "publish_every: expected at least 1 step, found 0");
        let engine = Arc::new(engine.clone());
        self.planned(|plan| plan.publishing = Some(Publishing { every: steps, engine }))
    }

    /// Sets what happens to the samples in flight when weights are published. The default is [`WeightSync::Retract`].
    pub fn weight_sync(self, mode: WeightSync) -> Self {
        self.planned(|plan| plan.mode = mode)
    }

    fn planned(mut self, change: impl FnOnce(&mut Plan<L::Weights>)) -> Self {
        if let Phase::Idle(_, plan) = &mut self.phase {
            change(plan);
        }
        self
    }
}

impl<S, L> Train<S, L>
where
    S: Stream<Item = Result<Batch, Error>>,
    L: Learner,
{
    /// Returns the result of `poll`. If `poll` panics, everything upstream stops before the panic continues.
    fn guarded<T>(&mut self, poll: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|panic| {
            self.input.as_mut().end();
            resume_unwind(panic)
        })
    }

    /// Moves to the next phase, or breaks with the result of the poll. After a panic the stream has ended.
    fn advance(&mut self, cx: &mut Context<'_>) -> ControlFlow<Poll<Option<Result<Step, Error>>>> {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Idle(restored, plan) => self.phase = Phase::Working(Trainer::open(restored, plan).boxed()),
            Phase::Working(mut work) => match self.guarded(|| work.poll_unpin(cx)) {
                Poll::Pending => {
                    self.phase = Phase::Working(work);
                    return ControlFlow::Break(Poll::Pending);
                }
                Poll::Ready(Ok((trainer, step))) => {
                    self.phase = match trainer.next_work() {
                        Ok(work) => Phase::Working(work),
                        Err(trainer) => Phase::Waiting(trainer, self.run.now()),
                    };
                    if let Some(step) = step {
                        return ControlFlow::Break(Poll::Ready(Some(Ok(step))));
                    }
                }
                Poll::Ready(Err(error)) => return ControlFlow::Break(self.input.as_mut().fail(error)),
            },
            Phase::Waiting(trainer, since) => match self.input.as_mut().poll_next(cx) {
                Poll::Pending => {
                    self.phase = Phase::Waiting(trainer, since);
                    return ControlFlow::Break(Poll::Pending);
                }
                Poll::Ready(Some(Ok(batch))) => self.phase = Phase::Working(trainer.train(batch, since).boxed()),
                Poll::Ready(Some(Err(error))) => return ControlFlow::Break(Poll::Ready(Some(Err(error)))),
                // The input has been dropped, so no more events of the run follow.
                Poll::Ready(None) => self.phase = Phase::Closing(self.run.finish().durable),
            },
            Phase::Closing(mut ack) => match ack.poll_unpin(cx) {
                Poll::Pending => {
                    self.phase = Phase::Closing(ack);
                    return ControlFlow::Break(Poll::Pending);
                }
                Poll::Ready(closed) => {
                    return ControlFlow::Break(Poll::Ready(closed.err().map(|error| Err(error.into()))));
                }
            },
            Phase::Ended => return ControlFlow::Break(Poll::Ready(None)),
        }
        ControlFlow::Continue(())
    }
}

impl<S, L> Stream for Train<S, L>
where
    S: Stream<Item = Result<Batch, Error>>,
    L: Learner,
{
    type Item = Result<Step, Error>;

    /// # Panics
    /// Panics if the learner panics, or if it is polled outside a tokio runtime.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let ControlFlow::Break(polled) = self.advance(cx) {
                return polled;
            }
        }
    }
}

impl<S, L> FusedStream for Train<S, L>
where
    S: Stream<Item = Result<Batch, Error>>,
    L: Learner,
{
    fn is_terminated(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }
}

impl<S: fmt::Debug, L: Learner> fmt::Debug for Train<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Idle(..) => "idle",
            Phase::Working(_) => "working",
            Phase::Waiting(..) => "waiting",
            Phase::Closing(_) => "closing",
            Phase::Ended => "ended",
        };
        f.debug_struct("Train").field("input", &self.input).field("phase", &phase).finish_non_exhaustive()
    }
}
