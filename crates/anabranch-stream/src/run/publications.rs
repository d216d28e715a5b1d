//! Publications, as the run records them: one at a time, and in step with the version clock.

use std::sync::Arc;
use std::task::Waker;

use anabranch_core::{Cause, Digest, EventKind, Stamp, TrainingStep, Version, VersionClock, WeightSync};
use futures::lock::OwnedMutexGuard;
use parking_lot::MutexGuard;

use super::{Draft, RecordReceipt, Run};

impl Run {
    /// Waits until no other publication of the run is in progress. The next one waits until the guard is dropped.
    pub(crate) async fn publication_turn(&self) -> OwnedMutexGuard<()> {
        self.0.turn.clone().lock_owned().await
    }

    /// Returns the turn that all current evaluations share.
    pub(crate) async fn shared_publication_turn(&self) -> Arc<OwnedMutexGuard<()>> {
        if let Some(turn) = self.0.shared_turn.lock().upgrade() {
            return turn;
        }
        let turn = Arc::new(self.publication_turn().await);
        *self.0.shared_turn.lock() = Arc::downgrade(&turn);
        turn
    }

    /// Begins a publication. Its version number is used up, even if the publication fails.
    pub(crate) fn begin_publication(
        &self,
        weights: Digest,
        mode: WeightSync,
        enablers: Vec<(Cause, Stamp)>,
    ) -> (Version, RecordReceipt) {
        let clock = self.clock();
        let version = clock.next_version();
        let kind = EventKind::Publishing { version, step: clock.step(), updates: clock.updates(), weights, mode };
        let recorded = self.commit(clock, vec![Draft::new(kind, enablers)], &[], |clock, _| clock.begin(version));
        (version, recorded)
    }

    /// Notes that the weights are on the engines: records `Published` and advances the clock in one critical section.
    pub(crate) fn complete_publication(
        &self,
        version: Version,
        weights: Digest,
        pause_began: u64,
        paused: u64,
        enablers: Vec<(Cause, Stamp)>,
    ) -> RecordReceipt {
        let clock = self.clock();
        let (step, updates) = (clock.step(), clock.updates());
        let kind = EventKind::Published { version, step, updates, weights, pause_began, paused };
        self.install(clock, version, step, Draft::new(kind, enablers))
    }

    /// Notes that weights of an earlier session are on the engines again, under the same version.
    pub(crate) fn reinstall(&self, version: Version, step: TrainingStep, weights: Digest) -> RecordReceipt {
        let kind = EventKind::Reinstalled { version, step, weights };
        self.install(self.clock(), version, step, Draft::new(kind, vec![(Cause::Opened, self.opened())]))
    }

    /// Records an installation and advances the clock in one critical section, then wakes the batches that must judge
    /// again.
    fn install(
        &self,
        clock: MutexGuard<'_, VersionClock>,
        version: Version,
        step: TrainingStep,
        installed: Draft,
    ) -> RecordReceipt {
        let recorded = self.commit(clock, vec![installed], &[], |clock, stamp| clock.install(version, step, stamp));
        let waiting = self.0.publications.lock().take();
        waiting.wake();
        recorded
    }

    /// Wakes `waker` at the next publication. A batch that holds groups uses it to judge them again.
    pub(crate) fn wake_on_publication(&self, waker: &Waker) {
        self.0.publications.lock().add(waker);
    }
}
