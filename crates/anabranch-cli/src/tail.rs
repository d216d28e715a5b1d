//! `anabranch tail`: follows a live run through its sealed segments.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use anabranch_core::{EventKind, Seq};
use anabranch_log::OpenError;

use crate::arguments::RunArguments;
use crate::output::{self, Output};
use crate::source::Origin;
use crate::steps::{StepRow, Steps, head};

/// The state after reading the run so far.
#[derive(Default)]
struct Tail {
    steps: Steps,
    next: Seq,
    last: Option<(Seq, u64)>,
    closed: bool,
}

impl Tail {
    /// Reads the new events. Returns `None` if a live run has sealed nothing yet. The run is open only during this call,
    /// so that another process can resume it.
    fn read(&mut self, run: &RunArguments, mut show: impl FnMut(StepRow)) -> anyhow::Result<Option<Origin>> {
        let source = match run.open() {
            Ok(source) => source,
            Err(error) if matches!(error.downcast_ref(), Some(OpenError::Live { .. })) => return Ok(None),
            Err(error) => return Err(error),
        };
        for event in source.events_from(self.next) {
            let event = event?;
            self.next = Seq(event.seq.0 + 1);
            self.last = Some((event.seq, event.wall_ms));
            self.closed = matches!(event.kind, EventKind::RunClosed { .. });
            self.steps.push(&event).into_iter().for_each(&mut show);
        }
        Ok(Some(source.origin(self.last)))
    }
}

/// Prints a line. Returns `false` if the reader has closed the pipe.
fn show(row: &StepRow, output: Output) -> anyhow::Result<bool> {
    output::line(if output.json { serde_json::to_string(row)? } else { row.line() })
}

fn note(text: &str, output: Output) -> anyhow::Result<bool> {
    // With `--json`, each line of output describes one step.
    if output.json { Ok(true) } else { output::line(text) }
}

pub(crate) fn tail(run: &RunArguments, once: bool, last: u64, every: u64, output: Output) -> anyhow::Result<ExitCode> {
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    let mut tail = Tail::default();
    let mut rows = VecDeque::new();
    let mut begun = false;
    let mut waiting = false;
    loop {
        let origin = tail.read(run, |row| {
            rows.push_back(row);
            if !begun && rows.len() > last {
                rows.pop_front();
            }
        })?;
        let ends = once || origin.as_ref().is_some_and(|origin| !origin.is_live());
        let mut read = true;
        match &origin {
            Some(origin) if !begun => {
                // The step that may still be running counts as one of the last.
                if ends && rows.len() == last {
                    rows.pop_front();
                }
                read = note(&origin.to_string(), output)? && note(&head(), output)?;
                begun = true;
            }
            None if !waiting => {
                read = note("read        nothing yet: the run is live, and nothing is sealed yet", output)?;
                waiting = true;
            }
            _ => {}
        }
        while let Some(row) = rows.pop_front().filter(|_| read) {
            read = show(&row, output)?;
        }
        if !read {
            return Ok(ExitCode::SUCCESS);
        }
        if ends {
            let Tail { steps, closed, .. } = tail;
            if let Some(row) = steps.finish() {
                show(&row, output)?;
            }
            if let Some(origin) = origin {
                let state = match (origin.is_live(), closed) {
                    (true, _) => "live: the last step may still be running, and later events are not sealed yet",
                    (false, true) => "closed: the pipeline ended",
                    (false, false) => "ended without being closed: the run can be resumed",
                };
                note(&format!("state       {state}"), output)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        sleep(Duration::from_secs(every));
    }
}
