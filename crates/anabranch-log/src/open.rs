//! Opening a run's directory for its one writer: look first, refuse what is wrong, and only then change anything.

use std::path::Path;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use anabranch_core::{ResumeState, Seq};
use anabranch_metrics::Meter;

use crate::checkpoint::Checkpoints;
use crate::database::Database;
use crate::event_log::Threads;
use crate::head::{Head, HeadFile, boot};
use crate::lock::RunLock;
use crate::recover::{Recovered, recover};
use crate::retain::Retention;
use crate::seal::Maintenance;
use crate::write::Store;
use crate::{Durability, EventLog, Found, LogOptions, OpenError, Opened, Sealer, layout};

impl LogOptions {
    /// Opens the log of the run in the directory `path`: see [`EventLog::open`].
    ///
    /// # Errors
    /// Returns an [`OpenError`] if the run cannot be opened. The directory is then unchanged.
    pub fn open(mut self, path: impl AsRef<Path>, durability: Durability) -> Result<Opened, OpenError> {
        let path = path.as_ref();
        if durability == Durability::None {
            let (resume, meter) = (ResumeState::default(), Meter::default());
            return Ok(Opened { log: EventLog::in_memory(), resume, meter });
        }
        // An existing run was made durably before anything was recorded in it.
        let made = if Database::exists(&layout::log(path)) { Ok(()) } else { layout::make(path) };
        made.map_err(OpenError::file("making", path))?;
        let lock = RunLock::write(path)?;
        let checkpoints = Checkpoints::new(layout::checkpoints(path), self.keep_checkpoints);
        let Recovered { resume, meter, heads, dropped, exists, head } =
            recover(path, self.accept_missing_head, &checkpoints)?;
        self.compare_settings(&resume)?;
        let mut sealer = self.open_sealer(path)?;
        if let Some(sealer) = &sealer {
            check_sealed(path, sealer.sealed(), heads.next, dropped)?;
        }
        let reader = sealer.as_mut().and_then(Sealer::take_reader);

        // From here on the directory changes.
        checkpoints.tidy().map_err(OpenError::file("tidying", &layout::checkpoints(path)))?;
        let head_path = layout::head(path);
        if head.is_none() {
            let head = Head { synced: durability == Durability::Sync, acked: heads.next, boot: boot(), unsynced: 0 };
            head.create(&head_path).map_err(OpenError::file("making", &head_path))?;
        }
        let head = HeadFile::open(&head_path, durability == Durability::Sync);
        let head = head.map_err(OpenError::file("opening", &head_path))?;
        let log = layout::log(path);
        let database = if exists { Database::open(&log)? } else { Database::create(&log)? };
        let store = Arc::new(Store::new(path, durability, database, heads, checkpoints, reader));

        let sync_every = (durability == Durability::Process).then_some(self.sync_every);
        let retain_from = store.reads_sealed().then_some(dropped);
        let threads = start(store, head, (sealer, retain_from), sync_every, lock, path)?;
        Ok(Opened { log: EventLog::on_disk(path, Found::of(&resume), threads), resume, meter })
    }
}

/// Refuses a log that ends before its sealed part does, and a sealed part that lacks payloads which the log has dropped.
fn check_sealed(run: &Path, sealed: u64, found: u64, dropped: Seq) -> Result<(), OpenError> {
    let (log, segments) = (layout::log(run), layout::segments(run));
    if sealed > found {
        return Err(OpenError::Behind { log, found, witness: segments, needed: sealed });
    }
    if sealed < dropped.0 {
        return Err(OpenError::Unsealed { log, segments, dropped, sealed });
    }
    Ok(())
}

/// Starts the threads of an open log.
fn start(
    store: Arc<Store>,
    head: HeadFile,
    (sealer, retain_from): (Option<Sealer>, Option<Seq>),
    sync_every: Option<Duration>,
    lock: RunLock,
    path: &Path,
) -> Result<Threads, OpenError> {
    let spawn = |name: &str| Builder::new().name(format!("anabranch-log-{name}"));
    let writing = store.clone();
    let writer = spawn("write").spawn(move || writing.write_until_closed(&head));
    let writer = writer.map_err(OpenError::file("starting the writer of", path))?;
    let retaining = store.clone();
    let retention = retain_from.map(|from| Retention::start(spawn("retain"), retaining, from)).transpose();
    let maintenance = retention.map(|retention| Maintenance { store: store.clone(), sealer, sync_every, retention });
    match maintenance.and_then(|maintenance| spawn("seal").spawn(move || maintenance.run())) {
        Ok(maintenance) => Ok(Threads { store, writer, maintenance, _lock: lock }),
        Err(error) => {
            store.stop_accepting();
            drop(writer.join());
            Err(OpenError::file("starting the sealer of", path)(error))
        }
    }
}
