//! Ends the demo with an audit of the log and a report file in the run's directory.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anabranch::replay::{Auditor, Verifier};
use anabranch::{EventKind, ReadLog};
use anyhow::{Context, Result};

/// Number of steps between two rows of the learning curve.
const EVERY: u64 = 10;

/// Audits the run in `dir` from its log, writes `report.md` there, and prints both; `last` is the last line.
pub fn conclude(dir: &Path, last: &str) -> Result<()> {
    let log = ReadLog::open(dir)?;
    let (mut auditor, mut verifier) = (Auditor::new(), Verifier::new());
    let mut curve = String::from("| step | reward | loss | entropy |\n|---|---|---|---|\n");
    for event in log.events() {
        let event = event?;
        auditor.push(&event);
        verifier.push(&event);
        if let EventKind::Stepped { step, loss, metrics, .. } = &event.kind
            && (step.0 == 1 || step.0.is_multiple_of(EVERY))
        {
            let metric = |name: &str| metrics.get(name).map_or(String::new(), |value| format!("{value:.3}"));
            writeln!(curve, "| {step} | {} | {loss:.4} | {} |", metric("reward_mean"), metric("entropy"))?;
        }
    }
    let (audit, verdict) = (auditor.finish(), verifier.finish());
    let report = format!(
        "# Run {}\n\n{last}\n\n## Audit\n\n```text\n{audit}\n```\n\n## Verification\n\n```text\n{verdict}\n```\n\n## Learning curve\n\n{curve}",
        dir.display()
    );
    let path = dir.join("report.md");
    fs::write(&path, report).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{audit}\n{verdict}\nreport {}", path.display());
    println!("{last}");
    Ok(())
}
