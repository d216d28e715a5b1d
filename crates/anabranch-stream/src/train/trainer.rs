//! Runs the learner: steps, checkpoints and publications, each recorded in its order.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use crate::run::{Draft, RecordReceipt};
use crate::{Restored, Run};
use anabranch_core::{
    Batch, BoxError, Cause, Cursor, Digest, Engine, Error, EventKind, Fields, Learner, RecordedBatch, Seq, Stamp,
    StepReport, TrainingStep, Value, Version, WeightSync,
};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::Worked;
use crate::publish::{publish_after, reinstall};
use anabranch_core::Step;

/// The work that is due between steps.
pub(super) struct Plan<W> {
    pub(super) checkpoint_every: Option<u64>,
    pub(super) publishing: Option<Publishing<W>>,
    pub(super) mode: WeightSync,
}

pub(super) struct Publishing<W> {
    pub(super) every: u64,
    pub(super) engine: Arc<dyn Engine<Weights = W>>,
}

impl<W> Default for Plan<W> {
    fn default() -> Self {
        Self { checkpoint_every: None, publishing: None, mode: WeightSync::default() }
    }
}

/// The version published last, its training step and the digest of its weights.
type Published = (Version, TrainingStep, Digest);

pub(super) struct Trainer<L: Learner> {
    pub(super) run: Run,
    /// `None` while the learner works on another thread.
    learner: Option<L>,
    plan: Plan<L::Weights>,
    /// Batches of earlier sessions that must be trained again.
    pub(super) replay: VecDeque<RecordedBatch>,
    pub(super) published: Option<Published>,
    /// The weights that an earlier session published last, once the learner has reached their step.
    pub(super) captured: Option<L::Weights>,
    /// Whether the engines have weights.
    begun: bool,
    /// The last batch trained on.
    taken: Option<(Seq, Digest)>,
    weights: Digest,
}

impl<L: Learner> Trainer<L> {
    /// Saves checkpoint 0 if training begins, and keeps the weights published last if the checkpoint has them.
    pub(super) async fn open(restored: Box<Restored<L>>, plan: Plan<L::Weights>) -> Worked<L> {
        let Restored { run, learner, cursor, replay, published, .. } = *restored;
        configure(&run, &plan)?;
        let mut trainer = Box::new(Self {
            run,
            learner: Some(learner),
            plan,
            replay: replay.into(),
            published,
            captured: None,
            begun: false,
            taken: cursor.as_ref().and_then(|cursor| cursor.taken.zip(cursor.batch)),
            weights: Digest::default(),
        });
        trainer.weights = match &cursor {
            // The digest was compared with the learner's weights when the checkpoint was loaded.
            Some(cursor) => cursor.weights,
            None => trainer.blocking(|learner| learner.digest().map_err(Error::from)).await?,
        };
        let opened = trainer.run.opened();
        if cursor.is_none() {
            trainer.checkpoint(opened).await?;
        }
        trainer.run.clock().free_learner(opened);
        let step = trainer.run.clock().step();
        if trainer.plan.publishing.is_some() {
            let in_checkpoint = cursor.and_then(|cursor| cursor.published).map(|(version, _)| version);
            if trainer.published.is_some_and(|(_, at, _)| at == step) {
                trainer.capture().await?;
            } else if in_checkpoint.is_some() && in_checkpoint == trainer.published.map(|(version, ..)| version) {
                trainer.captured = trainer.blocking(|learner| learner.published().map_err(Error::from)).await?;
            }
        }
        Ok((trainer, None))
    }

    /// Starts the work that is due before the next batch, or returns the trainer if nothing is due.
    pub(super) fn next_work(mut self: Box<Self>) -> Result<BoxFuture<'static, Worked<L>>, Box<Self>> {
        if let Some(batch) = self.replay.pop_front() {
            return Ok(self.retrain(batch).boxed());
        }
        if !self.begun {
            return Ok(self.begin().boxed());
        }
        Err(self)
    }

    /// Installs weights on the engines before anything is generated.
    async fn begin(mut self: Box<Self>) -> Worked<L> {
        self.begun = true;
        let Some(publishing) = &self.plan.publishing else { return Ok((self, None)) };
        let (step, every, engine) = (self.run.clock().step(), publishing.every, publishing.engine.clone());
        let again = self.captured.take().zip(self.published);
        let due = again.as_ref().is_none_or(|(_, (_, at, _))| step > *at && step.0.is_multiple_of(every));
        let mut stamp = self.run.clock().learner_free().unwrap_or(self.run.opened());
        if let Some((weights, published)) = again {
            stamp = reinstall(&self.run, &*engine, weights, published, self.plan.mode).await?.resumed;
        } else if let Some((version, ..)) = self.published {
            tracing::warn!(%version, "the weights published last are not available any more: the current weights are \
                                      published");
        }
        if due {
            let cause = if step.0 == 0 { Cause::Opened } else { Cause::Stepped };
            stamp = self.publish(vec![(cause, stamp)]).await?.0;
        }
        self.run.clock().free_learner(stamp);
        Ok((self, None))
    }

    /// Makes a training step, then the checkpoint and the publication that are due.
    pub(super) async fn train(mut self: Box<Self>, batch: Batch, since: u64) -> Worked<L> {
        let began = self.run.now();
        let mut step = Step::on(&batch);
        let (number, taken) = (batch.step, (batch.taken, batch.digest));
        let report = self.blocking(move |learner| learner.step(&batch).map_err(Error::from)).await?;
        step.waited = Duration::from_nanos(began.saturating_sub(since));
        step.trained = Duration::from_nanos(self.run.now().saturating_sub(began));
        let mut stamp = self.stepped(&mut step, report, taken).stamp(0);
        if self.plan.checkpoint_every.is_some_and(|every| number.0.is_multiple_of(every)) {
            let written = self.checkpoint(stamp).await?;
            stamp = written.as_ref().map_or(stamp, |(_, recorded)| recorded.stamp(0));
            step.checkpoint = written.map(|(name, _)| name);
        }
        if self.plan.publishing.as_ref().is_some_and(|publishing| number.0.is_multiple_of(publishing.every)) {
            let (resumed, version, paused) = self.publish(vec![(Cause::Stepped, stamp)]).await?;
            (stamp, step.published, step.paused) = (resumed, Some(version), paused);
        }
        step.version = self.run.clock().version();
        self.run.clock().free_learner(stamp);
        Ok((self, Some(step)))
    }

    /// Records a step that was not recorded before.
    pub(super) fn stepped(&mut self, step: &mut Step, report: StepReport, taken: (Seq, Digest)) -> RecordReceipt {
        let enabler = self.run.clock().taken().filter(|stamp| stamp.moment.event() == Some(taken.0));
        let enabler = enabler.unwrap_or(Stamp::earlier(taken.0));
        self.count(step, report, taken);
        let kind = EventKind::Stepped {
            step: step.step,
            updates: step.updates,
            loss: step.loss,
            metrics: step.metrics.clone(),
            weights: step.weights,
        };
        self.run.record(vec![Draft::new(kind, vec![(Cause::Taken, enabler)])], &[])
    }

    /// Counts a step as made, because it is in the learner's weights.
    pub(super) fn count(&mut self, step: &mut Step, report: StepReport, taken: (Seq, Digest)) {
        let mut clock = self.run.clock();
        let updates = clock.updates() + report.updates;
        clock.complete(step.step, updates);
        drop(clock);
        (self.taken, self.weights) = (Some(taken), report.weights);
        (step.updates, step.loss, step.metrics, step.weights) = (updates, report.loss, report.metrics, report.weights);
    }

    /// Keeps the current weights for the engines if they are the weights published last.
    pub(super) async fn capture(&mut self) -> Result<(), Error> {
        let Some((version, _, recorded)) = self.published else { return Ok(()) };
        if self.plan.publishing.is_none() {
            return Ok(());
        }
        if recorded != self.weights {
            let now = self.weights;
            tracing::warn!(%version, %recorded, %now, "the weights published last cannot be computed again");
            return Ok(());
        }
        self.captured = Some(self.blocking(|learner| learner.weights().map_err(Error::from)).await?);
        Ok(())
    }

    async fn publish(&mut self, enablers: Vec<(Cause, Stamp)>) -> Result<(Stamp, Version, Duration), Error> {
        let Some(Publishing { engine, .. }) = &self.plan.publishing else {
            return Err(Error::Task("expected an engine for the publication, found none".to_owned()));
        };
        let (engine, mode, digest) = (engine.clone(), self.plan.mode, self.weights);
        let weights = self.blocking(|learner| learner.weights().map_err(Error::from)).await?;
        let publication = publish_after(&self.run, &*engine, weights, digest, mode, enablers).await?;
        self.published = Some((publication.version, self.run.clock().step(), digest));
        Ok((publication.resumed, publication.version, publication.paused))
    }

    /// Saves the learner, if the journal keeps checkpoints.
    async fn checkpoint(&mut self, after: Stamp) -> Result<Option<(String, RecordReceipt)>, Error> {
        let (step, updates) = {
            let clock = self.run.clock();
            (clock.step(), clock.updates())
        };
        let cursor = Cursor {
            step,
            updates,
            taken: self.taken.map(|(seq, _)| seq),
            batch: self.taken.map(|(_, digest)| digest),
            weights: self.weights,
            published: self.published.map(|(version, step, _)| (version, step)),
        };
        let journal = self.run.journal().clone();
        let save = move |learner: &mut L| {
            let written = journal.checkpoint(&cursor, &mut |dir| learner.save(dir).map_err(BoxError::from));
            written.map_err(Error::from)
        };
        let Some(name) = self.blocking(save).await? else { return Ok(None) };
        let kind = EventKind::Checkpointed { step, taken: self.taken.map(|(seq, _)| seq), name: name.clone() };
        let cause = if step.0 == 0 { Cause::Opened } else { Cause::Stepped };
        Ok(Some((name, self.run.record(vec![Draft::new(kind, vec![(cause, after)])], &[]))))
    }

    /// Runs `work` on a thread that may block. A panic of `work` continues here.
    pub(super) async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut L) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let gone = || {
            Error::Task(
                "the learner is not available: an earlier call was interrupted; resume the \
                                   run"
                .to_owned(),
            )
        };
        let mut learner = self.learner.take().ok_or_else(gone)?;
        let task = tokio::task::spawn_blocking(move || {
            let done = work(&mut learner);
            (learner, done)
        });
        match task.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok((learner, done)) => {
                self.learner = Some(learner);
                done
            }
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(cancelled)) => Err(Error::Task(format!("the learner's step: {cancelled}"))),
        }
    }
}

fn configure<W>(run: &Run, plan: &Plan<W>) -> Result<(), Error> {
    let every = |steps: Option<u64>| ("every".to_owned(), Value::from(steps));
    run.configure("train", Fields::from([("checkpoint_every".to_owned(), Value::from(plan.checkpoint_every))]))?;
    let Some(publishing) = &plan.publishing else { return Ok(()) };
    let mode = ("mode".to_owned(), Value::from(plan.mode.log_name()));
    run.configure("publish", Fields::from([every(Some(publishing.every)), mode]))
}
