//! How a rollout enters the operators that need its run.

use crate::run::Stage;
use crate::{Rollout, Run};

/// The run of a rollout. If nobody issued its lease yet (an adaptor of the user made the group), it is issued here.
pub(crate) fn run_of(rollout: &mut Rollout) -> Run {
    rollout.lease.issue(Vec::new());
    rollout.run().clone()
}

/// The rollout at its new stage: what works on it keeps new leases back, what only holds it does not.
pub(crate) fn at(mut rollout: Rollout, stage: Stage) -> Rollout {
    rollout.lease.arrive(stage);
    rollout
}
