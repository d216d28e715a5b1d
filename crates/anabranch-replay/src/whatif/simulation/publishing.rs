//! A publication: from the learner's asking for a pause until generation continues under the new weights.

use anabranch_core::WeightSync;

use super::agenda::Action;
use super::pipeline::Pipeline;
use super::weights::Publication;
use crate::whatif::prediction::Sink;
use crate::whatif::recording::PublicationCost;

impl<S: Sink> Pipeline<'_, S> {
    fn publication_cost(&self) -> PublicationCost {
        self.question.publication(self.learner.steps()).0
    }

    /// The publication begins.
    pub(super) fn publishing(&mut self) {
        let cost = self.publication_cost();
        self.weights.set_publication(Publication::Begun);
        self.after(cost.ack, cost.key, Action::Paused);
    }

    /// The engines are asked to pause.
    pub(super) fn paused(&mut self) {
        let cost = self.publication_cost();
        if !self.mode_drains() {
            self.weights.set_publication(Publication::Lingering);
            // The end of a sample tells how long samples continue, so that end comes first.
            return self.after(cost.linger, u64::MAX, Action::Still);
        }
        self.weights.set_publication(Publication::Draining);
        if self.mode() == WeightSync::Abort {
            self.abort_all(cost.drained);
        }
        if self.generation.is_idle() {
            self.drained();
        }
    }

    /// No sample is continued any more.
    pub(super) fn still(&mut self) {
        self.weights.set_publication(Publication::Still);
        self.begin_blocked();
        self.drained();
    }

    /// The engines have nothing left to wait for.
    pub(super) fn drained(&mut self) {
        let cost = self.publication_cost();
        self.after(cost.quiesce, cost.key, Action::Quiesced);
    }

    /// Generation stands still.
    pub(super) fn quiesced(&mut self) {
        self.weights.set_publication(Publication::Still);
        let cost = self.publication_cost();
        self.after(cost.install, cost.key, Action::Installed);
    }

    /// The new weights are on the engines.
    pub(super) fn installed(&mut self) {
        self.weights.set_publication(Publication::Installed);
        self.publish(0);
        let cost = self.publication_cost();
        self.after(cost.resume, cost.key, Action::Resumed);
    }

    /// Adds a version; `burned` numbers before its own were used up. Counts the publication for each group that has
    /// sampled a token by then.
    pub(super) fn publish(&mut self, burned: u64) {
        let generated = self.generation.time();
        self.weights.install(generated, self.learner.steps(), burned);
        self.tally.published(self.agenda.now());
        if S::COUNTS {
            let version = self.weights.version();
            for group in self.groups.iter_mut() {
                group.publications += u64::from(group.floor < version && group.first <= generated);
            }
        }
    }

    /// Generation continues.
    pub(super) fn resumed(&mut self) {
        self.weights.set_publication(Publication::None);
        self.begin_blocked();
        self.learner_free();
    }
}
