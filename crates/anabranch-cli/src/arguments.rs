//! The command line.

use std::path::PathBuf;

use anabranch_core::GroupId;
use clap::{Args, Parser, Subcommand};

/// Audit, explain, verify and export recorded runs.
///
/// RUN is the directory of a run, finished or killed, or its Parquet folder alone. Beside a live writer the sealed Parquet
/// segments are read. Only `export` and `salvage` write: into the Parquet folder, and into a new run.
#[derive(Debug, Parser)]
#[command(
    name = "anabranch",
    version,
    after_help = "Examples:\n  \
    anabranch audit runs/demo\n  \
    anabranch history runs/demo sort4/0/17#0\n  \
    anabranch verify runs/demo && echo sound\n  \
    anabranch audit runs/demo --json | jq .audit.gap.consumed\n  \
    anabranch report runs/demo -o report.html\n  \
    anabranch export runs/demo --to /data/demo-parquet"
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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What a run came to: groups by what became of them, version gaps, learner wait, generation pauses.
    Audit(RunArguments),
    /// One group: spans of every sample, times, versions published meanwhile, gaps, what became of it.
    History {
        #[command(flatten)]
        run: RunArguments,
        /// The group: dataset/epoch/row#attempt.
        group: GroupId,
    },
    /// Check a log against its contract: each violation is named, and the exit status is 1 where there is one.
    Verify(RunArguments),
    /// Draw a run as one HTML file that needs no network: timeline, version gaps, buffer, dispositions, reward and loss.
    #[command(after_help = "Example:\n  anabranch report runs/demo -o report.html")]
    Report {
        #[command(flatten)]
        run: RunArguments,
        /// The file to write, outside the run.
        #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "report.html")]
        to: PathBuf,
    },
    /// Copy all provably good records of a damaged run into a new one, and say what is missing: exit status 1 where
    /// something is. Nothing is written to RUN.
    Salvage {
        /// The directory of the damaged run.
        run: PathBuf,
        /// The directory of the new run, which must not exist.
        #[arg(long, value_name = "NEW")]
        to: PathBuf,
    },
    /// Seal what is not yet sealed into Parquet.
    Export {
        #[command(flatten)]
        run: RunArguments,
        /// Another Parquet folder than RUN/parquet.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
}
