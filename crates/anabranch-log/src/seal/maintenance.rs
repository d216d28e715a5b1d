//! The maintenance thread: it seals the log, and syncs at intervals what was acknowledged without a sync.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Sealer;
use super::requests::Requests;
use crate::SealError;
use crate::retain::Retention;
use crate::write::Store;

/// The longest time that events wait until a seal is due.
const SEAL_EVERY: Duration = Duration::from_mins(1);

/// What the thread works with.
pub(crate) struct Maintenance {
    pub(crate) store: Arc<Store>,
    pub(crate) sealer: Option<Sealer>,
    /// How often to sync; `None` if every commit is synced.
    pub(crate) sync_every: Option<Duration>,
    /// The thread that drops sealed payloads, if the sealer can read them back.
    pub(crate) retention: Option<Retention>,
}

impl Maintenance {
    /// The thread's loop. It ends with the result of the last seal.
    pub(crate) fn run(mut self) -> Result<(), SealError> {
        let (mut last_sync, mut next_seal) = (Instant::now(), Instant::now() + SEAL_EVERY);
        loop {
            let deadline = self.sync_every.map_or(next_seal, |every| next_seal.min(last_sync + every));
            let Requests { due, callers, finish, .. } = self.store.seals.wait(deadline);
            let now = Instant::now();
            if let Some(every) = self.sync_every
                && (finish || now >= last_sync + every)
            {
                // A failure poisons the log, which tells everybody who appends.
                let _ = self.store.sync(self.store.written());
                last_sync = now;
            }
            if due || finish || !callers.is_empty() || now >= next_seal {
                next_seal = now + SEAL_EVERY;
                let sealed = self.seal();
                for caller in callers {
                    // The caller may no longer wait.
                    drop(caller.send(sealed.clone()));
                }
                if finish {
                    if let Some(retention) = self.retention.take() {
                        retention.finish();
                    }
                    return sealed;
                }
            }
        }
    }

    /// Seals everything appended so far, and tells the retention how far that is.
    fn seal(&mut self) -> Result<(), SealError> {
        let Some(sealer) = &mut self.sealer else { return Ok(()) };
        sealer
            .seal(&self.store)
            .inspect_err(|error| tracing::error!(%error, "sealing failed, the next seal tries again"))?;
        if let Some(retention) = &self.retention {
            retention.sealed(sealer.sealed());
        }
        Ok(())
    }
}
