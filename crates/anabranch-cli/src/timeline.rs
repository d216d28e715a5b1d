//! `anabranch timeline`: writes a run as a trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anabranch_core::{Event, EventKind, TrainingStep, Version};
use anabranch_replay::LearnerFree;
use anyhow::Context;
use serde::Serialize;
use serde_json::json;

use crate::arguments::RunArguments;
use crate::output::{Output, outside};
use crate::slots::Slots;
use crate::source::{Origin, Source};
use crate::trace::{BUFFER, GENERATION, LEARNER, Lane, PUBLICATIONS, RUN, Trace};
use crate::units::count;

const ON_RUN: Lane = Lane { group: RUN, row: 0 };
const ON_LEARNER: Lane = Lane { group: LEARNER, row: 0 };
const ON_PUBLICATIONS: Lane = Lane { group: PUBLICATIONS, row: 0 };

/// A publication that has begun. Times are in nanoseconds on the axis of the trace.
#[derive(Copy, Clone, Debug)]
struct Publication {
    version: Version,
    step: TrainingStep,
    begun: u64,
    /// When the engines began to pause, when they had paused, and when they had the weights.
    installed: Option<(u64, u64, u64)>,
}

/// Writes a trace event by event.
struct Timeline<W> {
    trace: Trace<W>,
    /// The start and the end of the session on the axis, in nanoseconds.
    offset: u64,
    end: u64,
    closed: bool,
    slots: Slots,
    learner: LearnerFree,
    training: Option<(u64, TrainingStep)>,
    publication: Option<Publication>,
    /// Changes of the buffer's fill by time. They are sorted here because a departure is recorded after it happened.
    changes: BTreeMap<u64, i64>,
    fill: i64,
    fill_at: u64,
}

impl<W: Write> Timeline<W> {
    fn begin(out: W) -> io::Result<Self> {
        let mut trace = Trace::begin(out)?;
        let groups = [
            (RUN, "run"),
            (GENERATION, "generation"),
            (BUFFER, "buffer"),
            (LEARNER, "learner"),
            (PUBLICATIONS, "publications"),
        ];
        for (group, name) in groups {
            trace.name_group(group, name)?;
        }
        for (lane, name) in [(ON_RUN, "sessions"), (ON_LEARNER, "learner"), (ON_PUBLICATIONS, "publications")] {
            trace.name_lane(lane, name)?;
        }
        Ok(Self {
            trace,
            offset: 0,
            end: 0,
            closed: false,
            slots: Slots::default(),
            learner: LearnerFree::default(),
            training: None,
            publication: None,
            changes: BTreeMap::new(),
            fill: 0,
            fill_at: 0,
        })
    }

    fn push(&mut self, event: &Event) -> io::Result<()> {
        if matches!(event.kind, EventKind::RunResumed { .. }) {
            self.end_session()?;
            self.offset = self.end;
        }
        let at = self.offset + event.at;
        self.end = self.end.max(at);
        self.closed = matches!(event.kind, EventKind::RunClosed { .. });
        let free_since = self.learner.see(event);
        self.slots.see(event, self.offset, &mut self.trace)?;
        match &event.kind {
            EventKind::RunOpened { .. }
            | EventKind::RunResumed { .. }
            | EventKind::RunClosed { .. }
            | EventKind::Held
            | EventKind::Reopened
            | EventKind::Checkpointed { .. } => {
                let args = json!({ "seq": event.seq.0, "session": event.session, "wall_ms": event.wall_ms });
                self.trace.instant(ON_RUN, event.kind.name(), at, args)?;
            }
            EventKind::Admitted { .. } => *self.changes.entry(at).or_default() += 1,
            EventKind::Excluded { dequeued: Some(dequeued), .. } => self.leave(*dequeued),
            EventKind::BatchTaken { step, version, groups, .. } => {
                groups.iter().filter_map(|group| group.dequeued).for_each(|dequeued| self.leave(dequeued));
                // All departures before this batch are known now.
                self.count(at)?;
                self.end_training(at)?;
                let since = self.offset + free_since.unwrap_or(event.at);
                if since < at {
                    let args = json!({ "step": step.0 });
                    self.trace.bar(ON_LEARNER, "wait", (since, at), args)?;
                }
                self.training = Some((at, *step));
                let args =
                    json!({ "step": step.0, "groups": groups.len(), "version": version.map(|version| version.0) });
                self.trace.instant(ON_LEARNER, "batch taken", at, args)?;
            }
            EventKind::Stepped { step, loss, .. } => {
                if let Some((taken, _)) = self.training.take() {
                    let args = json!({ "step": step.0, "loss": loss });
                    self.trace.bar(ON_LEARNER, &format!("step {step}"), (taken, at), args)?;
                }
            }
            EventKind::Restepped { step, equal, .. } => {
                let args = json!({ "step": step.0, "equal": equal });
                self.trace.instant(ON_LEARNER, "trained again", at, args)?;
            }
            _ => self.publish(event, at)?,
        }
        Ok(())
    }

    fn publish(&mut self, event: &Event, at: u64) -> io::Result<()> {
        match &event.kind {
            EventKind::Publishing { version, step, .. } => {
                self.end_publication(at, true)?;
                self.publication = Some(Publication { version: *version, step: *step, begun: at, installed: None });
            }
            EventKind::Published { version, step, pause_began, paused, .. } => {
                let begun = Publication { version: *version, step: *step, begun: at, installed: None };
                let publication = self.publication.get_or_insert(begun);
                let began = (self.offset + pause_began).clamp(publication.begun, at);
                publication.installed = Some((began, (self.offset + paused).clamp(began, at), at));
            }
            EventKind::GenerationResumed { .. } => self.end_publication(at, false)?,
            EventKind::Reinstalled { version, .. } => {
                let args = json!({ "version": version.0 });
                self.trace.instant(ON_PUBLICATIONS, &format!("{version} reinstalled"), at, args)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn leave(&mut self, dequeued: u64) {
        // Counters that were written cannot change, so a departure that is recorded too late counts from the last one.
        *self.changes.entry((self.offset + dequeued).max(self.fill_at)).or_default() -= 1;
    }

    /// Writes the fill of the buffer through `until`.
    fn count(&mut self, until: u64) -> io::Result<()> {
        while let Some(change) = self.changes.first_entry().filter(|change| *change.key() <= until) {
            let (at, change) = change.remove_entry();
            (self.fill, self.fill_at) = (self.fill + change, at);
            if change != 0 {
                self.trace.counter(BUFFER, "buffer", at, json!({ "groups": self.fill }))?;
            }
        }
        Ok(())
    }

    fn end_training(&mut self, at: u64) -> io::Result<()> {
        let Some((taken, step)) = self.training.take() else { return Ok(()) };
        let args = json!({ "step": step.0, "open": true });
        self.trace.bar(ON_LEARNER, &format!("step {step}"), (taken, at), args)
    }

    fn end_publication(&mut self, at: u64, open: bool) -> io::Result<()> {
        let Some(Publication { version, step, begun, installed }) = self.publication.take() else { return Ok(()) };
        let args = json!({ "version": version.0, "step": step.0, "open": open });
        self.trace.bar(ON_PUBLICATIONS, &format!("publish {version}"), (begun, at), args)?;
        let Some((began, paused, had)) = installed else { return Ok(()) };
        self.trace.bar(ON_PUBLICATIONS, "generation paused", (began, at), json!({ "version": version.0 }))?;
        self.trace.bar(ON_PUBLICATIONS, "pausing", (began, paused), json!({}))?;
        self.trace.bar(ON_PUBLICATIONS, "install", (paused, had), json!({ "version": version.0 }))
    }

    /// Ends everything that is still running at the last event of the session.
    fn end_session(&mut self) -> io::Result<()> {
        let end = self.end;
        self.slots.close(end, &mut self.trace)?;
        self.count(end)?;
        let training = self.training.is_some();
        self.end_training(end)?;
        let since = self.offset + self.learner.since();
        if !training && !self.closed && since < end {
            self.trace.bar(ON_LEARNER, "wait", (since, end), json!({ "open": true }))?;
        }
        self.end_publication(end, true)
    }

    /// Ends the trace and returns how many events it has.
    fn finish(mut self) -> io::Result<u64> {
        self.end_session()?;
        let events = self.trace.events;
        self.trace.end()?;
        Ok(events)
    }
}

#[derive(Serialize)]
struct Answer {
    source: Origin,
    file: PathBuf,
    trace_events: u64,
}

pub(crate) fn timeline(run: &RunArguments, file: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let source = run.open()?;
    if file == Path::new("-") {
        match write(&source, io::stdout().lock()) {
            // The reader closed the pipe: it has seen enough.
            Err(error) if broken_pipe(&error) => {}
            written => drop(written?),
        }
        return Ok(ExitCode::SUCCESS);
    }
    outside(&run.path, file)?;
    let part = file.with_added_extension("part");
    let out = File::create(&part).with_context(|| format!("cannot write {}", part.display()))?;
    let (origin, trace_events) = write(&source, out).inspect_err(|_| drop(std::fs::remove_file(&part)))?;
    std::fs::rename(&part, file).with_context(|| format!("cannot write {}", file.display()))?;
    let answer = Answer { source: origin, file: file.to_owned(), trace_events };
    let events = count(trace_events);
    let text = format!(
        "{}\nwrote       {events} trace events to {}: open it at ui.perfetto.dev",
        answer.source,
        file.display()
    );
    output.write(text, &answer)?;
    Ok(ExitCode::SUCCESS)
}

fn broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn write(source: &Source, out: impl Write) -> anyhow::Result<(Origin, u64)> {
    let mut timeline = Timeline::begin(BufWriter::new(out))?;
    let mut last = None;
    for event in source.events() {
        let event = event?;
        timeline.push(&event)?;
        last = Some((event.seq, event.wall_ms));
    }
    Ok((source.origin(last), timeline.finish()?))
}
