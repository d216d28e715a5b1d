//! The simulated pipeline: its parts, and the time that passes for all of them.

use anabranch_core::WeightSync;

use super::agenda::Agenda;
use super::buffer::Buffer;
use super::generation::Generation;
use super::groups::Groups;
use super::learner::Learner;
use super::question::Question;
use super::sessions::Sessions;
use super::source::Source;
use super::tally::Tally;
use super::upstream::Upstream;
use super::weights::{Publication, Weights};
use crate::whatif::outcome::Outcome;
use crate::whatif::pauses::waits;
use crate::whatif::prediction::{Fate, Sink};

/// A pipeline in virtual time.
#[derive(Debug)]
pub(super) struct Pipeline<'a, S> {
    pub(super) question: Question<'a>,
    pub(super) agenda: Agenda,
    pub(super) groups: Groups,
    pub(super) source: Source<'a>,
    pub(super) generation: Generation,
    pub(super) upstream: Upstream,
    pub(super) buffer: Buffer,
    pub(super) learner: Learner,
    pub(super) weights: Weights,
    pub(super) sessions: Sessions<'a>,
    pub(super) tally: Tally<S>,
}

impl<'a, S: Sink> Pipeline<'a, S> {
    pub(super) fn new(question: Question<'a>, sink: S) -> Self {
        let Question { recording, settings, .. } = question;
        let (sessions, opening) = Sessions::open(&recording.sessions);
        Self {
            question,
            agenda: Agenda::starting_at(opening.began),
            groups: Groups::default(),
            source: Source::new(question, opening.installed),
            generation: Generation::new(settings.slots(), opening.installed),
            upstream: Upstream::default(),
            buffer: Buffer::new(settings.order),
            learner: Learner::new(settings.batch),
            weights: Weights::initial(opening.burned),
            sessions,
            tally: Tally::new(question, sink),
        }
    }

    /// Returns what becomes of samples in flight at publications.
    pub(super) fn mode(&self) -> WeightSync {
        self.question.settings.mode.unwrap_or(self.sessions.mode())
    }

    pub(super) fn mode_drains(&self) -> bool {
        waits(self.mode())
    }

    /// Lets time pass until `now`, and enters this phase of that moment.
    pub(super) fn advance(&mut self, now: u64, phase: u32) {
        let passed = now - self.agenda.now();
        if passed > 0 {
            self.tally_time(passed);
            if !self.weights.stand_still() {
                self.generation.pass(passed);
            }
        }
        self.agenda.set_moment(now, phase);
    }

    fn tally_time(&mut self, passed: u64) {
        let settings = self.question.settings;
        let free = self.generation.free_slots();
        self.tally.pass(passed, self.upstream.groups(), self.buffer.len() + self.learner.held());
        match self.weights.publication() {
            Publication::Draining | Publication::Lingering => {
                self.tally.paused(passed, self.generation.blocked() * settings.slots_of_group());
            }
            Publication::Still | Publication::Installed => self.tally.paused(passed, settings.slots() - free),
            Publication::None | Publication::Begun => {}
        }
        if self.upstream.first_waiting().is_some() && self.source.has_prompt() {
            self.tally.full_buffer(passed, free);
        }
    }

    /// Forgets a group, after telling what became of it.
    pub(super) fn settle(&mut self, group: u32, fate: Fate) {
        self.tell(group, fate, Some(self.agenda.now()));
        self.groups.forget(group);
    }

    fn tell(&mut self, group: u32, fate: Fate, settled: Option<u64>) {
        let group = &self.groups[group];
        let oldest = group.oldest.map(|oldest| self.weights.number(oldest));
        self.tally.settled(group.predicted(fate, settled, oldest));
    }

    /// Ends the run with whatever is open.
    pub(super) fn finish(mut self) -> (Outcome, S) {
        for index in self.groups.open() {
            let group = &self.groups[index];
            self.tally.left(if group.is_completed() { group.tokens } else { 0 });
            self.tell(index, Fate::Left, None);
        }
        let wall = self.sessions.wall(self.agenda.now());
        self.tally.finish(self.question, self.learner.steps(), wall)
    }
}
