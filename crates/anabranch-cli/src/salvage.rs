//! `anabranch salvage`: what is provably good of a damaged run, copied to a new one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anabranch_core::Seq;
use anabranch_log::{Salvaged, Sealed, salvage as copy};
use anabranch_parquet::SegmentReader;
use serde::Serialize;

use crate::output::Output;
use crate::source::segments_of;

/// Groups named in the text; JSON names all.
const NAMED: usize = 20;

#[derive(Serialize)]
struct Answer<'a> {
    run: &'a Path,
    to: &'a Path,
    /// Whether nothing is missing.
    whole: bool,
    /// The Parquet folder that stood in for the log where that was damaged.
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
        line(&format!("database    a repaired copy was read, since it could not be read as it lies: {problem}"));
    }
    if let Some(folder) = &answer.segments {
        line(&format!("segments    {} stood in where the log was damaged", folder.display()));
    }
    for checkpoint in &salvaged.checkpoints {
        line(&format!("checkpoint  {checkpoint} copied"));
    }
    for checkpoint in &salvaged.checkpoints_left {
        line(&format!("checkpoint  {checkpoint} left: damaged, or relying on events that are missing"));
    }
    for (first, last) in &salvaged.missing {
        line(&format!("missing     events {}", range(*first, *last)));
    }
    for missing in salvaged.missing_payloads.iter().take(NAMED) {
        line(&format!("missing     the payload of {}, completed at {}", missing.group, missing.completed));
    }
    let more = salvaged.missing_payloads.len().saturating_sub(NAMED);
    if more > 0 {
        line(&format!("missing     the payloads of {more} more groups: --json names them"));
    }
    if salvaged.beyond > 0 {
        line(&format!(
            "beyond      {} good events behind the first that is missing: {}/beyond",
            salvaged.beyond,
            to.display()
        ));
    }
    match (&salvaged.not_resumable, salvaged.events) {
        (_, 0) => line("resume      there is no run: its first event is missing"),
        (Some(problem), _) => line(&format!("resume      it can be read, but not resumed: {problem}")),
        (None, _) => line("resume      it can be opened, and goes on after its last event"),
    }
    text
}

fn range(first: Seq, last: Seq) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}
