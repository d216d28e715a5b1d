//! The durable event log of anabranch, on `RocksDB`.
//!
//! [`RunLog::open`] creates a run in a directory or resumes the one that is there, and dereferences to the core's `Run`.
//! [`ReadLog`] reads a run that no writer has open. What is promised, and how it is kept, stands in
//! `docs/durability.md`.
//!
//! ```no_run
//! use anabranch_log::{Durability, RunLog};
//!
//! let run = RunLog::open("runs/sort4", Durability::Process)?;
//! println!("session {}, {} events before it", run.found().session, run.found().events);
//! run.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checkpoint;
mod codec;
mod database;
mod encoded;
mod error;
mod failpoint;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod head;
mod keys;
mod layout;
mod live;
mod lock;
mod open;
mod queue;
mod read;
mod recover;
mod retain;
mod salvage;
mod seal;
mod write;

pub use database::Events;
pub use error::{OpenError, ReadError, SealError};
pub use live::LiveLog;
pub use open::{Durability, Found, RunLog, RunLogOptions};
pub use read::{Counts, ReadLog};
pub use salvage::{Missing, SalvageError, Salvaged, Sealed, salvage};
pub use seal::{Sealer, Segment};

/// What users move between threads, or share.
#[cfg(test)]
mod auto_traits {
    use super::*;

    const fn shared<T: Send + Sync>() {}

    const _: () = {
        shared::<RunLog>();
        shared::<ReadLog>();
        shared::<LiveLog>();
        shared::<OpenError>();
        shared::<ReadError>();
        shared::<SealError>();
    };
}
