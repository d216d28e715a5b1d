//! `anabranch report`: draws a run as one HTML file that needs no other file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anabranch_replay::{Audit, Auditor, Plotter, RunTimeline};
use anyhow::{Context, bail};
use serde::Serialize;

use crate::arguments::RunArguments;
use crate::output::Output;
use crate::source::Origin;

mod charts;
mod gaps;
mod numbers;
mod page;
mod plot;
mod summary;
mod table;

#[derive(Serialize)]
struct Answer {
    source: Origin,
    /// The file, and its size in bytes.
    file: PathBuf,
    bytes: u64,
    audit: Audit,
    timeline: RunTimeline,
}

pub(crate) fn report(run: &RunArguments, to: &Path, output: Output) -> anyhow::Result<ExitCode> {
    refuse_inside(&run.path, to)?;
    let source = run.open()?;
    let (mut auditor, mut plotter) = (Auditor::new(), Plotter::new());
    let origin = source.read(|event| {
        auditor.push(event);
        plotter.push(event);
    })?;
    let (audit, timeline) = (auditor.finish(), plotter.finish());
    let name = run.path.display().to_string();
    let page = page::page(&name, &origin.to_string(), origin.is_live(), &audit, &timeline)?;
    fs::write(to, &page).with_context(|| format!("cannot write {}", to.display()))?;
    let answer = Answer { source: origin, file: to.to_owned(), bytes: page.len() as u64, audit, timeline };
    let text = format!("{}\nwrote       {}, {} kB", answer.source, to.display(), page.len().div_ceil(1000));
    output.write(text, &answer)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns an error if the file is inside the run: reading must not change a run, and the file would look like a part of it.
fn refuse_inside(run: &Path, to: &Path) -> anyhow::Result<()> {
    let folder = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let (Ok(run), Ok(folder)) = (run.canonicalize(), folder.canonicalize())
        && folder.starts_with(&run)
    {
        bail!("{} is inside the run, which this command must not change: give -o another path", to.display());
    }
    Ok(())
}
