//! `anabranch steps`: one row per training step.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anabranch_core::{Event, EventKind, GroupId, Seq, TrainingStep, Version};
use anabranch_replay::LearnerFree;
use serde::Serialize;

use crate::arguments::RunArguments;
use crate::output::Output;
use crate::source::Origin;
use crate::units::{count, number, or_dash, seconds};

/// A training step, from its batch to the publication of its weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StepRow {
    pub(crate) step: TrainingStep,
    /// The batch's `batch_taken` record: seq, session, nanoseconds since the session's start, wall time.
    pub(crate) taken: Seq,
    pub(crate) session: u32,
    pub(crate) taken_ns: u64,
    pub(crate) taken_wall_ms: u64,
    /// The version against which the gaps of the batch were judged.
    pub(crate) version: Option<Version>,
    pub(crate) groups: u64,
    /// Generated tokens of the batch.
    pub(crate) tokens: u64,
    /// Mean of the groups' mean rewards.
    pub(crate) reward_mean: Option<f64>,
    /// Gaps of the groups whose versions are known.
    pub(crate) gap_mean: Option<f64>,
    pub(crate) gap_max: Option<u64>,
    pub(crate) step_lag_mean: Option<f64>,
    /// `None` if the step was never trained.
    pub(crate) loss: Option<f64>,
    /// How long the learner was idle before the batch was ready, in nanoseconds.
    pub(crate) wait_ns: u64,
    /// From the batch to the step, in nanoseconds. `None` if a later session trained the step.
    pub(crate) training_ns: Option<u64>,
    /// The version under which the weights of the step were published.
    pub(crate) published: Option<Version>,
    /// How long generation paused for that publication, in nanoseconds.
    pub(crate) pause_ns: Option<u64>,
}

/// Folds events into rows.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    learner: LearnerFree,
    /// Tokens and mean reward of the groups that a later batch may take.
    open: HashMap<GroupId, (u64, Option<f64>)>,
    row: Option<StepRow>,
    pause_began: Option<u64>,
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

impl Steps {
    /// Takes the next event. Returns a row once it is complete.
    pub(crate) fn push(&mut self, event: &Event) -> Option<StepRow> {
        let free_since = self.learner.see(event);
        match &event.kind {
            EventKind::RunResumed { .. } => self.pause_began = None,
            EventKind::Completed { id, summary, .. } => {
                self.open.insert(id.clone(), (summary.generated(), summary.reward_mean()));
            }
            EventKind::Excluded { id, .. } => {
                self.open.remove(id);
            }
            EventKind::BatchTaken { step, version, groups, .. } => {
                let known: Vec<_> = groups.iter().filter_map(|group| self.open.remove(&group.id)).collect();
                let row = StepRow {
                    step: *step,
                    taken: event.seq,
                    session: event.session,
                    taken_ns: event.at,
                    taken_wall_ms: event.wall_ms,
                    version: *version,
                    groups: groups.len() as u64,
                    tokens: known.iter().map(|(tokens, _)| tokens).sum(),
                    reward_mean: mean(known.iter().filter_map(|(_, reward)| *reward)),
                    gap_mean: mean(groups.iter().filter_map(|group| Some(group.gap? as f64))),
                    gap_max: groups.iter().filter_map(|group| group.gap).max(),
                    step_lag_mean: mean(groups.iter().filter_map(|group| Some(group.step_lag? as f64))),
                    loss: None,
                    wait_ns: event.at - free_since.unwrap_or(event.at),
                    training_ns: None,
                    published: None,
                    pause_ns: None,
                };
                return self.row.replace(row);
            }
            EventKind::Stepped { step, loss, .. } => {
                if let Some(row) = self.row.as_mut().filter(|row| row.step == *step) {
                    row.loss = Some(*loss);
                    row.training_ns = (row.session == event.session).then(|| event.at.saturating_sub(row.taken_ns));
                }
            }
            EventKind::Published { version, step, pause_began, .. } => {
                if let Some(row) = self.row.as_mut().filter(|row| row.step == *step) {
                    row.published = Some(*version);
                    self.pause_began = Some(*pause_began);
                }
            }
            EventKind::GenerationResumed { version } => {
                let began = self.pause_began.take();
                if let Some(row) = self.row.as_mut().filter(|row| row.published == Some(*version)) {
                    row.pause_ns = began.map(|began| event.at.saturating_sub(began));
                }
            }
            _ => {}
        }
        None
    }

    /// Returns the last row, which may be incomplete.
    pub(crate) fn finish(self) -> Option<StepRow> {
        self.row
    }
}

/// The names and widths of the columns.
const COLUMNS: [(&str, usize); 13] = [
    ("step", 5),
    ("version", 7),
    ("groups", 6),
    ("tokens", 7),
    ("reward", 7),
    ("gap", 5),
    ("max", 3),
    ("lag", 5),
    ("loss", 7),
    ("waited", 8),
    ("trained", 8),
    ("publ.", 6),
    ("paused", 8),
];

fn line<'a>(cells: impl IntoIterator<Item = &'a str>) -> String {
    let cells = cells.into_iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:>width$}"));
    cells.collect::<Vec<_>>().join(" ")
}

/// The header of the table.
pub(crate) fn head() -> String {
    line(COLUMNS.map(|(name, _)| name))
}

impl StepRow {
    /// The line of the table for this step.
    pub(crate) fn line(&self) -> String {
        let version = |version: Option<Version>| or_dash(version, |version| version.to_string());
        let mean = |mean: Option<f64>| or_dash(mean, |mean| format!("{mean:.2}"));
        let cells = [
            self.step.to_string(),
            version(self.version),
            count(self.groups),
            count(self.tokens),
            or_dash(self.reward_mean, number),
            mean(self.gap_mean),
            or_dash(self.gap_max, |gap| gap.to_string()),
            mean(self.step_lag_mean),
            or_dash(self.loss, number),
            seconds(self.wait_ns),
            or_dash(self.training_ns, seconds),
            version(self.published),
            or_dash(self.pause_ns, seconds),
        ];
        line(cells.iter().map(String::as_str))
    }
}

#[derive(Serialize)]
struct Answer {
    source: Origin,
    steps: Vec<StepRow>,
}

pub(crate) fn steps(run: &RunArguments, output: Output) -> anyhow::Result<ExitCode> {
    let source = run.open()?;
    let (mut steps, mut rows) = (Steps::default(), Vec::new());
    let origin = source.read(|event| rows.extend(steps.push(event)))?;
    rows.extend(steps.finish());
    let answer = Answer { source: origin, steps: rows };
    let mut text = format!("{}\n", answer.source);
    if answer.steps.is_empty() {
        writeln!(text, "steps       none: no batch was taken")?;
    } else {
        writeln!(text, "{}", head())?;
    }
    for row in &answer.steps {
        writeln!(text, "{}", row.line())?;
    }
    output.write(text, &answer)?;
    Ok(ExitCode::SUCCESS)
}
