//! The command line.

use std::path::PathBuf;

use anabranch_core::{GroupId, PromptId};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::source::Source;
use crate::what_if::WhatIfArguments;

/// The examples at the end of a command's help, one per line.
macro_rules! examples {
    ($($example:literal),+ $(,)?) => { concat!("Examples:", $("\n  ", $example),+) };
}

/// Audit, explain, verify and export recorded runs.
///
/// RUN is the directory of a run, finished or killed, or only its Parquet folder. If a process is still writing the run,
/// commands read the sealed Parquet segments and say which event is the last one they read. No command changes a log:
/// `export` writes to the Parquet folder, `salvage` writes a new run.
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
    /// Print the answer as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The run to read.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Directory of a run, or its Parquet folder.
    #[arg(value_name = "RUN")]
    pub(crate) path: PathBuf,
    /// Read the log even if RUN/HEAD is missing or damaged. HEAD records how far the log must reach; without it, a log
    /// that lost its end looks complete.
    #[arg(long)]
    pub(crate) accept_missing_head: bool,
}

impl RunArguments {
    /// Opens the run.
    pub(crate) fn open(&self) -> anyhow::Result<Source> {
        Source::open(&self.path, self.accept_missing_head)
    }
}

/// When to use colours.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// If the output is a terminal and NO_COLOR is not set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Summarize a run: outcomes of groups, version gaps, learner wait, generation pauses.
    #[command(after_help = examples!(
        "anabranch audit runs/demo",
        "anabranch audit runs/demo/parquet --json | jq .audit.groups",
    ))]
    Audit(RunArguments),
    /// List the training steps: one row per step, with its batch, how stale the batch was, and the times.
    ///
    /// `version` is the published version against which the staleness of the batch was judged. `waited` is how long the
    /// learner was idle before the batch was ready. `publ.` is the version under which the weights of the step were
    /// published, and `paused` is how long generation paused for that publication. A step that was never trained has no
    /// loss.
    #[command(after_help = examples!(
        "anabranch steps runs/demo",
        "anabranch steps runs/demo --json | jq '.steps[] | [.step, .gap_max]'",
    ))]
    Steps(RunArguments),
    /// Explain one group: version spans of each sample, times, publications in between, gaps and outcome.
    #[command(after_help = examples!(
        "anabranch history runs/demo sort4/0/17#0",
        "anabranch history runs/demo sort4/0/17#1 --tokens",
        "anabranch history runs/demo sort4/0/17 --tokens --color always | less -R",
    ))]
    History {
        #[command(flatten)]
        run: RunArguments,
        /// The group: dataset/epoch/row#attempt. Without `#attempt`, the first attempt.
        group: GroupId,
        /// Show each token with its version, its age in versions and its log-prob.
        #[arg(long)]
        tokens: bool,
        /// Whether to colour tokens by their age.
        #[arg(long, value_name = "WHEN", default_value = "auto")]
        color: Color,
    },
    /// List all attempts at a prompt: leases, re-issues, outcomes, retries, and the final result.
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
    /// Write the run as a trace for ui.perfetto.dev or chrome://tracing.
    ///
    /// The lanes are: generation slots (one bar per sample, with one bar per version below it), groups in the buffer, the
    /// learner (waiting and training), and publications (pause and installation). A bar that was still running when its
    /// session ended stops at the session's last event and is marked `open`. The trace leaves out the time between
    /// sessions.
    #[command(after_help = examples!(
        "anabranch timeline runs/demo -o trace.json",
        "anabranch timeline runs/demo -o - | gzip > trace.json.gz",
    ))]
    Timeline {
        #[command(flatten)]
        run: RunArguments,
        /// File to write, outside the run; `-` for standard output.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Compare two runs: the settings that differ, then the results side by side.
    #[command(after_help = examples!(
        "anabranch diff runs/limit-1 runs/limit-4",
        "anabranch diff runs/limit-1 runs/limit-4 --json | jq .settings",
    ))]
    Diff {
        /// One run.
        #[arg(value_name = "RUN")]
        one: PathBuf,
        /// The other run.
        #[arg(value_name = "OTHER")]
        other: PathBuf,
        /// Read a log even if its HEAD is missing or damaged. HEAD records how far the log must reach; without it, a log
        /// that lost its end looks complete.
        #[arg(long)]
        accept_missing_head: bool,
    },
    /// Follow a live run through its sealed segments: one line per training step, until the run ends.
    #[command(after_help = examples!(
        "anabranch tail runs/demo",
        "anabranch tail runs/demo --once --last 5",
        "anabranch tail runs/demo --json | jq .loss",
    ))]
    Tail {
        #[command(flatten)]
        run: RunArguments,
        /// Show the current state and exit.
        #[arg(long)]
        once: bool,
        /// How many of the latest steps to show first.
        #[arg(long, value_name = "STEPS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        last: u64,
        /// Seconds between two reads of the run.
        #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
        every: u64,
    },
    /// Predict the run under other settings.
    ///
    /// The command replays the schedule of the log in virtual time under every combination of the settings you give. All
    /// other settings keep their recorded values. The command first checks that the log's own schedule is consistent; if
    /// it is not, the command says so and predicts nothing. Give several values as a list (`16,32,64`) or as a range
    /// (`0..4` means 0 to 4, both included). If the settings changed between sessions, use --first-session to ask about
    /// the first session only; only the weight-sync mode may differ between sessions.
    ///
    /// The prediction keeps the recorded lengths and rewards: it cannot know what other weights would have written, or
    /// how the speed of an engine depends on its load.
    #[command(after_help = examples!(
        "anabranch what-if runs/demo --max-staleness 0..4",
        "anabranch what-if runs/demo --capacity 16,32,64 --order fifo,freshest --unused drop,retry:3",
        "anabranch what-if runs/demo --in-flight 4..16 --first-session",
        "anabranch what-if runs/demo --max-staleness none,0..4 --update-interval 1..4 --svg gap.svg --measure gap",
    ))]
    WhatIf(WhatIfArguments),
    /// Check that a log is sound: print each violation of its contract, and exit with status 1 if there is one.
    #[command(after_help = examples!(
        "anabranch verify runs/demo && echo sound",
        "anabranch verify runs/demo --events-only",
        "anabranch verify runs/demo --json | jq .report.violations",
    ))]
    Verify {
        #[command(flatten)]
        run: RunArguments,
        /// Check only the events, not payloads and sealed files. This is much faster.
        #[arg(long)]
        events_only: bool,
    },
    /// Draw a run as one HTML file that needs no network: timeline, version gaps, buffer, outcomes, reward and loss.
    #[command(after_help = examples!("anabranch report runs/demo -o report.html"))]
    Report {
        #[command(flatten)]
        run: RunArguments,
        /// File to write, outside the run.
        #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "report.html")]
        to: PathBuf,
    },
    /// Copy all provably good records of a damaged run into a new run.
    ///
    /// The command lists the records that are missing, and exits with status 1 if there are any. It does not change RUN.
    #[command(after_help = examples!("anabranch salvage runs/damaged --to runs/rescued"))]
    Salvage {
        /// Directory of the damaged run.
        run: PathBuf,
        /// Directory of the new run; it must not exist yet.
        #[arg(long, value_name = "NEW")]
        to: PathBuf,
    },
    /// Write the part of the log that is not in Parquet yet to Parquet.
    #[command(after_help = examples!(
        "anabranch export runs/demo",
        "anabranch export runs/demo --to demo-parquet",
    ))]
    Export {
        #[command(flatten)]
        run: RunArguments,
        /// Parquet folder to write to, instead of RUN/parquet.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Print a completion script for a shell.
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
    id.map_err(|_| format!("expected a prompt such as sort4/0/17 (dataset/epoch/row), found `{text}`"))
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
