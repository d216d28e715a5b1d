//! `anabranch what-if`: predicts a run under other settings.

use std::fmt::{self, Write as _};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anabranch_replay::{Order, Outcome, Recorder, Recording, Reproduction, Settings, WhatIfError};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::arguments::RunArguments;
use crate::heat_map::HeatMap;
use crate::output::{Output, outside};
use crate::source::Origin;
use crate::table::{Flush, Table};
use crate::units::{count, number, or_dash, percent, seconds};
use crate::values::{MOST, Values, numbers, optional, unused, words};

#[derive(Debug, Args)]
pub(crate) struct WhatIfArguments {
    #[command(flatten)]
    run: RunArguments,
    /// Largest version gap that a group may have when it is trained on; `none` for no limit.
    #[arg(long, value_name = "GAPS", value_parser = optional)]
    max_staleness: Option<Values<Option<u64>>>,
    /// Number of groups that the buffer holds; `none` for the synchronous schedule, which has no buffer.
    #[arg(long, value_name = "GROUPS", value_parser = optional)]
    capacity: Option<Values<Option<u64>>>,
    /// Number of training steps between publications.
    #[arg(long, value_name = "STEPS", value_parser = numbers)]
    update_interval: Option<Values<u64>>,
    /// Order in which groups leave the buffer: `fifo`, `freshest` or `stalest`.
    #[arg(long, value_name = "ORDERS", value_parser = words)]
    order: Option<Values<String>>,
    /// What to do with the prompt of an aborted or stale group: `drop`, or `retry:N` for N leases in all.
    #[arg(long, value_name = "RULES", value_parser = unused)]
    unused: Option<Values<Option<u32>>>,
    /// Number of groups that may be generated at once.
    #[arg(long, value_name = "GROUPS", value_parser = numbers)]
    in_flight: Option<Values<u64>>,
    /// Predict only the first session, up to the moment when it ended.
    #[arg(long)]
    first_session: bool,
    /// Seed for drawing the durations of work that the recorded run did not do.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw a heat map over two settings to this SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The measure that the heat map shows.
    #[arg(long, default_value = "wasted", requires = "svg")]
    measure: Measure,
}

/// The measure that a heat map shows.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Measure {
    /// Share of generated tokens that were thrown away.
    Wasted,
    /// Mean version gap of the groups trained on.
    Gap,
    /// Total time that the learner waited.
    Wait,
    /// Share of the slots' time in which nothing was generated.
    Stall,
    /// Wall time.
    Wall,
}

impl Measure {
    fn of(self, outcome: &Outcome) -> Option<f64> {
        match self {
            Self::Wasted => wasted(outcome),
            Self::Gap => outcome.gap.mean(),
            Self::Wait => Some(outcome.learner_wait.total_ns as f64),
            Self::Stall => Some(outcome.stall.ratio()),
            Self::Wall => Some(outcome.wall_ns as f64),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Wasted => "tokens wasted",
            Self::Gap => "mean version gap",
            Self::Wait => "learner wait",
            Self::Stall => "generation stall",
            Self::Wall => "wall time",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Wasted | Self::Stall => percent(value),
            Self::Gap => number(value),
            Self::Wait | Self::Wall => seconds(value as u64),
        }
    }
}

/// Share of the tokens generated for settled groups that were thrown away.
fn wasted(outcome: &Outcome) -> Option<f64> {
    let wasted = outcome.wasted_total().tokens;
    let all = wasted + outcome.consumed.tokens;
    (all > 0).then(|| wasted as f64 / all as f64)
}

/// Changes one setting.
type Apply = Box<dyn Fn(&mut Settings)>;

/// A varied setting: its name, and for each value its label and how to apply it.
struct Axis {
    name: &'static str,
    labels: Vec<String>,
    apply: Vec<Apply>,
}

impl Axis {
    fn new<T: Clone + 'static>(
        name: &'static str,
        values: Option<&Values<T>>,
        label: impl Fn(&T) -> String,
        set: impl Fn(&mut Settings, T) + Copy + 'static,
    ) -> Option<Self> {
        let Values(values) = values?;
        let labels = values.iter().map(label).collect();
        let apply = |value: &T| {
            let value = value.clone();
            Box::new(move |settings: &mut Settings| set(settings, value.clone())) as Apply
        };
        Some(Self { name, labels, apply: values.iter().map(apply).collect() })
    }
}

impl WhatIfArguments {
    fn axes(&self) -> anyhow::Result<Vec<Axis>> {
        let optional = |value: &Option<u64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
        // Orders are parsed before the run is read, so that a wrong order is reported at once.
        let order = self.order.as_ref().map(|Values(names)| {
            names.iter().map(|name| name.parse::<Order>()).collect::<Result<Vec<_>, _>>().map(Values)
        });
        let order = order.transpose().context("--order")?;
        let axes = [
            Axis::new("max-staleness", self.max_staleness.as_ref(), optional, |s, limit| s.max_staleness = limit),
            Axis::new("capacity", self.capacity.as_ref(), optional, |s, groups| {
                s.capacity = groups.map(|groups| groups as usize);
            }),
            Axis::new("update-interval", self.update_interval.as_ref(), u64::to_string, |s, steps| {
                s.update_interval = Some(steps);
            }),
            Axis::new("order", order.as_ref(), Order::to_string, |s, order| s.order = order),
            Axis::new(
                "unused",
                self.unused.as_ref(),
                |leases| leases.map_or_else(|| "drop".to_owned(), |leases| format!("retry:{leases}")),
                |s, leases| s.max_attempts = leases,
            ),
            Axis::new("in-flight", self.in_flight.as_ref(), u64::to_string, |s, groups| s.in_flight = groups as usize),
        ];
        Ok(axes.into_iter().flatten().collect())
    }
}

#[derive(Serialize)]
struct Point {
    /// The value of each varied setting, as the table shows it.
    values: Vec<String>,
    outcome: Outcome,
}

/// How well the simulation, with the recorded settings, reproduces the log.
#[derive(Serialize)]
#[serde(transparent)]
struct Reproduced(Reproduction);

impl fmt::Display for Reproduced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reproduction { fates, times, first } = self.0;
        write!(f, "simulated   with the recorded settings, ")?;
        if times.part == times.of {
            return write!(f, "every group ends as in the log");
        }
        // If two events happened at the same moment, the log does not always tell which came first.
        let [ended, timed, of] = [fates.part, times.part, fates.of].map(count);
        writeln!(f, "{ended} of {of} groups end as in the log, {timed} of them")?;
        write!(f, "            at the same nanosecond")?;
        if let Some((position, attempt)) = first {
            write!(f, "; the first that differs is attempt {} at position {position}", attempt + 1)?;
        }
        write!(f, ":\n            compare the rows below with each other, not with the log")
    }
}

#[derive(Serialize)]
struct Answer {
    source: Origin,
    /// How well the simulation reproduces the log.
    reproduced: Reproduced,
    /// The simulated outcome under the recorded settings.
    recorded: Outcome,
    /// The names of the varied settings.
    varied: Vec<&'static str>,
    points: Vec<Point>,
}

/// Returns every combination, as the index of the value on each axis.
fn combinations(axes: &[Axis]) -> Vec<Vec<usize>> {
    axes.iter().fold(vec![Vec::new()], |points, axis| {
        let with = |point: &Vec<usize>| {
            (0..axis.labels.len()).map(|value| [point.as_slice(), &[value]].concat()).collect::<Vec<_>>()
        };
        points.iter().flat_map(with).collect()
    })
}

/// Simulates all settings on as many threads as the machine has processors.
fn simulate(recording: &Recording, settings: &[Settings], seed: u64) -> Result<Vec<Outcome>, WhatIfError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((index, settings)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, settings.get(index)?)))
        {
            done.push((index, recording.outcome(settings, seed)));
        }
        done
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(settings.len());
    let mut done = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect::<Vec<(usize, Result<Outcome, WhatIfError>)>>()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The columns of an outcome, after the settings.
const COLUMNS: [&str; 10] = ["trained", "wasted", "tokens", "gap", "max", "waited", "stall", "wall", "bias", "drawn"];

fn cells(outcome: &Outcome) -> [String; 10] {
    let wasted_groups = outcome.wasted_total().groups;
    [
        count(outcome.consumed.groups),
        count(wasted_groups),
        or_dash(wasted(outcome), percent),
        or_dash(outcome.gap.mean(), |mean| format!("{mean:.2}")),
        or_dash(outcome.gap.max(), |max| max.to_string()),
        seconds(outcome.learner_wait.total_ns),
        percent(outcome.stall.ratio()),
        seconds(outcome.wall_ns),
        or_dash(outcome.length.ratio(), |ratio| format!("{ratio:.2}")),
        percent(outcome.modelled.groups.ratio()),
    ]
}

/// The meaning of the columns, and the limits of every answer.
const NOTES: &str = "\
trained, wasted: number of groups; tokens: wasted share of the tokens of settled groups; gap, max:
mean and largest version gap of the groups trained on; waited: total learner wait; stall: share of
slot time without generation; bias: mean tokens of a wasted group over those of a trained group;
drawn: share of groups with durations that the log does not have, so that they are drawn at random.
No answer knows what other weights would have written, or how the speed of an engine depends on its
load.";

fn table(answer: &Answer) -> Table {
    let right = |name: &&'static str| (*name, Flush::Right);
    let mut table = Table::new(answer.varied.iter().map(right).chain(COLUMNS.iter().map(right)));
    let recorded = (0..answer.varied.len()).map(|place| if place == 0 { "recorded" } else { "" }.to_owned());
    table.push(recorded.chain(cells(&answer.recorded)).collect());
    for point in &answer.points {
        table.push(point.values.iter().cloned().chain(cells(&point.outcome)).collect());
    }
    table
}

fn heat_map(arguments: &WhatIfArguments, axes: &[Axis], points: &[Point]) -> anyhow::Result<HeatMap> {
    let measure = arguments.measure;
    let varied: Vec<&Axis> = axes.iter().filter(|axis| axis.labels.len() > 1).collect();
    let [rows, columns] = varied[..] else {
        bail!(
            "expected two settings with several values each for a heat map, found {}: give two, such as --max-staleness \
             0..4 --capacity 16,32,64",
            varied.len()
        )
    };
    let values: Vec<Option<f64>> = points.iter().map(|point| measure.of(&point.outcome)).collect();
    Ok(HeatMap {
        title: format!("{} by {} and {}", measure.title(), rows.name, columns.name),
        rows: (rows.name.to_owned(), rows.labels.clone()),
        columns: (columns.name.to_owned(), columns.labels.clone()),
        cells: values.into_iter().map(|value| (value, or_dash(value, |value| measure.show(value)))).collect(),
    })
}

pub(crate) fn what_if(arguments: &WhatIfArguments, output: Output) -> anyhow::Result<ExitCode> {
    let axes = arguments.axes()?;
    let combinations = combinations(&axes);
    if axes.is_empty() {
        bail!("expected at least one setting, such as --max-staleness 0..4, found none (see --help)");
    }
    if combinations.len() > MOST {
        bail!("expected at most {MOST} combinations of values, found {}: give fewer values", combinations.len());
    }
    if let Some(file) = &arguments.svg {
        outside(&arguments.run.path, file)?;
    }
    let source = arguments.run.open()?;
    let mut recorder = if arguments.first_session { Recorder::of_first_session() } else { Recorder::new() };
    let origin = source.read(|event| recorder.push(event))?;
    let recording = recorder.finish()?;
    let recorded = recording.settings().clone();
    let at = |point: &Vec<usize>| {
        let mut settings = recorded.clone();
        axes.iter().zip(point).for_each(|(axis, &value)| axis.apply[value](&mut settings));
        settings
    };
    let asked: Vec<Settings> = std::iter::once(recorded.clone()).chain(combinations.iter().map(at)).collect();
    let (reproduced, outcomes) = thread::scope(|scope| {
        let reproduced = scope.spawn(|| recording.reproduction());
        let outcomes = simulate(&recording, &asked, arguments.seed);
        (reproduced.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), outcomes)
    });
    let mut outcomes = outcomes?.into_iter();
    let recorded = outcomes.next().context("the recorded settings have no outcome")?;
    let labels = |point: Vec<usize>| axes.iter().zip(point).map(|(axis, value)| axis.labels[value].clone()).collect();
    let points = combinations.into_iter().zip(outcomes);
    let points = points.map(|(point, outcome)| Point { values: labels(point), outcome }).collect();
    let varied = axes.iter().map(|axis| axis.name).collect();
    let answer = Answer { source: origin, reproduced: Reproduced(reproduced?), recorded, varied, points };
    let mut text = answer.source.to_string();
    writeln!(text, "\nself-check  the log's own schedule is consistent")?;
    writeln!(text, "{}\n\n{}\n{NOTES}", answer.reproduced, table(&answer))?;
    if let Some(file) = &arguments.svg {
        let map = heat_map(arguments, &axes, &answer.points)?;
        std::fs::write(file, map.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
        writeln!(text, "heat map    {}", file.display())?;
    }
    output.write(text, &answer)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use anabranch_replay::Share;

    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let share = |part| Share { part, of: 1_000 };
        let text = |fates, times, first| {
            Reproduced(Reproduction { fates: share(fates), times: share(times), first }).to_string()
        };
        assert!(text(1_000, 1_000, None).ends_with("every group ends as in the log"));
        let told = text(998, 990, Some((7, 1)));
        assert!(told.contains("998 of 1,000 groups end as in the log, 990 of them\n"), "{told}");
        assert!(told.contains("the first that differs is attempt 2 at position 7:"), "{told}");
        // The groups that differ may be groups that the simulation never leased; then no position is named.
        assert!(text(999, 999, None).contains("999 of 1,000 groups"));
        assert!(told.lines().all(|line| line.len() <= 100), "{told}");
    }

    #[test]
    fn every_combination_is_asked_once() {
        let axis = |name, labels: u64| {
            let values = Values((0..labels).collect::<Vec<u64>>());
            Axis::new(name, Some(&values), u64::to_string, |_, _| {}).unwrap()
        };
        let expected: Vec<Vec<usize>> = vec![vec![0, 0], vec![0, 1], vec![0, 2], vec![1, 0], vec![1, 1], vec![1, 2]];
        assert_eq!(combinations(&[axis("a", 2), axis("b", 3)]), expected);
    }
}
