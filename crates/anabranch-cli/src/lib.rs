//! `anabranch`: audit, explain, verify and export recorded runs.
//!
//! The crate is the command. It exports [`Source`], which reads runs, only so that the benches measure the same code.

mod arguments;
mod audit;
mod diff;
mod export;
mod heat_map;
mod history;
mod lineage;
mod output;
mod report;
mod salvage;
mod slots;
mod source;
mod steps;
mod suggestions;
mod table;
mod tail;
mod timeline;
mod tokens;
mod trace;
mod units;
mod utc;
mod values;
mod verify;
mod what_if;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use arguments::{Arguments, Command};
use output::Output;
pub use source::{Origin, Source};

/// Runs the command with the arguments of the process. Exit status: 0 for success, 1 if `verify` found a violation or
/// `salvage` found something missing, 2 if the command could not answer.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let output = Output { json: arguments.json };
    let answered = match &arguments.command {
        Command::Audit(run) => audit::audit(run, output),
        Command::Steps(run) => steps::steps(run, output),
        Command::History { run, group, tokens, color } => history::history(run, group, *tokens, *color, output),
        Command::Lineage { run, prompt } => lineage::lineage(run, prompt, output),
        Command::Timeline { run, output: file } => timeline::timeline(run, file, output),
        Command::Diff { one, other, accept_missing_head } => diff::diff(one, other, *accept_missing_head, output),
        Command::Tail { run, once, last, every } => tail::tail(run, *once, *last, *every, output),
        Command::WhatIf(arguments) => what_if::what_if(arguments, output),
        Command::Verify { run, events_only } => verify::verify(run, *events_only, output),
        Command::Report { run, to } => report::report(run, to, output),
        Command::Salvage { run, to } => salvage::salvage(run, to, output),
        Command::Export { run, to } => export::export(run, to.as_deref(), output),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "anabranch", &mut script);
            output::line(String::from_utf8_lossy(&script)).map(|_| ExitCode::SUCCESS)
        }
    };
    answered.unwrap_or_else(|error| {
        eprintln!("anabranch: {error:#}");
        ExitCode::from(2)
    })
}
