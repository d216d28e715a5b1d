//! The lock and the task of a buffer. The unit tests of this crate put an adversarial scheduler in their place.

#[cfg(test)]
pub(super) use adversarial::{JoinHandle, Mutex, panic_of, spawn};
#[cfg(not(test))]
pub(super) use {parking_lot::Mutex, tokio::spawn, tokio::task::JoinHandle};

/// The panic that ended a task; else what ended it.
#[cfg(not(test))]
pub(super) fn panic_of(error: tokio::task::JoinError) -> Result<Box<dyn std::any::Any + Send>, String> {
    error.try_into_panic().map_err(|cancelled| cancelled.to_string())
}

#[cfg(test)]
mod adversarial {
    use std::any::Any;

    pub(crate) use shuttle::future::{JoinHandle, spawn};
    use shuttle::sync::MutexGuard;

    /// A lock that lets the scheduler step in wherever it is taken.
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

    /// A panic ends the whole test: a task that is joined was cancelled.
    #[allow(clippy::needless_pass_by_value, reason = "its namesake takes the error apart")]
    pub(crate) fn panic_of(error: shuttle::future::JoinError) -> Result<Box<dyn Any + Send>, String> {
        Err(error.to_string())
    }
}
