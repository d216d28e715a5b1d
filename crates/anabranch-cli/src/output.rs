//! Writing answers: text for people, JSON for programs.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, absolute};

use anyhow::{Context, bail};
use serde::Serialize;

/// How answers are written.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Writes `text`, or `json` where that is asked for.
    pub(crate) fn write(self, text: impl Display, json: &impl Serialize) -> anyhow::Result<()> {
        let text = if self.json { serde_json::to_string_pretty(json)? } else { text.to_string() };
        line(text.trim_end())?;
        Ok(())
    }
}

/// Writes a line at once; `false` where nobody reads any more: whoever read the output (`head`, a pager) has seen enough.
pub(crate) fn line(text: impl Display) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => Ok(written.map(|()| true)?),
    }
}

/// Refuses to write `file` into the directory of the run: reading a run changes nothing in it.
pub(crate) fn outside(run: &Path, file: &Path) -> anyhow::Result<()> {
    let whole = absolute(file).with_context(|| format!("{} names no file", file.display()))?;
    let folder = whole.parent().unwrap_or(&whole);
    let folder = folder.canonicalize().with_context(|| format!("{} is no folder: make it first", folder.display()))?;
    if folder.starts_with(run.canonicalize()?) {
        bail!("{} lies in the run, which is only read: name a file outside {}", file.display(), run.display());
    }
    Ok(())
}
