//! A lease is the right to generate one prompt once. Each issued lease must be settled.

use anabranch_core::{Cause, EventKind, LeaseId, OldestVersion, Prompt, Seq, Stamp};

use crate::run::{Draft, Stage};
use crate::{Run, Unused};

/// A completed group that a resumed run found in its log, neither consumed nor excluded.
#[derive(Clone, Debug)]
pub(crate) struct RestoredGroup {
    /// The `Completed` record.
    pub(crate) completed: Stamp,
    /// The `Admitted` record, if there is one.
    pub(crate) admitted: Option<Stamp>,
}

/// The right to generate one prompt once. Exactly one event settles each issued lease.
///
/// If a lease is dropped unsettled (by a user's adaptor, or because the pipeline was dropped), nothing is recorded. The
/// log still shows it open, and the next session of the run issues it again.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    prompt: Prompt,
    run: Run,
    unused: Unused,
    stage: Stage,
    /// The position of a fresh prompt in the dataset's order over all epochs.
    position: Option<u64>,
    /// The events that made the lease possible: the exclusion that it retries, or the pace.
    enablers: Vec<(Cause, Stamp)>,
    /// Whether the lease counts among those that `.pace` passed.
    paced: bool,
    /// The number of the re-issue; 0 for a lease issued for the first time.
    reissue: u32,
    issued: Option<Stamp>,
    restored: Option<RestoredGroup>,
    adopted: bool,
    /// The oldest version of the group, while it is in the buffer.
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

    /// Creates a lease that an earlier session issued, either with a group in the log or to be issued again.
    pub(crate) fn reopened(mut self, issued: Stamp, reissue: u32, restored: Option<RestoredGroup>) -> Self {
        self.issued = restored.is_some().then_some(issued);
        self.reissue = reissue;
        self.restored = restored;
        self
    }

    /// Marks the lease as issued by an earlier session, so that it can be settled without being issued again.
    pub(crate) fn settle_unissued(&mut self, issued: Stamp) {
        self.issued = Some(issued);
    }

    /// The name of the lease.
    pub fn id(&self) -> &LeaseId {
        &self.id
    }

    /// The prompt.
    pub fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    /// The run of the lease.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// What happens to the prompt if the group is aborted or stale.
    pub(crate) fn unused(&self) -> Unused {
        self.unused
    }

    /// Where the group is.
    #[cfg(test)]
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// When the lease was issued; `None` before [`issue`](Self::issue).
    pub(crate) fn issued(&self) -> Option<Stamp> {
        self.issued
    }

    /// The `seq` of the `Leased` (or `Reissued`) record, once issued.
    pub(crate) fn seq(&self) -> Option<Seq> {
        self.issued.and_then(|stamp| stamp.moment.event())
    }

    /// The group in the log, if an earlier session completed it.
    pub(crate) fn restored(&self) -> Option<&RestoredGroup> {
        self.restored.as_ref()
    }

    /// Whether the group was made elsewhere (see [`Run::adopt`]). Nothing upstream runs for it, and demand does not
    /// hold it back.
    pub(crate) fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// Records that generation of this prompt begins now, enabled by `enablers` (such as a free slot or room
    /// downstream). A lease that is already issued keeps its record.
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

    /// Whether an earlier session issued the lease. [`Run::lead`] then counts it already.
    pub(crate) fn was_leased(&self) -> bool {
        self.issued.is_some() || self.reissue > 0
    }

    /// Notes that pacing passed the lease, since `since`. From now on it counts in [`Run::lead`].
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

    /// Notes the event that lets the group leave an operator now, which lets another lease out.
    pub(crate) fn note_departure(&self, stamp: Stamp) {
        self.run.flow().depart(stamp);
    }

    /// Counts the group as open until it is settled, even if a batch holds it. Returns `false` if the source has ended,
    /// so that no retry can be served.
    pub(crate) fn reopen(&mut self) -> bool {
        if self.stage == Stage::Held {
            if !self.run.flow().reopen_held() {
                return false;
            }
            self.stage = Stage::Upstream;
        }
        true
    }

    /// Notes that the group has moved on to `stage`.
    pub(crate) fn arrive(&mut self, stage: Stage) {
        self.travel(stage);
        self.stage = stage;
    }

    /// Notes that the group, whose oldest version is `oldest`, has entered the buffer.
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
