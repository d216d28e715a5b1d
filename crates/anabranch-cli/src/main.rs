//! `anabranch`: audit, explain, verify and export recorded runs.
//!
//! Exit status: 0 where all is well, 1 where `verify` found something wrong or `salvage` something missing, 2 where the question could not be answered.

mod arguments;
mod audit;
mod export;
mod history;
mod output;
mod report;
mod salvage;
mod source;
mod utc;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use output::Output;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let output = Output { json: arguments.json };
    let answered = match &arguments.command {
        Command::Audit(run) => audit::audit(run, output),
        Command::History { run, group } => history::history(run, group, output),
        Command::Verify(run) => verify::verify(run, output),
        Command::Report { run, to } => report::report(run, to, output),
        Command::Salvage { run, to } => salvage::salvage(run, to, output),
        Command::Export { run, to } => export::export(run, to.as_deref(), output),
    };
    answered.unwrap_or_else(|error| {
        eprintln!("anabranch: {error:#}");
        ExitCode::from(2)
    })
}
