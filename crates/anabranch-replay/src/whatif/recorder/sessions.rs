//! The ends of sessions, and of the log.

use anabranch_core::Event;

use super::{Recorder, int};
use crate::whatif::pauses::Pauses;
use crate::whatif::recording::{Session, Verdict};
use crate::whatif::{Recording, Settings, WhatIfError};

impl Recorder {
    /// Ends a session. Returns how long the learner took to ask for groups after the session's last batch.
    fn close_session(&mut self) -> u64 {
        // Stale groups may have left after the last batch.
        let last_poll = self.depart();
        self.measure_deferred();
        let waits = self.waits();
        let first = self.publications.len() - self.drains.len();
        for (cost, (_, paused, until)) in self.publications[first..].iter_mut().zip(self.drains.drain(..)) {
            cost.quiesce = if waits { paused - until } else { cost.drained - cost.linger };
        }
        for open in self.open.values().filter(|open| open.completed.is_none() && !open.earlier) {
            let elapsed = self.pauses.generated(self.session.last) - self.pauses.generated(open.leased);
            self.ends[open.spec as usize * self.samples..][..self.samples].fill(elapsed);
        }
        self.session.burned = u64::from(self.publishing.is_some());
        self.sessions.push(self.session);
        last_poll
    }

    pub(super) fn turn(&mut self, event: &Event) {
        self.close_session();
        if let Some((taken, cost)) = self.taken.zip(self.steps.last_mut()) {
            cost.train = self.session.last.saturating_sub(taken) + 1;
        }
        for open in self.open.values_mut() {
            // Moments of earlier sessions enable without a delay.
            open.completed = open.completed.map(|_| 0);
            open.admitted = open.admitted.map(|(_, record)| (0, record));
            (open.worked_on, open.earlier) = (false, true);
        }
        let mode = self.session.mode;
        (self.pauses, self.session) = (Pauses::default(), Session { opened: event.at, mode, ..Session::default() });
        (self.publishing, self.installing, self.reinstalled, self.taken) = (None, None, None, None);
        (self.working, self.unblocked, self.moved, self.free) = (0, 0, false, event.at);
        self.arriving.clear();
        self.ended_since.clear();
    }

    /// Returns the recording.
    ///
    /// # Errors
    /// Returns [`WhatIfError::Mismatch`] if the schedule of the log does not add up, and another [`WhatIfError`] if the
    /// log cannot be replayed.
    pub fn finish(mut self) -> Result<Recording, WhatIfError> {
        std::mem::take(&mut self.schedule).finish()?;
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        let last_poll = self.close_session();
        if self.sessions.iter().all(|session| session.began.is_none())
            || self.publications.first().is_none_or(|first| first.step > 0)
        {
            return Err(WhatIfError::Unsupported("expected the first weights to be published in the log".to_owned()));
        }
        let whole: Vec<u32> = (0..).zip(&self.specs).filter(|(_, spec)| !spec.cut).map(|(index, _)| index).collect();
        let kept = |&index: &u32| matches!(self.specs[index as usize].verdict, Verdict::Passed | Verdict::Aborted);
        let mut unfiltered: Vec<u32> = whole.iter().copied().filter(kept).collect();
        if unfiltered.is_empty() {
            unfiltered.clone_from(&whole);
        }
        let made = self.steps.iter().filter(|step| step.made).count();
        self.steps.truncate(made);
        if whole.is_empty() || made == 0 {
            let what = if whole.is_empty() { "completed group" } else { "training step" };
            return Err(WhatIfError::Unsupported(format!("expected at least one {what} in the log, found none")));
        }
        let mut modes = self.sessions.iter().filter(|session| session.began.is_some()).map(|session| session.mode);
        let mode = modes.next().filter(|mode| modes.all(|other| other == *mode));
        let mut settings = Settings::read(&self.known, mode)?;
        let prompts = self.known.get("prompts");
        let positions = prompts.map_or(0, |fields| int(fields, "rows") * int(fields, "epochs"));
        let exhausted = self.closed && self.fresh.len() as u64 == positions;
        settings.steps = (!exhausted).then_some(made as u64);
        settings.check()?;
        Ok(Recording {
            settings,
            specs: self.specs,
            ends: self.ends,
            fresh: self.fresh,
            positions,
            whole,
            unfiltered,
            steps: self.steps,
            last_poll,
            publications: self.publications,
            ended: self.free,
            sessions: self.sessions,
        })
    }
}
