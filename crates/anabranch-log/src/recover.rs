//! Looking at what a run's directory holds, and refusing what only damage explains. Nothing is changed here.

use std::path::Path;

use anabranch_core::{Event, EventKind, Resume, ResumeState, Seq};
use anabranch_metrics::Meter;

use crate::checkpoint::Checkpoints;
use crate::codec::Heads;
use crate::database::Database;
use crate::head::{Head, Reading, boot};
use crate::{OpenError, ReadError, layout};

/// What is there.
pub(crate) struct Recovered {
    pub(crate) resume: ResumeState,
    pub(crate) meter: Meter,
    pub(crate) heads: Heads,
    /// Payloads of groups settled before this event may have been dropped.
    pub(crate) dropped: Seq,
    /// Whether there is a database.
    pub(crate) exists: bool,
    /// What `HEAD` says, where it was whole.
    pub(crate) head: Option<Head>,
}

/// What the events of a log say.
#[derive(Default)]
pub(crate) struct Folded {
    pub(crate) resume: ResumeState,
    pub(crate) meter: Meter,
    pub(crate) heads: Heads,
}

/// Reads all events of the run in the directory `run`, and compares them with everything that was made durable after
/// them. Payloads are read when they are asked for. The caller holds the lock.
pub(crate) fn recover(
    run: &Path,
    accept_missing_head: bool,
    checkpoints: &Checkpoints,
) -> Result<Recovered, OpenError> {
    let log = layout::log(run);
    let exists = Database::exists(&log);
    let head = head(run, exists, accept_missing_head)?;
    let database = exists.then(|| Database::read(&log)).transpose()?;
    let Folded { mut resume, meter, heads } = database.as_ref().map_or_else(|| Ok(Folded::default()), fold)?;
    resume.lost = lost(run, head, heads.next)?;
    for found in checkpoints.list()? {
        if found.watermark > heads.next {
            let witness = found.checkpoint.path;
            return Err(OpenError::Behind { log, found: heads.next, witness, needed: found.watermark });
        }
        resume.checkpoints.push(found.checkpoint);
    }
    let dropped = database.map_or(Ok(Seq(0)), |database| database.dropped())?;
    Ok(Recovered { resume, meter, heads, dropped, exists, head })
}

/// What `HEAD` says, where it may be missing only for a run that has no log yet.
pub(crate) fn head(run: &Path, exists: bool, accept_missing: bool) -> Result<Option<Head>, OpenError> {
    let path = layout::head(run);
    let problem = match Head::read(&path).map_err(OpenError::file("reading", &path))? {
        Reading::Whole(head) => return Ok(Some(head)),
        Reading::Missing if !exists => return Ok(None),
        Reading::Missing => "missing".to_owned(),
        Reading::Damaged(problem) => problem,
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

/// Folds all events, and compares their counts with the heads that were committed with them.
pub(crate) fn fold(database: &Database) -> Result<Folded, OpenError> {
    let (mut resume, mut meter) = (Resume::new(), Meter::default());
    let mut counted = Heads::default();
    for event in database.events(Seq(0)) {
        let event = event?;
        resume.apply(&event).map_err(|source| OpenError::Contradiction { log: database.path().to_owned(), source })?;
        meter.apply(&event);
        count(&mut counted, &event);
    }
    check_heads(database, counted)?;
    Ok(Folded { resume: resume.into_state(), meter, heads: counted })
}

/// Counts an event as the heads do.
pub(crate) fn count(heads: &mut Heads, event: &Event) {
    heads.next += 1;
    heads.completed += u64::from(matches!(event.kind, EventKind::Completed { .. }));
}

/// Compares the totals of the events with the totals that were committed with them.
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

#[cfg(test)]
mod tests {
    use anabranch_core::{FORMAT, Fields};
    use rocksdb::WriteBatch;

    use super::*;
    use crate::{codec, keys};

    fn opened(seq: u64, format: u32) -> Event {
        let kind = EventKind::RunOpened { library: String::new(), format, settings: Fields::new() };
        Event { seq: Seq(seq), session: 0, at: 0, wall_ms: 0, enablers: Vec::new(), delay: 0, kind }
    }

    /// A run whose database holds `values` as its events, and these heads.
    fn run(values: &[(u64, Vec<u8>)], heads: Heads) -> (tempfile::TempDir, Checkpoints) {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::create(&layout::log(directory.path())).unwrap();
        let mut batch = WriteBatch::default();
        for (seq, value) in values {
            database.put_event(&mut batch, &keys::event(Seq(*seq)), value);
        }
        database.put_heads(&mut batch, heads);
        database.commit(batch, true).unwrap();
        let checkpoints = Checkpoints::new(layout::checkpoints(directory.path()), 1);
        (directory, checkpoints)
    }

    fn refusal(values: &[(u64, Vec<u8>)], heads: Heads) -> String {
        let (directory, checkpoints) = run(values, heads);
        recover(directory.path(), true, &checkpoints).err().expect("it is refused").to_string()
    }

    fn value(seq: u64, format: u32) -> (u64, Vec<u8>) {
        (seq, codec::encode_event(&keys::event(Seq(seq)), &opened(seq, format)).unwrap())
    }

    #[test]
    fn a_log_whose_parts_agree_is_taken() {
        let (directory, checkpoints) = run(&[value(0, FORMAT)], Heads { next: 1, completed: 0 });
        assert_eq!(recover(directory.path(), true, &checkpoints).ok().unwrap().resume.next_seq, Seq(1));
    }

    #[test]
    fn gaps_and_counts_that_disagree_are_refused() {
        let text = refusal(&[value(0, FORMAT), value(2, FORMAT)], Heads { next: 2, completed: 0 });
        assert!(text.contains("event #1") && text.contains("the next is #2"), "{text}");
        let text = refusal(&[value(0, FORMAT)], Heads { next: 2, completed: 0 });
        assert!(text.contains("event #1") && text.contains("missing"), "{text}");
        let text = refusal(&[value(0, FORMAT), value(1, FORMAT)], Heads { next: 1, completed: 0 });
        assert!(text.contains("event #1") && text.contains("ends before #1"), "{text}");
        let text = refusal(&[value(0, FORMAT)], Heads { next: 1, completed: 1 });
        assert!(text.contains("0 completed groups"), "{text}");
    }

    #[test]
    fn newer_formats_are_refused_by_name() {
        let text = refusal(&[value(0, FORMAT + 1)], Heads { next: 1, completed: 0 });
        assert!(text.contains(&format!("expected an event format up to {FORMAT}, found {}", FORMAT + 1)), "{text}");
        let (seq, newer) = (0, codec::tests::of_newer_format(&keys::event(Seq(0)), &opened(0, FORMAT)));
        let text = refusal(&[(seq, newer)], Heads { next: 1, completed: 0 });
        assert!(text.contains("event #0") && text.contains(&format!("format {}", codec::FORMAT + 1)), "{text}");
    }
}
