//! The durable event log of anabranch, on `RocksDB`.
//!
//! [`EventLog::open`] creates the log of a run in a directory, or opens the one that is there, and gives the journal for
//! this session and the state that earlier sessions left. [`ReadLog`] reads a run that no writer has open. `docs/durability.md`
//! says what is promised and how it is kept. The crate `anabranch` composes log and run: see its `RunLog`.
//!
//! ```no_run
//! use anabranch_log::{Durability, EventLog, Opened};
//!
//! let Opened { log, resume, .. } = EventLog::open("runs/sort4", Durability::Process)?;
//! println!("session {}, {} groups wait for the buffer", log.found().session, resume.queued.len());
//! log.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checkpoint;
mod codec;
mod database;
mod encoded;
mod error;
mod event_log;
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
mod options;
mod queue;
mod read;
mod recover;
mod retain;
mod salvage;
mod seal;
mod write;

pub use database::Events;
pub use error::{OpenError, ReadError, SealError};
pub use event_log::{EventLog, Found, Opened};
pub use live::LiveLog;
pub use options::{Durability, LogOptions};
pub use read::{Counts, ReadLog};
pub use salvage::{Missing, SalvageError, Salvaged, Sealed, salvage};
pub use seal::{Sealer, Segment};

/// What users move between threads, or share.
#[cfg(test)]
mod auto_traits {
    use super::*;

    const fn shared<T: Send + Sync>() {}

    const _: () = {
        shared::<EventLog>();
        shared::<ReadLog>();
        shared::<LiveLog>();
        shared::<OpenError>();
        shared::<ReadError>();
        shared::<SealError>();
    };
}
