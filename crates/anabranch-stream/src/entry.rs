//! How a group enters the operators that need its run.

use anabranch_core::{Error, Group, Run, Stage};

/// The run of a group. A lease that nobody issued (its group was made by an adaptor of the user's) is issued here.
///
/// # Errors
/// Where the group has no lease: it was cloned on its way, or made by hand.
pub(crate) fn run_of(group: &mut Group) -> Result<Run, Error> {
    let Some(lease) = &mut group.context.lease else {
        let id = &group.id;
        let message = format!(
            "{id} belongs to no run: pass groups on whole (a clone is data only), or adopt them (`Run::adopt`)"
        );
        return Err(Error::Argument { argument: "group", message });
    };
    lease.issue(Vec::new());
    Ok(lease.run().clone())
}

/// The group where it is now: what works on it keeps new leases back, what only holds it does not.
pub(crate) fn at(mut group: Group, stage: Stage) -> Group {
    if let Some(lease) = &mut group.context.lease {
        lease.arrive(stage);
    }
    group
}
