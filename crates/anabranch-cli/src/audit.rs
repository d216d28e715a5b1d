//! `anabranch audit`: a summary of a run.

use std::process::ExitCode;

use anabranch_replay::{Audit, Auditor};
use serde::Serialize;

use crate::arguments::RunArguments;
use crate::output::Output;
use crate::source::Origin;

#[derive(Serialize)]
struct Answer {
    source: Origin,
    audit: Audit,
}

pub(crate) fn audit(run: &RunArguments, output: Output) -> anyhow::Result<ExitCode> {
    let source = run.open()?;
    let mut auditor = Auditor::new();
    let origin = source.read(|event| auditor.push(event))?;
    let answer = Answer { source: origin, audit: auditor.finish() };
    output.write(format_args!("{}\n{}", answer.source, answer.audit), &answer)?;
    Ok(ExitCode::SUCCESS)
}
