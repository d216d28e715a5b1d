//! How many groups downstream can take now.
//!
//! Operators do not call upstream, and the user may put adaptors between two operators. But a poll passes through all
//! of them: `.batch` and the task of `.buffer` set the demand around each poll of their input, and `.generate` reads it
//! in the same call stack. If there is a channel or a spawned task between them, the poll ends there. So `.batch` and
//! `.buffer` also tell the run, from the first group on, and `.generate` asks the run if no demand is set. Without
//! both, only the slots limit generation.

use std::cell::Cell;

use anabranch_core::{Cause, Stamp};

/// How many groups may be in flight.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The bound; `None` if there is none.
    pub(crate) groups: Option<usize>,
    /// The moment that raised the bound to its value; it enables a lease.
    pub(crate) since: Option<(Cause, Stamp)>,
}

thread_local! {
    static IN_FORCE: Cell<Option<Demand>> = const { Cell::new(None) };
}

/// Sets a demand for polls on this thread. When it is dropped, the previous demand is set again.
#[derive(Debug)]
#[must_use = "the demand ends when this is dropped"]
pub(crate) struct InForce {
    before: Option<Demand>,
    /// The demand belongs to the thread of the poll.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Demand {
    /// Sets the demand for polls on this thread, until the guard is dropped.
    pub(crate) fn enforce(self) -> InForce {
        InForce { before: IN_FORCE.replace(Some(self)), _not_send: std::marker::PhantomData }
    }

    /// The demand of the current poll; `None` if no operator downstream is part of the poll.
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
