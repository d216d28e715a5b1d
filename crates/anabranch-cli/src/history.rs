//! `anabranch history`: the life of one group.

use std::fmt::Write as _;
use std::process::ExitCode;

use anabranch_core::{Group, GroupId, SpanVersion, VersionSpan};
use anabranch_replay::{Historian, History};
use anyhow::Context;
use serde::Serialize;

use crate::arguments::RunArguments;
use crate::output::Output;
use crate::source::{Origin, Source};

#[derive(Serialize)]
struct Answer {
    source: Origin,
    history: History,
    /// The spans of each sample, where the group was completed.
    spans: Option<Vec<Vec<VersionSpan>>>,
}

pub(crate) fn history(run: &RunArguments, group: &GroupId, output: Output) -> anyhow::Result<ExitCode> {
    let source = Source::open(run)?;
    let mut historian = Historian::new(group.clone());
    let mut near = Near::new(group);
    let origin = source.read(|event| {
        historian.push(event);
        event.kind.group().into_iter().for_each(|id| near.see(id));
    })?;
    let history = historian.finish().with_context(|| near.advice(run, &origin))?;
    let payload = history.completed.map(|_| source.payload(group)).transpose()?;
    let spans = |group: &Group| group.samples.iter().map(|sample| sample.spans.clone()).collect();
    let answer = Answer { source: origin, history, spans: payload.as_ref().map(spans) };
    let mut text = format!("{}\n{}", answer.source, answer.history);
    for (sample, index) in answer.spans.iter().flatten().zip(0_usize..) {
        let spans: Vec<String> = sample.iter().map(describe).collect();
        let spans = if spans.is_empty() { "none: nothing was generated".to_owned() } else { spans.join(" ") };
        writeln!(text, "spans {index:>4}  {spans}")?;
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

/// Groups to suggest where the one asked for is not there.
struct Near<'a> {
    asked: &'a GroupId,
    same_prompt: Option<GroupId>,
    any: Option<GroupId>,
}

impl<'a> Near<'a> {
    fn new(asked: &'a GroupId) -> Self {
        Self { asked, same_prompt: None, any: None }
    }

    fn see(&mut self, id: &GroupId) {
        if self.any.is_none() {
            self.any = Some(id.clone());
        }
        if id.prompt == self.asked.prompt {
            self.same_prompt = Some(id.clone());
        }
    }

    fn advice(&self, run: &RunArguments, origin: &Origin) -> String {
        let asked = self.asked;
        let known = match (&self.same_prompt, &self.any) {
            (Some(last), _) => format!("; the last attempt at that prompt is {last}"),
            (None, Some(any)) => format!("; one of its groups is {any}"),
            (None, None) => "; it has leased no group".to_owned(),
        };
        let beyond = if origin.is_live() { ", as far as it is sealed," } else { "" };
        format!("{}{beyond} has no group {asked}{known}", run.path.display())
    }
}
