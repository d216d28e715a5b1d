//! Trains batches that an earlier session took again, from the log.

use crate::run::Draft;
use anabranch_core::{Cause, EventKind, Learner, RecordedBatch, Stamp};

use super::Worked;
use super::trainer::Trainer;
use crate::replay::recall;
use anabranch_core::Step;

impl<L: Learner> Trainer<L> {
    /// Trains on a recorded batch. Nothing is published, and the step is recorded only if it was not recorded before.
    pub(super) async fn retrain(mut self: Box<Self>, recorded: RecordedBatch) -> Worked<L> {
        let (run, began) = (self.run.clone(), self.run.now());
        let (number, taken, stepped) = (recorded.step, (recorded.taken, recorded.digest), recorded.stepped);
        let train = move |learner: &mut L| {
            let batch = recall(&recorded, |id| Ok(run.payload(id)?))?;
            let report = learner.step(&batch)?;
            Ok((Step::on(&batch), report))
        };
        let (mut step, report) = self.blocking(train).await?;
        step.replayed = true;
        step.trained = std::time::Duration::from_nanos(self.run.now().saturating_sub(began));
        let stamp = if let Some(before) = stepped {
            self.count(&mut step, report, taken);
            let (weights, equal) = (step.weights, step.weights == before);
            step.equal = Some(equal);
            if !equal {
                tracing::warn!(step = number.0, recorded = %before, now = %weights, "the weights of a replayed step differ from the recorded ones");
            }
            let kind = EventKind::Restepped { step: number, weights, equal };
            self.run.record(vec![Draft::new(kind, vec![(Cause::Taken, Stamp::earlier(taken.0))])], &[]).stamp(0)
        } else {
            self.stepped(&mut step, report, taken).stamp(0)
        };
        self.run.clock().free_learner(stamp);
        if self.published.is_some_and(|(_, at, _)| at == number) {
            self.capture().await?;
        }
        Ok((self, Some(step)))
    }
}
