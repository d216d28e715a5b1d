//! The run, moment by moment: what is due first happens first.

use super::agenda::Action;
use super::pipeline::Pipeline;
use crate::whatif::outcome::Outcome;
use crate::whatif::prediction::Sink;

impl<S: Sink> Pipeline<'_, S> {
    pub(super) fn run(mut self) -> (Outcome, S) {
        self.learner_free();
        self.wake_feeder();
        while !self.agenda.is_over() {
            let session_ends = self.sessions.ends();
            let action = self.agenda.first().filter(|(due, _)| due.0 <= session_ends);
            let end = self.generation.first_end().filter(|_| !self.weights.stand_still());
            let end = end
                .map(|(generated, key, group)| (self.agenda.now() + (generated - self.generation.time()), key, group));
            let end = end.filter(|&(at, ..)| at <= session_ends);
            match (action, end) {
                (action, Some((at, key, group)))
                    if action.is_none_or(|(due, _)| (at, 0, key) < (due.0, due.1, due.2)) =>
                {
                    self.advance(at, 0);
                    self.sample_ended(group);
                }
                (Some((due, action)), _) => {
                    self.agenda.pop();
                    self.advance(due.0, due.1);
                    self.act(action);
                }
                _ => {
                    let nothing_comes = self.agenda.is_empty() && !self.generation.expects_end();
                    let continues = nothing_comes && self.emit_partial();
                    if !continues && !self.next_session() {
                        self.agenda.end();
                    }
                }
            }
        }
        self.finish()
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Completed(group) => self.completed(group),
            Action::Arrived(group) => self.arrived(group),
            Action::Durable(group) => self.durable(group),
            Action::Admitted(group) => self.admitted(group),
            Action::Excluded(group) => self.excluded_stale(group),
            Action::Lease => self.lease(),
            Action::Feed => self.feed(),
            Action::Ask => self.ask(),
            Action::Taken => self.taken(),
            Action::Stepped => self.stepped(),
            Action::Publishing => self.publishing(),
            Action::Paused => self.paused(),
            Action::Still => self.still(),
            Action::Quiesced => self.quiesced(),
            Action::Installed => self.installed(),
            Action::Resumed => self.resumed(),
            Action::Free => self.learner_free(),
        }
    }

    /// Does `action` after `delay`, or at once if there is no delay.
    pub(super) fn after(&mut self, delay: u64, key: u64, action: Action) {
        if delay == 0 { self.act(action) } else { self.agenda.schedule(self.agenda.now() + delay, 0, key, action) }
    }
}
