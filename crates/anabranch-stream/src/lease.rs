//! Leases: the right to generate one prompt once, and the duty to settle it.

use anabranch_core::{Cause, EventKind, LeaseId, OldestVersion, Prompt, Seq, Stamp};

use crate::run::{Draft, Stage};
use crate::{Run, Unused};

/// A completed group that a resumed run found unconsumed in its log.
#[derive(Clone, Debug)]
pub(crate) struct RestoredGroup {
    /// Its `Completed` record.
    pub(crate) completed: Stamp,
    /// Its `Admitted` record, where it has one.
    pub(crate) admitted: Option<Stamp>,
}

/// The right to generate one prompt once. Every lease that was issued is settled by exactly one event.
///
/// A lease dropped unsettled (by a user's adaptor, or because the pipeline was dropped) leaves no record: the log still
/// shows it open, and the next opening of the run brings it back.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    prompt: Prompt,
    run: Run,
    unused: Unused,
    stage: Stage,
    /// Position of a fresh prompt in the dataset's order over all epochs.
    position: Option<u64>,
    /// What made it possible: the exclusion of what it retries, the pace.
    enablers: Vec<(Cause, Stamp)>,
    /// Whether it counts among the leases that the pace let through.
    paced: bool,
    /// Which re-issue this is; 0 for a lease issued the first time.
    reissue: u32,
    issued: Option<Stamp>,
    restored: Option<RestoredGroup>,
    adopted: bool,
    /// The oldest version in the group that is in the buffer.
    oldest: Option<OldestVersion>,
}

impl Lease {
    pub(crate) fn new(run: Run, id: LeaseId, prompt: Prompt, unused: Unused) -> Self {
        run.flow().enter(Stage::Offered);
        Self {
            id,
            prompt,
            run,
            unused,
            stage: Stage::Offered,
            position: None,
            enablers: Vec::new(),
            paced: false,
            reissue: 0,
            issued: None,
            restored: None,
            adopted: false,
            oldest: None,
        }
    }

    pub(crate) fn of_adopted_group(mut self) -> Self {
        self.adopted = true;
        self
    }

    pub(crate) fn at_position(mut self, position: u64) -> Self {
        self.position = Some(position);
        self
    }

    pub(crate) fn enabled_by(mut self, cause: Cause, stamp: Stamp) -> Self {
        self.enablers.push((cause, stamp));
        self
    }

    /// A lease issued by an earlier session: with a group that waits in the log, or to be issued again.
    pub(crate) fn reopened(mut self, issued: Stamp, reissue: u32, restored: Option<RestoredGroup>) -> Self {
        self.issued = restored.is_some().then_some(issued);
        self.reissue = reissue;
        self.restored = restored;
        self
    }

    /// Counts as issued by an earlier session, so that it can be settled without being issued again.
    pub(crate) fn settle_unissued(&mut self, issued: Stamp) {
        self.issued = Some(issued);
    }

    /// Its name.
    pub fn id(&self) -> &LeaseId {
        &self.id
    }

    /// What to generate from.
    pub fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    /// The run it belongs to.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// What becomes of the prompt if the group goes unused.
    pub(crate) fn unused(&self) -> Unused {
        self.unused
    }

    /// Where the group is.
    #[cfg(test)]
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// When it was issued; nothing before [`issue`](Self::issue).
    pub(crate) fn issued(&self) -> Option<Stamp> {
        self.issued
    }

    /// The sequence number of its `Leased` (or `Reissued`) record, once issued.
    pub(crate) fn seq(&self) -> Option<Seq> {
        self.issued.and_then(|stamp| stamp.moment.event())
    }

    /// The group waiting in the log, where an earlier session completed it.
    pub(crate) fn restored(&self) -> Option<&RestoredGroup> {
        self.restored.as_ref()
    }

    /// Whether its group was made elsewhere (see [`Run::adopt`]): nothing upstream runs for it, and no demand holds it
    /// back.
    pub(crate) fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// Records that generation of this prompt begins now, enabled by `enablers` (a free slot, room downstream).
    /// A lease that is already issued keeps its record.
    pub(crate) fn issue(&mut self, mut enablers: Vec<(Cause, Stamp)>) -> Stamp {
        if let Some(stamp) = self.issued {
            return stamp;
        }
        enablers.append(&mut self.enablers);
        let kind = if self.reissue > 0 {
            EventKind::Reissued { id: self.id.clone(), reissue: self.reissue }
        } else {
            EventKind::Leased { id: self.id.clone(), position: self.position }
        };
        let stamp = self.run.record(vec![Draft::new(kind, enablers)], &[]).stamp(0);
        self.issued = Some(stamp);
        self.unpace();
        if self.stage == Stage::Offered {
            self.arrive(Stage::Working);
        }
        stamp
    }

    /// Whether it was leased before, by an earlier session: it is part of [`Run::lead`] already.
    pub(crate) fn was_leased(&self) -> bool {
        self.issued.is_some() || self.reissue > 0
    }

    /// A pacing bound lets it through, since `since`: it counts in [`Run::lead`] from now on.
    pub(crate) fn pace(&mut self, since: Option<Stamp>) {
        self.enablers.extend(since.map(|stamp| (Cause::Pace, stamp)));
        if !std::mem::replace(&mut self.paced, true) {
            self.run.flow().pace();
        }
    }

    fn unpace(&mut self) {
        if std::mem::take(&mut self.paced) {
            self.run.flow().unpace();
        }
    }

    /// Notes what lets the group leave an operator's hands now: that lets another lease out.
    pub(crate) fn note_departure(&self, stamp: Stamp) {
        self.run.flow().depart(stamp);
    }

    /// Makes the group one that counts as open until it is settled, whether or not it is held by a batch; `false` where
    /// the source has ended, so that no retry can be served.
    pub(crate) fn reopen(&mut self) -> bool {
        if self.stage == Stage::Held {
            if !self.run.flow().reopen_held() {
                return false;
            }
            self.stage = Stage::Upstream;
        }
        true
    }

    /// Records that the group has moved on to `stage`.
    pub(crate) fn arrive(&mut self, stage: Stage) {
        self.travel(stage);
        self.stage = stage;
    }

    /// Records that the group, shaped by `oldest`, has entered the buffer.
    pub(crate) fn enter_buffer(&mut self, oldest: Option<OldestVersion>) {
        self.oldest = oldest;
        self.arrive(Stage::Buffered);
    }

    fn travel(&self, to: Stage) {
        let timed = self.stage.is_timed() || to.is_timed();
        self.run.flow().travel(self.stage, to, self.oldest, timed.then(|| self.run.now()));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.unpace();
        if self.stage != Stage::Settled {
            self.travel(Stage::Settled);
        }
    }
}
