//! The command line.

use std::path::PathBuf;

use anabranch_core::{GroupId, PromptId};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::source::Source;
use crate::what_if::WhatIfArguments;

/// Examples at the end of a command's help, one a line.
macro_rules! examples {
    ($($example:literal),+ $(,)?) => { concat!("Examples:", $("\n  ", $example),+) };
}

/// Audit, explain, verify and export recorded runs.
///
/// RUN is the directory of a run, finished or killed, or its Parquet folder alone. Beside a live writer the sealed Parquet
/// segments are read, and the answer says up to which event. Only `export` and `salvage` write: into the Parquet folder,
/// and into a new run.
#[derive(Debug, Parser)]
#[command(
    name = "anabranch",
    version,
    after_help = examples!(
        "anabranch audit runs/demo",
        "anabranch history runs/demo sort4/0/17#0 --tokens",
        "anabranch verify runs/demo && echo sound",
        "anabranch what-if runs/demo --max-staleness 0..4 --capacity 16,32,64",
        "anabranch audit runs/demo --json | jq .audit.gap.consumed",
    )
)]
pub(crate) struct Arguments {
    /// Answer in JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which run.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The directory of a run, or its Parquet folder.
    #[arg(value_name = "RUN")]
    pub(crate) path: PathBuf,
    /// Take the log as it is where RUN/HEAD, which says how far it must reach, is missing or damaged.
    #[arg(long)]
    pub(crate) accept_missing_head: bool,
}

impl RunArguments {
    /// Opens it.
    pub(crate) fn open(&self) -> anyhow::Result<Source> {
        Source::open(&self.path, self.accept_missing_head)
    }
}

/// When to colour.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What a run came to: groups by what became of them, version gaps, learner wait, generation pauses.
    #[command(after_help = examples!(
        "anabranch audit runs/demo",
        "anabranch audit runs/demo/parquet --json | jq .audit.groups",
    ))]
    Audit(RunArguments),
    /// One row a training step: what it was trained on, how old that was, and what it cost.
    ///
    /// Of a step, `version` is the one its batch was judged against, `waited` how long the learner was free before the
    /// batch came, and `publ.` the version that its weights were published as; `paused` is how long generation stood
    /// still for that. A step that was never made has no loss.
    #[command(after_help = examples!(
        "anabranch steps runs/demo",
        "anabranch steps runs/demo --json | jq '.steps[] | [.step, .gap_max]'",
    ))]
    Steps(RunArguments),
    /// One group: spans of every sample, times, versions published meanwhile, gaps, what became of it.
    #[command(after_help = examples!(
        "anabranch history runs/demo sort4/0/17#0",
        "anabranch history runs/demo sort4/0/17#1 --tokens",
        "anabranch history runs/demo sort4/0/17 --tokens --color always | less -R",
    ))]
    History {
        #[command(flatten)]
        run: RunArguments,
        /// The group: dataset/epoch/row#attempt, without `#attempt` the first.
        group: GroupId,
        /// Every token with its version, its age in versions and its log-prob.
        #[arg(long)]
        tokens: bool,
        /// When to colour tokens by age.
        #[arg(long, value_name = "WHEN", default_value = "auto")]
        color: Color,
    },
    /// All attempts at a prompt: leases, re-issues, outcomes and what followed, and how the chain ended.
    #[command(after_help = examples!(
        "anabranch lineage runs/demo --prompt sort4/0/17",
        "anabranch lineage runs/demo --prompt sort4/0/17 --json | jq .outcome",
    ))]
    Lineage {
        #[command(flatten)]
        run: RunArguments,
        /// The prompt: dataset/epoch/row.
        #[arg(long, value_parser = prompt)]
        prompt: PromptId,
    },
    /// The run as a trace for ui.perfetto.dev or chrome://tracing.
    ///
    /// Lanes: generation slots (one bar a sample, below it one a version), the fill of the buffer, the learner (wait and
    /// training), publications (pause and installation). What was under way when a session ended, ends with its last
    /// event and is marked `open`. Sessions follow each other without the time between them.
    #[command(after_help = examples!(
        "anabranch timeline runs/demo -o trace.json",
        "anabranch timeline runs/demo -o - | gzip > trace.json.gz",
    ))]
    Timeline {
        #[command(flatten)]
        run: RunArguments,
        /// The file to write, outside the run; `-` for standard output.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Two runs side by side: the settings that differ, then what each came to.
    #[command(after_help = examples!(
        "anabranch diff runs/limit-1 runs/limit-4",
        "anabranch diff runs/limit-1 runs/limit-4 --json | jq .settings",
    ))]
    Diff {
        /// A run.
        #[arg(value_name = "RUN")]
        one: PathBuf,
        /// Another.
        #[arg(value_name = "OTHER")]
        other: PathBuf,
        /// Take the logs as they are where HEAD, which says how far they must reach, is missing or damaged.
        #[arg(long)]
        accept_missing_head: bool,
    },
    /// Follow a live run by its sealed segments: one line a training step; ends when the run does.
    #[command(after_help = examples!(
        "anabranch tail runs/demo",
        "anabranch tail runs/demo --once --last 5",
        "anabranch tail runs/demo --json | jq .loss",
    ))]
    Tail {
        #[command(flatten)]
        run: RunArguments,
        /// Show the present state and end.
        #[arg(long)]
        once: bool,
        /// Steps to show of those already begun.
        #[arg(long, value_name = "STEPS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        last: u64,
        /// Seconds between looks at the run.
        #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
        every: u64,
    },
    /// What the run would have come to under other settings.
    ///
    /// The schedule of the log is replayed in virtual time under every combination of the settings given; those not given
    /// stay as recorded. First the log's own schedule is checked, and where it does not add up that is said and nothing
    /// answered. Lists read `16,32,64`, ranges `0..4` (0 to 4, both included). A run whose settings changed between its
    /// sessions has none that stay as recorded: ask about its first session. The in-flight mode may change.
    ///
    /// It cannot know that other weights would have written other text, nor that an engine whose speed depends on its
    /// load would have run at another speed.
    #[command(after_help = examples!(
        "anabranch what-if runs/demo --max-staleness 0..4",
        "anabranch what-if runs/demo --capacity 16,32,64 --order fifo,freshest --unused drop,retry:3",
        "anabranch what-if runs/demo --in-flight 4..16 --first-session",
        "anabranch what-if runs/demo --max-staleness none,0..4 --update-interval 1..4 --svg gap.svg --measure gap",
    ))]
    WhatIf(WhatIfArguments),
    /// Check a log against its contract: each violation is named, and the exit status is 1 where there is one.
    #[command(after_help = examples!(
        "anabranch verify runs/demo && echo sound",
        "anabranch verify runs/demo --events-only",
        "anabranch verify runs/demo --json | jq .report.violations",
    ))]
    Verify {
        #[command(flatten)]
        run: RunArguments,
        /// Leave payloads and sealed files unread: events are checked alone, which is much faster.
        #[arg(long)]
        events_only: bool,
    },
    /// Draw a run as one HTML file that needs no network: timeline, version gaps, buffer, dispositions, reward and loss.
    #[command(after_help = examples!("anabranch report runs/demo -o report.html"))]
    Report {
        #[command(flatten)]
        run: RunArguments,
        /// The file to write, outside the run.
        #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "report.html")]
        to: PathBuf,
    },
    /// Copy all provably good records of a damaged run into a new one, and say what is missing: exit status 1 where
    /// something is. Nothing is written to RUN.
    #[command(after_help = examples!("anabranch salvage runs/damaged --to runs/rescued"))]
    Salvage {
        /// The directory of the damaged run.
        run: PathBuf,
        /// The directory of the new run, which must not exist.
        #[arg(long, value_name = "NEW")]
        to: PathBuf,
    },
    /// Seal what is not yet sealed into Parquet.
    #[command(after_help = examples!(
        "anabranch export runs/demo",
        "anabranch export runs/demo --to demo-parquet",
    ))]
    Export {
        #[command(flatten)]
        run: RunArguments,
        /// Another Parquet folder than RUN/parquet.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Write the completions of a shell to standard output.
    #[command(after_help = examples!(
        "anabranch completions bash > ~/.local/share/bash-completion/completions/anabranch",
        "anabranch completions zsh > ~/.zfunc/_anabranch",
        "anabranch completions fish > ~/.config/fish/completions/anabranch.fish",
    ))]
    Completions {
        /// The shell.
        shell: Shell,
    },
}

fn prompt(text: &str) -> Result<PromptId, String> {
    let id = text.parse::<GroupId>().map(|id| id.prompt);
    id.map_err(|_| format!("`{text}` is no prompt; one reads dataset/epoch/row, such as sort4/0/17"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_has_examples_that_it_takes() {
        let command = Arguments::command();
        command.clone().debug_assert();
        let mut taken = 0;
        for part in std::iter::once(&command).chain(command.get_subcommands()) {
            let help = part.get_after_help().unwrap_or_else(|| panic!("`{}` has no examples", part.get_name()));
            for example in help.to_string().lines().skip(1) {
                let words = example.split_whitespace().take_while(|word| !["|", ">", "&&"].contains(word));
                let words: Vec<&str> = words.collect();
                assert!(part.get_name() == "anabranch" || words[1] == part.get_name(), "{example}");
                Arguments::try_parse_from(&words).unwrap_or_else(|error| panic!("{example}: {error}"));
                taken += 1;
            }
        }
        assert!(taken > command.get_subcommands().count(), "{taken} examples");
    }
}
