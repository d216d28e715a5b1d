//! `anabranch diff`: the settings and the results of two runs side by side.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anabranch_core::{Event, EventKind, Fields, Value};
use anabranch_replay::{Audit, Auditor, Change, Series};
use serde::Serialize;

use crate::output::Output;
use crate::source::{Origin, Source};
use crate::table::{Flush, Table};
use crate::units::{count, number, or_dash, percent, seconds};

/// Longest value of a setting that the table shows, in characters.
const WIDEST: usize = 36;
/// Number of last steps over which a learner's metric is averaged.
const LAST_STEPS: usize = 10;

/// The facts about a run that are compared.
struct Side {
    origin: Origin,
    settings: BTreeMap<String, Value>,
    audit: Audit,
    /// The last values of the learner's metrics.
    metrics: BTreeMap<String, VecDeque<f64>>,
}

impl Side {
    fn read(path: &Path, accept_missing_head: bool) -> anyhow::Result<Self> {
        let source = Source::open(path, accept_missing_head)?;
        let (mut auditor, mut settings, mut metrics) = (Auditor::new(), BTreeMap::new(), BTreeMap::new());
        let origin = source.read(|event| {
            auditor.push(event);
            configure(&mut settings, event);
            measure(&mut metrics, event);
        })?;
        Ok(Self { origin, settings, audit: auditor.finish(), metrics })
    }
}

/// Adds the settings that an event records. The settings of an operator replace its earlier settings.
fn configure(settings: &mut BTreeMap<String, Value>, event: &Event) {
    let (of, fields): (&str, &Fields) = match &event.kind {
        EventKind::RunOpened { library, settings: fields, .. } => {
            settings.insert("library".to_owned(), library.as_str().into());
            ("run", fields)
        }
        EventKind::Configured { operator, settings: fields } => (operator, fields),
        EventKind::Publishing { mode, .. } => {
            settings.insert("publish.mode".to_owned(), mode.name().into());
            return;
        }
        _ => return,
    };
    let prefix = format!("{of}.");
    settings.retain(|name, _| !name.starts_with(&prefix) || name == "publish.mode");
    settings.extend(fields.iter().map(|(name, value)| (format!("{prefix}{name}"), value.clone())));
}

fn measure(metrics: &mut BTreeMap<String, VecDeque<f64>>, event: &Event) {
    let EventKind::Stepped { metrics: measured, .. } = &event.kind else { return };
    for (name, value) in measured {
        let values = metrics.entry(name.clone()).or_default();
        values.push_back(*value);
        if values.len() > LAST_STEPS {
            values.pop_front();
        }
    }
}

#[derive(Serialize)]
struct Setting {
    name: String,
    one: Option<serde_json::Value>,
    other: Option<serde_json::Value>,
}

#[derive(Serialize)]
struct Outcome {
    name: String,
    /// The numbers without rounding; times in nanoseconds.
    one: Option<f64>,
    other: Option<f64>,
    #[serde(skip)]
    shown: [String; 2],
}

#[derive(Serialize)]
struct Answer {
    one: Origin,
    other: Origin,
    /// The settings that differ. A run that does not have the setting has no value.
    settings: Vec<Setting>,
    /// How many settings are the same.
    same_settings: usize,
    outcomes: Vec<Outcome>,
}

fn outcome(sides: [&Side; 2], name: &str, of: impl Fn(&Audit) -> Option<f64>, show: fn(f64) -> String) -> Outcome {
    let [one, other] = sides.map(|side| of(&side.audit));
    Outcome { name: name.to_owned(), one, other, shown: [or_dash(one, show), or_dash(other, show)] }
}

fn whole(value: f64) -> String {
    count(value as u64)
}

fn duration(ns: f64) -> String {
    seconds(ns as u64)
}

fn outcomes(sides: [&Side; 2]) -> Vec<Outcome> {
    let first = |change: Option<Change>| change.map(|change| change.first);
    let last = |change: Option<Change>| change.map(|change| change.last);
    let max = |series: &Series| series.max().map(|max| max as f64);
    let some = |count: u64| Some(count as f64);
    let time = |ns: Option<u64>| ns.map(|ns| ns as f64);
    let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
    let mut outcomes = vec![
        outcome(sides, "reward, first tenth", |a| first(a.reward), number),
        outcome(sides, "reward, last tenth", |a| last(a.reward), number),
        outcome(sides, "loss, first tenth", |a| first(a.learner.loss), number),
        outcome(sides, "loss, last tenth", |a| last(a.learner.loss), number),
    ];
    let names: BTreeSet<&String> = sides.iter().flat_map(|side| side.metrics.keys()).collect();
    for name in names {
        let [one, other] = sides.map(|side| {
            let values = side.metrics.get(name)?;
            Some(values.iter().sum::<f64>() / values.len() as f64)
        });
        let shown = [or_dash(one, number), or_dash(other, number)];
        outcomes.push(Outcome { name: format!("{name}, last {LAST_STEPS} steps"), one, other, shown });
    }
    outcomes.extend([
        outcome(sides, "time open", |a| some(a.open_ns), duration),
        outcome(sides, "sessions", |a| some(u64::from(a.sessions)), whole),
        outcome(sides, "steps", |a| some(a.learner.steps), whole),
        outcome(sides, "publications", |a| some(a.publications.published), whole),
        outcome(sides, "groups leased", |a| some(a.groups.leased), whole),
        outcome(sides, "groups consumed", |a| some(a.groups.consumed), whole),
    ]);
    let reasons: BTreeSet<&'static str> =
        sides.iter().flat_map(|side| side.audit.groups.excluded.keys().copied()).collect();
    for reason in reasons {
        let name = format!("groups {}", reason.replace('_', " "));
        outcomes.push(outcome(sides, &name, |a| some(a.groups.excluded.get(reason).copied().unwrap_or(0)), whole));
    }
    outcomes.extend([
        outcome(
            sides,
            "groups not settled",
            |a| some(a.groups.in_flight + a.groups.waiting + a.groups.buffered),
            whole,
        ),
        outcome(sides, "prompts exhausted", |a| some(a.exhausted), whole),
        outcome(sides, "tokens generated", |a| some(a.tokens.generated), whole),
        outcome(sides, "tokens consumed", |a| share(a.tokens.consumed, a.tokens.generated), percent),
        outcome(sides, "tokens wasted", |a| share(a.tokens.wasted.values().sum(), a.tokens.generated), percent),
        outcome(sides, "gap, mean", |a| a.gap.consumed.mean(), number),
        outcome(sides, "gap, max", |a| max(&a.gap.consumed), whole),
        outcome(sides, "gap from generation, mean", |a| a.gap.consumed_generation.mean(), number),
        outcome(sides, "step lag, mean", |a| a.step_lag.mean(), number),
        outcome(sides, "learner waited, total", |a| some(a.learner.wait.total_ns), duration),
        outcome(sides, "learner waited, mean", |a| time(a.learner.wait.mean_ns()), duration),
        outcome(sides, "learner trained, mean", |a| time(a.learner.training.mean_ns()), duration),
        outcome(sides, "generation paused, mean", |a| time(a.publications.pause.mean_ns()), duration),
    ]);
    // A row that neither run has a value for tells the reader nothing.
    outcomes.retain(|outcome| outcome.one.is_some() || outcome.other.is_some());
    outcomes
}

fn shown(value: Option<&serde_json::Value>) -> String {
    let text = or_dash(value, |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    if text.chars().count() <= WIDEST { text } else { text.chars().take(WIDEST - 1).chain(['…']).collect() }
}

pub(crate) fn diff(one: &Path, other: &Path, accept_missing_head: bool, output: Output) -> anyhow::Result<ExitCode> {
    let (one, other) = (Side::read(one, accept_missing_head)?, Side::read(other, accept_missing_head)?);
    let known: BTreeSet<&String> = one.settings.keys().chain(other.settings.keys()).collect();
    let total = known.len();
    let settings: Vec<Setting> = known
        .into_iter()
        .filter(|name| one.settings.get(*name) != other.settings.get(*name))
        .map(|name| {
            let [one, other] = [&one, &other].map(|side| side.settings.get(name).cloned().map(Into::into));
            Setting { name: name.clone(), one, other }
        })
        .collect();
    let outcomes = outcomes([&one, &other]);
    let same_settings = total - settings.len();
    let answer = Answer { one: one.origin, other: other.origin, settings, same_settings, outcomes };
    let mut text = format!("one: {}\nother: {}\n\n", answer.one, answer.other);
    let headed = |what| [(what, Flush::Left), ("one", Flush::Right), ("other", Flush::Right)];
    let mut table = Table::new(headed("setting"));
    for Setting { name, one, other } in &answer.settings {
        table.push(vec![name.clone(), shown(one.as_ref()), shown(other.as_ref())]);
    }
    if answer.settings.is_empty() {
        writeln!(text, "settings    all {same_settings} are the same")?;
    } else {
        writeln!(text, "{table}({same_settings} settings are the same)")?;
    }
    let mut table = Table::new(headed("outcome"));
    for Outcome { name, shown: [one, other], .. } in &answer.outcomes {
        table.push(vec![name.clone(), one.clone(), other.clone()]);
    }
    writeln!(text, "\n{table}")?;
    output.write(text, &answer)?;
    Ok(ExitCode::SUCCESS)
}
