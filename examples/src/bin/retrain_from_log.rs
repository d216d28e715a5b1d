//! Trains a learner again from the log of an `async_grpo` run: without engine, dataset or reward function. On the same
//! device and build the weights are equal after every step; if not, the program names the first step that differs.

#[path = "async_grpo/optimizer.rs"]
mod optimizer;

use std::path::PathBuf;
use std::process::ExitCode;

use anabranch::policy::{Device, DeviceChoice, Policy};
use anabranch::prelude::*;
use anabranch::replay::recompute;
use anabranch::{ReadLog, replay_log, retrain};
use anyhow::{Context, Result};
use clap::Parser;

/// Train again from the log of an async_grpo run and compare the weights after every step.
#[derive(Debug, Parser)]
#[command(name = "retrain_from_log")]
struct Arguments {
    /// Directory of the run
    #[arg(long, default_value = "runs/demo")]
    run_dir: PathBuf,
    /// Where to compute; the weights are equal bit for bit only on the device that made the run
    #[arg(long, default_value = "auto")]
    device: String,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match again(&Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn again(arguments: &Arguments) -> Result<ExitCode> {
    let choice: DeviceChoice = arguments.device.parse().context("--device")?;
    let device = Device::open(choice).context("--device")?;
    let log = ReadLog::open(&arguments.run_dir).context("--run-dir")?;
    let schedule = recompute(&log.events().collect::<Result<Vec<_>, _>>()?)?;
    println!("the schedule computed again from the log equals the recorded one: {} batches", schedule.batches);

    // Checkpoint 0 holds the initial weights; a run always keeps it.
    let past = log.resume_state()?;
    let begun = past.checkpoints.iter().find(|checkpoint| checkpoint.cursor.step.0 == 0);
    let begun = begun.context("the run has no checkpoint of step 0")?;
    let mut learner = Policy::read(&begun.path, &device)?.learner(optimizer::adamw())?;
    learner.load(&begun.path)?;

    let mut steps = std::pin::pin!(retrain(replay_log(log.events(), |id| log.payload(id)), learner));
    let mut count = 0;
    while let Some(step) = steps.try_next().await? {
        if let Some(recorded) = step.recorded.filter(|_| !step.is_equal()) {
            println!(
                "step {} is the first that differs: found weights {}, expected {recorded}",
                step.step, step.weights
            );
            return Ok(ExitCode::FAILURE);
        }
        count += 1;
    }
    println!("{count} steps trained again from the log; the weights are equal after every step");
    Ok(ExitCode::SUCCESS)
}
