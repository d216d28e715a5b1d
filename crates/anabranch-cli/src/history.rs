//! `anabranch history`: the history of one group.

use std::fmt::Write as _;
use std::process::ExitCode;

use anabranch_core::{EventKind, Group, GroupId, SpanVersion, VersionSpan};
use anabranch_replay::{Historian, History};
use anyhow::Context;
use serde::Serialize;

use crate::arguments::{Color, RunArguments};
use crate::output::Output;
use crate::source::Origin;
use crate::suggestions::Near;
use crate::tokens::{Age, SampleTokens};

#[derive(Serialize)]
struct Answer {
    source: Origin,
    history: History,
    /// The version spans of each sample; absent if the group was not completed.
    spans: Option<Vec<Vec<VersionSpan>>>,
    /// The tokens of each sample; absent without `--tokens`, or if the group was not completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<SampleTokens>>,
}

pub(crate) fn history(
    run: &RunArguments,
    group: &GroupId,
    tokens: bool,
    color: Color,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let source = run.open()?;
    let mut historian = Historian::new(group.clone());
    let mut near = Near::new(group);
    let mut installed = None;
    let origin = source.read(|event| {
        historian.push(event);
        if let EventKind::Published { version, .. } | EventKind::Reinstalled { version, .. } = event.kind {
            installed = Some(version);
        }
        event.kind.group().into_iter().for_each(|id| near.see(id));
    })?;
    let history = historian.finish().with_context(|| near.advice(&format!("group {group}"), run, &origin))?;
    let payload = history.completed.map(|_| source.payload(group)).transpose()?;
    let spans = |group: &Group| group.samples.iter().map(|sample| sample.spans.clone()).collect();
    // Ages count from the moment when the exit check judged the group, or from the end of the log.
    let now = history.settled.map_or(installed, |settled| settled.installed);
    let told = payload.as_ref().filter(|_| tokens).map(|group| SampleTokens::of_group(group, now));
    let answer = Answer { source: origin, history, spans: payload.as_ref().map(spans), tokens: told };
    let mut text = format!("{}\n{}", answer.source, answer.history);
    for (sample, index) in answer.spans.iter().flatten().zip(0_usize..) {
        let spans: Vec<String> = sample.iter().map(describe).collect();
        let spans = if spans.is_empty() { "none: nothing was generated".to_owned() } else { spans.join(" ") };
        writeln!(text, "spans {index:>4}  {spans}")?;
    }
    if tokens && answer.tokens.is_none() {
        writeln!(text, "tokens      none yet: the group is not complete")?;
    }
    if let Some(samples) = &answer.tokens {
        let paint = Age::painter(color);
        let now = now.map_or_else(|| "no version".to_owned(), |version| version.to_string());
        writeln!(text, "tokens      id and log-prob; ages against {now}; [..] are environment tokens")?;
        for (sample, index) in samples.iter().zip(0..) {
            sample.write(&mut text, index, paint)?;
        }
    }
    output.write(text, &answer)?;
    Ok(ExitCode::SUCCESS)
}

fn describe(span: &VersionSpan) -> String {
    let version = match span.version {
        SpanVersion::Exact(version) => version.to_string(),
        SpanVersion::Uncertain { lo, hi } => format!("{lo}..{hi}?"),
        SpanVersion::Unknown => "v?".to_owned(),
    };
    let carried = if span.kv_carried { " (kv carried)" } else { "" };
    format!("{version}[{},{}){carried}", span.start, span.end)
}
