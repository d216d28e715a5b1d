//! `anabranch export`: writes the part of a log that is not in Parquet yet to Parquet.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anabranch_core::Seq;
use anabranch_log::ReadLog;
use anabranch_parquet::{SegmentReader, Segments};
use anyhow::{Context, bail};
use serde::Serialize;

use crate::arguments::RunArguments;
use crate::output::Output;
use crate::source::{Source, segments_of};

#[derive(Serialize)]
struct Answer {
    /// The Parquet folder.
    folder: PathBuf,
    /// How many segments, events and groups this export sealed.
    segments: u64,
    events: u64,
    groups: u64,
    /// The last event sealed.
    sealed_through: Option<Seq>,
}

pub(crate) fn export(run: &RunArguments, to: Option<&Path>, output: Output) -> anyhow::Result<ExitCode> {
    let log = match run.open()? {
        Source::Log(log) => log,
        Source::Segments { reader, live: true } => bail!(
            "{} is still being written; its process seals it into {}: export the run after it has ended",
            run.path.display(),
            reader.folder().display()
        ),
        Source::Segments { reader, live: false } => bail!(
            "{} has no log to export, only the segments in {}: copy the segments instead",
            run.path.display(),
            reader.folder().display()
        ),
    };
    let folder = to.map_or_else(|| segments_of(&run.path), Path::to_owned);
    sync_files(&run.path.join("log")).context("cannot sync the log before sealing it")?;
    let mut segments = Segments::open(&folder)?;
    check_same_run(&log, &segments)?;
    let mut answer = Answer { folder, segments: 0, events: 0, groups: 0, sealed_through: None };
    for segment in log.segments(segments.sealed_through()) {
        let segment = segment?;
        answer.events += segment.events.len() as u64;
        answer.groups += segment.groups.len() as u64;
        let mut groups = segment.groups.into_iter();
        segments.seal(&segment.events, |id| groups.next().ok_or_else(|| format!("no payload for {id}").into()))?;
        answer.segments += 1;
    }
    answer.sealed_through = segments.sealed_through();
    let through = answer.sealed_through.map_or_else(|| "nothing".to_owned(), |seq| seq.to_string());
    let Answer { folder, segments, events, groups, .. } = &answer;
    let text = if *segments == 0 {
        format!("{}: every event through {through} was sealed already", folder.display())
    } else {
        format!(
            "{}: sealed {events} events and {groups} groups in {segments} segments, through {through}",
            folder.display()
        )
    };
    output.write(text, &answer)?;
    Ok(ExitCode::SUCCESS)
}

/// Syncs the log to the disk. Segments must never be ahead of their log, so this happens before they are written.
fn sync_files(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() {
            File::open(path)?.sync_all()?;
        }
    }
    File::open(directory)?.sync_all()
}

/// Returns an error if the folder holds segments of another run.
fn check_same_run(log: &ReadLog, segments: &Segments) -> anyhow::Result<()> {
    let Some(last) = segments.sealed_through() else { return Ok(()) };
    let reader: SegmentReader = segments.reader();
    let (Some(sealed), Some(logged)) = (reader.events().next(), log.events().next()) else { return Ok(()) };
    let (sealed, logged) = (sealed?, logged?);
    if format!("{sealed:?}") != format!("{logged:?}") || log.events_from(last).next().transpose()?.is_none() {
        bail!(
            "{} holds segments of a run other than {}: give --to another folder",
            segments.folder().display(),
            log.path().display()
        );
    }
    Ok(())
}
