//! Restarts: a barrier, over which everything open is carried.

use super::{Group, Learner, Lost, NONE, Publication, Retry, Simulation};
use crate::whatif::buffer::Buffer;
use crate::whatif::prediction::Sink;

impl<S: Sink> Simulation<'_, S> {
    /// When the session is cut off; never, where it is the last.
    pub(super) fn session_ends(&self) -> u64 {
        let last = self.session + 1 == self.recording.sessions.len();
        if last { u64::MAX } else { self.recording.sessions[self.session].last }
    }

    /// Goes on in the next session that gets as far as to ask for groups; `false` where there is none.
    pub(super) fn next_session(&mut self) -> bool {
        let sessions = &self.recording.sessions;
        let next = (self.session + 1..sessions.len()).find_map(|index| Some((index, sessions[index].began?)));
        let Some((next, began)) = next else { return false };
        self.wall += sessions[self.session..next].iter().map(|session| session.last - session.opened).sum::<u64>();
        let burned = sessions[self.session + 1..next].iter().map(|session| session.burned).sum();
        (self.session, self.now, self.phase) = (next, began, 0);
        let installed = sessions[next].installed;
        let completed = self.interrupt();
        self.actions.clear();
        self.ends.clear();
        self.entering.clear();
        self.waiting.clear();
        self.held.clear();
        self.buffer = Buffer::new(self.settings.order);
        self.slots = std::iter::repeat_n(installed, self.settings.slots()).collect();
        (self.working, self.sampling, self.promised, self.arriving, self.arrives_from) = (0, 0, 0, 0, 0);
        (self.ask_due, self.feed_due, self.next_lease, self.clear_since) = (None, false, u64::MAX, installed);
        self.upstream = if self.settings.capacity.is_some() { completed.len() } else { 0 };
        self.retrain(burned);
        for index in completed {
            let group = &mut self.alive[index as usize];
            (group.arrived, group.ready, group.dequeued) = (began, began, None);
            if self.settings.capacity.is_some() {
                self.waiting.push_back(index);
            } else {
                self.buffer.push(index, group.oldest.unwrap_or_default());
            }
        }
        self.learner_free();
        self.wake_feeder();
        true
    }

    /// Loses all generation under way; gives the completed groups in the order in which they come back: those admitted
    /// as they were, then the others as they were completed.
    fn interrupt(&mut self) -> Vec<u32> {
        let mut vacant = vec![false; self.alive.len()];
        self.vacant.iter().for_each(|&index| vacant[index as usize] = true);
        let mut open: Vec<u32> = (0..self.alive.len() as u32).filter(|&index| !vacant[index as usize]).collect();
        open.sort_unstable_by_key(|&index| {
            let group = &self.alive[index as usize];
            (group.admitted.is_none(), group.place)
        });
        let (completed, running): (Vec<u32>, Vec<u32>) =
            open.into_iter().partition(|&index| self.alive[index as usize].completed != u64::MAX);
        for index in running {
            let Group { spec, modelled, position, attempt, place, leased, reissues, .. } = self.alive[index as usize];
            let recorded = &self.recording.specs[spec as usize];
            let again = if modelled || recorded.cut { recorded.again } else { spec };
            let spec = if modelled { NONE } else { again };
            self.retries.push_back(Retry {
                spec,
                position,
                attempt,
                since: 0,
                lost: Some(Lost { place, leased, reissues }),
            });
            self.vacant.push(index);
        }
        self.retries.iter_mut().for_each(|retry| retry.since = 0);
        // Retries go out before what was in flight, whenever that was; that goes out in the order of its leases, however
        // often it was lost since.
        self.retries.make_contiguous().sort_by_key(|retry| retry.lost.map(|lost| lost.place));
        completed
    }

    /// What the learner does from the log before it asks for groups: the step whose batch was taken, and the publication
    /// that is due.
    fn retrain(&mut self, burned_between: u64) {
        // A publication cut off used up its number, and is due again.
        let burned = u64::from(!matches!(self.publication, Publication::None | Publication::Installed));
        (self.publication, self.learner) = (Publication::None, Learner::Works);
        if std::mem::take(&mut self.training) {
            self.outcome.steps += 1;
            let (_, recorded) = self.step_cost(self.outcome.steps);
            self.outcome.modelled.steps.add(!recorded, 1);
            self.sink.stepped(self.now);
        }
        let &(_, step, number) = &self.versions[self.version() as usize];
        let made = self.outcome.steps;
        if made > step && self.publishes_after(made) {
            self.versions.push((self.generated, made, number + 1 + burned + burned_between));
            self.outcome.publications += 1;
            let (_, recorded) = self.publication_cost(made);
            self.outcome.modelled.publications.add(!recorded, 1);
            self.sink.published(self.now);
            self.tally_publication();
        }
    }
}
