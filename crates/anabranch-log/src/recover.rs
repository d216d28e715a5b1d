//! Looking at what a run's directory holds, and refusing what only damage explains. Nothing is changed here.

use std::path::Path;

use anabranch_core::{Event, EventKind, Past, Seq, TrainingStep};
use anabranch_replay::Resume;

use crate::checkpoint::Checkpoints;
use crate::codec::Heads;
use crate::database::Database;
use crate::head::{Found, Head, boot};
use crate::{OpenError, ReadError, layout};

/// What is there.
pub(crate) struct Recovered {
    pub(crate) past: Past,
    pub(crate) heads: Heads,
    /// Whether there is a database.
    pub(crate) exists: bool,
    /// What `HEAD` says, where it was whole.
    pub(crate) head: Option<Head>,
}

/// Reads the whole log of the run in the directory `run`, and compares it with everything that was made durable after it.
/// The caller holds the lock.
pub(crate) fn recover(
    run: &Path,
    accept_missing_head: bool,
    checkpoints: &Checkpoints,
) -> Result<Recovered, OpenError> {
    let log = layout::log(run);
    let exists = Database::exists(&log);
    let head = head(run, exists, accept_missing_head)?;
    let database = exists.then(|| Database::read(&log)).transpose()?;
    let (mut past, heads) = database.as_ref().map_or_else(|| Ok(Default::default()), fold)?;
    past.lost = lost(run, head, heads.next)?;
    for found in checkpoints.list().map_err(OpenError::file("reading", &layout::checkpoints(run)))? {
        if found.watermark > heads.next {
            let witness = found.checkpoint.path;
            return Err(OpenError::Behind { log, found: heads.next, witness, needed: found.watermark });
        }
        past.checkpoints.push(found.checkpoint);
    }
    if let Some(database) = database {
        check_payloads(&database, &past)?;
    }
    Ok(Recovered { past, heads, exists, head })
}

/// What `HEAD` says, where it may be missing only for a run that has no log yet.
pub(crate) fn head(run: &Path, exists: bool, accept_missing: bool) -> Result<Option<Head>, OpenError> {
    let path = layout::head(run);
    let problem = match Head::read(&path).map_err(OpenError::file("reading", &path))? {
        Found::Whole(head) => return Ok(Some(head)),
        Found::Missing if !exists => return Ok(None),
        Found::Missing => "missing".to_owned(),
        Found::Damaged(problem) => problem,
    };
    if accept_missing {
        tracing::warn!(head = %path.display(), problem, "HEAD is not used, as accepted: the log is taken as it is");
        return Ok(None);
    }
    Err(OpenError::Head { path, problem })
}

/// How many acknowledged events a power loss took from a log of `found` events.
pub(crate) fn lost(run: &Path, head: Option<Head>, found: u64) -> Result<u64, OpenError> {
    let Some(head) = head else { return Ok(0) };
    let lost = head.lost(found, boot()).ok_or_else(|| OpenError::Behind {
        log: layout::log(run),
        found,
        witness: layout::head(run),
        needed: head.acked,
    })?;
    if lost > 0 {
        tracing::warn!(run = %run.display(), lost, "a power loss took acknowledged events that were not yet synced");
    }
    Ok(lost)
}

/// Checks the payloads that resuming will ask for: better refused now than in the middle of a run.
fn check_payloads(database: &Database, past: &Past) -> Result<(), ReadError> {
    let step = past.checkpoints.first().map_or(TrainingStep(0), |checkpoint| checkpoint.cursor.step);
    let trained_again = past.batches.iter().filter(|batch| batch.step > step).flat_map(|batch| &batch.groups);
    let queued = past.queued.iter().map(|group| &group.id);
    queued.chain(trained_again.map(|group| &group.id)).try_for_each(|id| database.check_group(id))
}

/// Folds all events, and compares their counts with the heads that were committed with them.
pub(crate) fn fold(database: &Database) -> Result<(Past, Heads), OpenError> {
    let mut fold = Resume::new();
    let mut counted = Heads::default();
    for event in database.events(Seq(0)) {
        let event = event?;
        fold.apply(&event).map_err(|source| OpenError::Contradiction { log: database.path().to_owned(), source })?;
        count(&mut counted, &event);
    }
    check_heads(database, counted)?;
    Ok((fold.into_past(), counted))
}

/// Counts an event as the heads do.
pub(crate) fn count(heads: &mut Heads, event: &Event) {
    heads.next += 1;
    heads.completed += u64::from(matches!(event.kind, EventKind::Completed { .. }));
}

/// Compares what the events come to with what was committed with them.
pub(crate) fn check_heads(database: &Database, counted: Heads) -> Result<(), ReadError> {
    let recorded = database.heads()?;
    if recorded == counted {
        return Ok(());
    }
    Err(ReadError::Damaged {
        what: "the log".to_owned(),
        path: database.path().to_owned(),
        problem: format!(
            "it holds {} events and {} completed groups, its heads say {} and {}",
            counted.next, counted.completed, recorded.next, recorded.completed
        ),
    })
}
