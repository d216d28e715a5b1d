//! A restart: the next session loses the generation under way and carries everything else over.

use super::buffer::Buffer;
use super::pipeline::Pipeline;
use super::sessions::Opening;
use super::upstream::Upstream;
use crate::whatif::prediction::Sink;

impl<S: Sink> Pipeline<'_, S> {
    /// Continues in the next session in which the learner asks for groups. Returns `false` if there is none.
    pub(super) fn next_session(&mut self) -> bool {
        let Some(Opening { began, installed, burned }) = self.sessions.open_next() else { return false };
        let settings = self.question.settings;
        self.agenda.restart(began);
        let completed = self.lose_running(installed);
        self.generation.restart(settings.slots(), installed);
        self.buffer = Buffer::new(settings.order);
        self.retrain(burned);
        for &index in &completed {
            let group = &mut self.groups[index];
            (group.arrived, group.ready, group.dequeued) = (began, began, None);
            if settings.capacity.is_none() {
                self.buffer.push(index, group.oldest.unwrap_or_default());
            }
        }
        self.upstream = if settings.capacity.is_some() { Upstream::carried(completed) } else { Upstream::default() };
        self.learner_free();
        self.wake_feeder();
        true
    }

    /// Loses all generation under way. Returns the completed groups in the order in which they come back: first those
    /// that were admitted, in the order of their admission, then the others in the order of their completion.
    fn lose_running(&mut self, installed: u64) -> Vec<u32> {
        let mut open: Vec<u32> = self.groups.open().collect();
        open.sort_unstable_by_key(|&index| {
            let group = &self.groups[index];
            (group.admitted.is_none(), group.place)
        });
        let (completed, running): (Vec<u32>, Vec<u32>) =
            open.into_iter().partition(|&index| self.groups[index].is_completed());
        self.source.restart(running.iter().map(|&index| &self.groups[index]), installed);
        for index in running {
            self.groups.forget(index);
        }
        completed
    }

    /// Does what the learner does from the log before it asks for groups: the training step whose batch was taken, and
    /// the publication that is due.
    fn retrain(&mut self, burned_between: u64) {
        // A publication that was cut off used up its number, and is due again.
        let burned = self.weights.restart();
        if self.learner.restart() {
            let (_, recorded) = self.question.step(self.learner.step());
            self.tally.step(self.agenda.now(), recorded);
        }
        let (made, published) = (self.learner.steps(), self.weights.step(self.weights.version()));
        if made > published && self.question.publishes_after(made) {
            let (_, recorded) = self.question.publication(made);
            self.tally.publication_begun(recorded);
            self.publish(burned + burned_between);
        }
    }
}
