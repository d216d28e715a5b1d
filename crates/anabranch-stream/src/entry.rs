//! Finds the run of a rollout, for the operators that need it.

use crate::run::Stage;
use crate::{Rollout, Run};

/// Returns the run of a rollout. If its lease was not issued yet, because an adaptor of the user made the group, it is
/// issued here.
pub(crate) fn run_of(rollout: &mut Rollout) -> Run {
    rollout.lease.issue(Vec::new());
    rollout.run().clone()
}

/// Moves the rollout to a new stage. Operators that work on a group hold new leases back; operators that only hold it
/// do not.
pub(crate) fn at(mut rollout: Rollout, stage: Stage) -> Rollout {
    rollout.lease.arrive(stage);
    rollout
}
