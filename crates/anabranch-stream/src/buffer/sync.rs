//! The lock and the task of a buffer. The unit tests of this crate replace them with those of an adversarial scheduler.

#[cfg(test)]
pub(super) use adversarial::{JoinHandle, Mutex, panic_of, spawn};
#[cfg(not(test))]
pub(super) use {parking_lot::Mutex, tokio::spawn, tokio::task::JoinHandle};

/// Returns the panic that ended a task, or the other error that ended it.
#[cfg(not(test))]
pub(super) fn panic_of(error: tokio::task::JoinError) -> Result<Box<dyn std::any::Any + Send>, String> {
    error.try_into_panic().map_err(|cancelled| cancelled.to_string())
}

#[cfg(test)]
mod adversarial {
    use std::any::Any;

    pub(crate) use shuttle::future::{JoinHandle, spawn};
    use shuttle::sync::MutexGuard;

    /// A lock that lets the scheduler switch tasks whenever it is taken.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a panic ends the whole test")
        }
    }

    /// Always the error, never a panic: a panic ends the whole test, so a task that failed to join was cancelled.
    #[allow(clippy::needless_pass_by_value, reason = "its namesake takes the error apart")]
    pub(crate) fn panic_of(error: shuttle::future::JoinError) -> Result<Box<dyn Any + Send>, String> {
        Err(error.to_string())
    }
}
