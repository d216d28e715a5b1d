//! Writing answers: text for people, JSON for programs.

use std::fmt::Display;
use std::io::{self, Write};

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
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
        match written {
            // Whoever read the output (`head`, a pager) has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }
}
