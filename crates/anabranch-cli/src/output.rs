//! Prints answers: text for people, JSON for programs.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, absolute};

use anyhow::{Context, bail};
use serde::Serialize;

/// The format of answers.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Prints `text`, or `json` if the user asked for JSON.
    pub(crate) fn write(self, text: impl Display, json: &impl Serialize) -> anyhow::Result<()> {
        let text = if self.json { serde_json::to_string_pretty(json)? } else { text.to_string() };
        line(text.trim_end())?;
        Ok(())
    }
}

/// Prints a line and flushes it. Returns `false` if the reader (`head`, a pager) has closed the pipe.
pub(crate) fn line(text: impl Display) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}

/// Returns an error if `file` is in the directory of the run: a command that reads a run must not change the directory.
pub(crate) fn outside(run: &Path, file: &Path) -> anyhow::Result<()> {
    let whole = absolute(file).with_context(|| format!("expected the path of a file, found `{}`", file.display()))?;
    let folder = whole.parent().unwrap_or(&whole);
    let folder = folder
        .canonicalize()
        .with_context(|| format!("cannot open the folder {}: create it first", folder.display()))?;
    if folder.starts_with(run.canonicalize()?) {
        bail!(
            "{} is inside the run, which this command must not change: name a file outside {}",
            file.display(),
            run.display()
        );
    }
    Ok(())
}
