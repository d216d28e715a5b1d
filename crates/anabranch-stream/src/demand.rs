//! How many groups downstream can take now.
//!
//! Nobody calls upstream, and adaptors of the user may stand between two operators. But polling passes through all of them:
//! `.batch` and the task of `.buffer` put the demand in force around each poll of their input, and `.generate` reads it in
//! that same call stack. If a channel or a spawned task stands between them, the poll ends there. So both also tell the
//! run, from the first group on, and `.generate` asks the run when no demand is in force. Without either there is no
//! bound but the slots.

use std::cell::Cell;

use anabranch_core::{Cause, Stamp};

/// How many groups may be on their way.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The bound; `None` if there is none.
    pub(crate) groups: Option<usize>,
    /// What let the bound rise to its value: one of the moments that enable a lease.
    pub(crate) since: Option<(Cause, Stamp)>,
}

thread_local! {
    static IN_FORCE: Cell<Option<Demand>> = const { Cell::new(None) };
}

/// Keeps a demand in force for polls on this thread; puts the demand before it in force again when dropped.
#[derive(Debug)]
#[must_use = "the demand ends when this is dropped"]
pub(crate) struct InForce {
    before: Option<Demand>,
    /// The demand belongs to the thread of the poll.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Demand {
    /// From now until the guard is dropped, polls on this thread may bring the groups on their way up to this demand.
    pub(crate) fn enforce(self) -> InForce {
        InForce { before: IN_FORCE.replace(Some(self)), _not_send: std::marker::PhantomData }
    }

    /// The demand of the poll under way; `None` if no operator downstream is part of it.
    pub(crate) fn in_force() -> Option<Self> {
        IN_FORCE.get()
    }
}

impl Drop for InForce {
    fn drop(&mut self) {
        IN_FORCE.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_nest() {
        let of = |groups| Demand { groups, since: None };
        assert_eq!(Demand::in_force(), None);
        let outer = of(Some(3)).enforce();
        {
            let _inner = of(None).enforce();
            assert_eq!(Demand::in_force(), Some(of(None)));
        }
        assert_eq!(Demand::in_force(), Some(of(Some(3))));
        drop(outer);
        assert_eq!(Demand::in_force(), None);
    }
}
