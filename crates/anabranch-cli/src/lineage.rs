//! `anabranch lineage`: all attempts at a prompt.

use std::fmt::Write as _;
use std::process::ExitCode;

use anabranch_core::{Event, EventKind, GroupId, GroupSummary, OldestVersion, PromptId, Then, Version};
use anabranch_replay::{Disposition, When};
use anyhow::Context;
use serde::Serialize;

use crate::arguments::RunArguments;
use crate::output::Output;
use crate::source::Origin;
use crate::suggestions::Near;
use crate::table::{Flush, Table};
use crate::units::{count, number, or_dash, seconds};

/// One attempt.
#[derive(Clone, Debug, Serialize)]
struct Attempt {
    group: GroupId,
    /// For fresh prompts, the position in the dataset's order over all epochs.
    position: Option<u64>,
    leased: When,
    reissued: Vec<When>,
    completed: Option<When>,
    admitted: Option<When>,
    /// When the group left the buffer, in nanoseconds since the start of the session that settled it.
    dequeued_ns: Option<u64>,
    settled: Option<When>,
    #[serde(flatten)]
    disposition: Disposition,
    /// The number of generated tokens, then the mean reward.
    tokens: Option<u64>,
    reward_mean: Option<f64>,
    /// The version gap when the group was settled.
    gap: Option<u64>,
    #[serde(skip)]
    oldest: Option<OldestVersion>,
}

impl Attempt {
    fn complete(&mut self, when: When, summary: &GroupSummary) {
        self.completed = Some(when);
        self.disposition = Disposition::Waiting;
        self.tokens = Some(summary.generated());
        self.reward_mean = summary.reward_mean();
        self.oldest = summary.oldest();
    }

    fn settle(&mut self, when: When, disposition: Disposition, dequeued_ns: Option<u64>) {
        self.settled = Some(when);
        self.disposition = disposition;
        self.dequeued_ns = dequeued_ns;
        self.gap = match (self.oldest, when.installed) {
            (Some(OldestVersion::Known(oldest)), Some(installed)) => Some(installed.since(oldest)),
            _ => None,
        };
    }
}

/// Follows a prompt through the log.
struct Lineage<'a> {
    prompt: &'a PromptId,
    installed: Option<Version>,
    attempts: Vec<Attempt>,
}

impl Lineage<'_> {
    fn attempt(&mut self, id: &GroupId) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.group == *id)
    }

    fn push(&mut self, event: &Event) {
        if let EventKind::Published { version, .. } | EventKind::Reinstalled { version, .. } = event.kind {
            self.installed = Some(version);
        }
        let (seq, session, at_ns, wall_ms) = (event.seq, event.session, event.at, event.wall_ms);
        let when = When { seq, session, at_ns, wall_ms, installed: self.installed };
        if let EventKind::BatchTaken { step, groups, .. } = &event.kind {
            for (group, place) in groups.iter().zip(0..).filter(|(group, _)| group.id.prompt == *self.prompt) {
                let consumed = Disposition::Consumed { step: *step, place, of: groups.len() as u64 };
                self.attempt(&group.id)
                    .into_iter()
                    .for_each(|attempt| attempt.settle(when, consumed.clone(), group.dequeued));
            }
        }
        let Some(id) = event.kind.group().filter(|id| id.prompt == *self.prompt) else { return };
        if let (EventKind::Leased { position, .. }, None) = (&event.kind, self.attempt(id)) {
            self.attempts.push(Attempt {
                group: id.clone(),
                position: *position,
                leased: when,
                reissued: Vec::new(),
                completed: None,
                admitted: None,
                dequeued_ns: None,
                settled: None,
                disposition: Disposition::InFlight,
                tokens: None,
                reward_mean: None,
                gap: None,
                oldest: None,
            });
        }
        let Some(attempt) = self.attempt(id) else { return };
        match &event.kind {
            EventKind::Reissued { .. } => attempt.reissued.push(when),
            EventKind::Completed { summary, .. } => attempt.complete(when, summary),
            EventKind::Admitted { .. } => {
                (attempt.admitted, attempt.disposition) = (Some(when), Disposition::Buffered);
            }
            EventKind::Excluded { reason, then, dequeued, .. } => {
                let (reason, then) = (reason.clone(), then.clone());
                attempt.settle(when, Disposition::Excluded { reason, then }, *dequeued);
            }
            _ => {}
        }
    }
}

#[derive(Serialize)]
struct Answer {
    source: Origin,
    prompt: PromptId,
    /// The result of the last attempt, or where the attempt is now.
    outcome: String,
    attempts: Vec<Attempt>,
}

/// Describes the result of the last attempt.
fn outcome(last: &Attempt) -> String {
    match &last.disposition {
        Disposition::Excluded { then: Then::Retry(next), .. } => {
            format!("queued for a retry as {next}; the log ends before that lease")
        }
        Disposition::Excluded { reason, then: Then::Exhausted } => {
            format!("attempts exhausted; the last one was excluded: {}", reason.name().replace('_', " "))
        }
        Disposition::Excluded { reason, then: Then::Drop } => format!("dropped: {}", reason.name().replace('_', " ")),
        other => other.to_string(),
    }
}

fn rows(table: &mut Table, attempt: &Attempt) {
    let mut first = true;
    let mut row = |what: &str, when: &When, detail: String| {
        // Times of different sessions cannot be compared.
        let after = (when.session == attempt.leased.session && when.seq != attempt.leased.seq)
            .then(|| format!("+{}", seconds(when.at_ns.saturating_sub(attempt.leased.at_ns))));
        table.push(vec![
            if std::mem::take(&mut first) { format!("#{}", attempt.group.attempt) } else { String::new() },
            what.to_owned(),
            when.seq.to_string(),
            when.session.to_string(),
            seconds(when.at_ns),
            after.unwrap_or_default(),
            or_dash(when.installed, |version| version.to_string()),
            detail,
        ]);
    };
    let position = attempt.position.map(|position| format!("position {}", count(position)));
    row("leased", &attempt.leased, position.unwrap_or_else(|| "a retry, or an adopted group".to_owned()));
    for (when, number) in attempt.reissued.iter().zip(1..) {
        row("re-issued", when, format!("re-issue {number}"));
    }
    if let Some(when) = &attempt.completed {
        let tokens = format!("{} tokens", count(attempt.tokens.unwrap_or_default()));
        row("completed", when, format!("{tokens}, reward {}", or_dash(attempt.reward_mean, number)));
    }
    if let Some(when) = &attempt.admitted {
        row("admitted", when, String::new());
    }
    if let Some(when) = &attempt.settled {
        let gap = attempt.gap.map_or_else(|| "gap unknown".to_owned(), |gap| format!("gap {gap}"));
        match &attempt.disposition {
            Disposition::Consumed { step, place, of } => {
                row("consumed", when, format!("step {step}, group {} of {of}, {gap}", place + 1));
            }
            Disposition::Excluded { reason, then } => {
                let name = match reason {
                    anabranch_core::Reason::Filtered { name } => format!("filtered by {name}"),
                    other => other.name().replace('_', " "),
                };
                let then = match then {
                    Then::Drop => "dropped".to_owned(),
                    Then::Retry(next) => format!("retried as #{}", next.attempt),
                    Then::Exhausted => "attempts exhausted".to_owned(),
                };
                row("excluded", when, format!("{name}, {gap}; {then}"));
            }
            _ => {}
        }
    }
}

pub(crate) fn lineage(run: &RunArguments, prompt: &PromptId, output: Output) -> anyhow::Result<ExitCode> {
    let source = run.open()?;
    let asked = GroupId { prompt: prompt.clone(), attempt: 0 };
    let mut near = Near::new(&asked);
    let mut lineage = Lineage { prompt, installed: None, attempts: Vec::new() };
    let origin = source.read(|event| {
        lineage.push(event);
        event.kind.group().into_iter().for_each(|id| near.see(id));
    })?;
    let attempts = lineage.attempts;
    let last = attempts.last().with_context(|| near.advice(&format!("prompt {prompt}"), run, &origin))?;
    let answer = Answer { source: origin, prompt: prompt.clone(), outcome: outcome(last), attempts };
    let mut text = format!("{}\n", answer.source);
    let attempts = match answer.attempts.len() {
        1 => "1 attempt".to_owned(),
        many => format!("{many} attempts"),
    };
    writeln!(text, "prompt      {prompt}: {attempts}; {}", answer.outcome)?;
    let columns = ["attempt", "what", "record", "session", "at", "after", "version", ""];
    let left = ["attempt", "what", ""];
    let flush = |name: &&str| if left.contains(name) { Flush::Left } else { Flush::Right };
    let mut table = Table::new(columns.iter().map(|name| (*name, flush(name))));
    answer.attempts.iter().for_each(|attempt| rows(&mut table, attempt));
    write!(text, "{table}")?;
    output.write(text, &answer)?;
    Ok(ExitCode::SUCCESS)
}
