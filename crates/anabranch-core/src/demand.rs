//! How many groups downstream can take now, told to the operators upstream by the poll itself.
//!
//! Nobody calls upstream, and user adaptors may stand between two operators. But polling passes through all of them: so
//! `.batch` and the task of `.buffer` set the demand of the current thread around each poll of their input, and
//! `.generate` reads it in that same call stack. Without either there is no bound but the slots.

use std::cell::Cell;

use crate::{Cause, Stamp};

/// The bound, and what let it rise to where it is.
type Current = (Option<usize>, Option<(Cause, Stamp)>);

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new((None, None)) };
}

/// Puts a bound on the groups that may be on their way while it lives; restores the bound before it when dropped.
#[derive(Debug)]
#[must_use = "the demand ends when this is dropped"]
pub struct Demand {
    before: Current,
    /// The demand belongs to the thread of the poll.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Demand {
    /// From now until it is dropped, polls on this thread may bring the groups on their way up to `groups`; `None` lifts
    /// the bound.
    pub fn set(groups: Option<usize>) -> Self {
        Self::set_since(groups, None)
    }

    /// The same, with what let the bound rise to where it is: one of the moments that enable a lease.
    pub fn set_since(groups: Option<usize>, since: Option<(Cause, Stamp)>) -> Self {
        Self { before: CURRENT.replace((groups, since)), _not_send: std::marker::PhantomData }
    }

    /// The bound in force, if there is one.
    pub fn current() -> Option<usize> {
        CURRENT.get().0
    }

    /// What let the bound in force rise to where it is.
    pub fn since() -> Option<(Cause, Stamp)> {
        CURRENT.get().1
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_nest() {
        assert_eq!(Demand::current(), None);
        let outer = Demand::set(Some(3));
        {
            let _inner = Demand::set(None);
            assert_eq!(Demand::current(), None);
        }
        assert_eq!(Demand::current(), Some(3));
        drop(outer);
        assert_eq!(Demand::current(), None);
    }
}
