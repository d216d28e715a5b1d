//! `anabranch salvage`: copies the provably good records of a damaged run into a new run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anabranch_core::Seq;
use anabranch_log::{Salvaged, Sealed, salvage as copy};
use anabranch_parquet::SegmentReader;
use serde::Serialize;

use crate::output::Output;
use crate::source::segments_of;

/// How many groups the text names; JSON names all of them.
const NAMED: usize = 20;

#[derive(Serialize)]
struct Answer<'a> {
    run: &'a Path,
    to: &'a Path,
    /// `true` if nothing is missing.
    whole: bool,
    /// The Parquet folder that supplied records which are damaged in the log.
    segments: Option<PathBuf>,
    #[serde(flatten)]
    salvaged: Salvaged,
}

pub(crate) fn salvage(run: &Path, to: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let folder = segments_of(run);
    let reader = if folder.join("manifest").is_dir() { SegmentReader::open(&folder).ok() } else { None };
    let sealed = reader.as_ref().map_or_else(Sealed::none, |reader| Sealed {
        events: Box::new(reader.events().map_while(Result::ok)),
        payload: Box::new(|id| reader.payload(id).ok().flatten()),
    });
    let salvaged = copy(run, to, sealed)?;
    let whole = salvaged.is_whole();
    let answer = Answer { run, to, whole, segments: reader.is_some().then_some(folder), salvaged };
    output.write(text(&answer), &answer)?;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(answer: &Answer<'_>) -> String {
    let Answer { run, to, salvaged, .. } = answer;
    let mut text = format!("salvaged    {} into {}\n", run.display(), to.display());
    let mut line = |words: &str| {
        text.push_str(words);
        text.push('\n');
    };
    line(&format!("log         {} events, {} payloads", salvaged.events, salvaged.payloads));
    if let Some(problem) = &salvaged.database {
        line(&format!("database    read from a repaired copy, because the original cannot be opened: {problem}"));
    }
    if let Some(folder) = &answer.segments {
        line(&format!("segments    {} supplied the records that are damaged in the log", folder.display()));
    }
    for checkpoint in &salvaged.checkpoints {
        line(&format!("checkpoint  {checkpoint} copied"));
    }
    for checkpoint in &salvaged.checkpoints_left {
        line(&format!("checkpoint  {checkpoint} not copied: it is damaged, or depends on missing events"));
    }
    for (first, last) in &salvaged.missing {
        line(&format!("missing     events {}", range(*first, *last)));
    }
    for missing in salvaged.missing_payloads.iter().take(NAMED) {
        line(&format!("missing     the payload of {}, completed at {}", missing.group, missing.completed));
    }
    let more = salvaged.missing_payloads.len().saturating_sub(NAMED);
    if more > 0 {
        line(&format!("missing     the payloads of {more} more groups: --json lists them"));
    }
    if salvaged.beyond > 0 {
        line(&format!(
            "beyond      {} good events after the first missing event are in {}/beyond",
            salvaged.beyond,
            to.display()
        ));
    }
    match (&salvaged.not_resumable, salvaged.events) {
        (_, 0) => line("resume      no: the first event is missing, so the new run is empty"),
        (Some(problem), _) => line(&format!("resume      no: the new run can be read but not resumed: {problem}")),
        (None, _) => line("resume      yes: the new run can be opened and continues after its last event"),
    }
    text
}

fn range(first: Seq, last: Seq) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}
