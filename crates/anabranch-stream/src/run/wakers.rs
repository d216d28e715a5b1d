//! Tasks that wait for the same thing.

use std::task::Waker;

/// Tasks to be woken together, each once however often it asked.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    pub(crate) fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// All that wait now; nobody waits after. Wake them without the lock that guards this.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}
