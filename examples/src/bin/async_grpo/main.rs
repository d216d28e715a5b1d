//! The demo: trains a tiny decoder from random weights on the sort4 task, with asynchronous GRPO.

mod arguments;
mod optimizer;
mod progress;
mod report;
mod sort4;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anabranch::policy::{Config, Device, DeviceChoice, EngineOptions, Policy, PolicyEngine, PolicyLearner};
use anabranch::prelude::*;
use anabranch::{Restored, Version};
use anyhow::{Context, Result};
use clap::Parser;

use crate::arguments::{Arguments, InFlightSamples, UnusedPrompts};
use crate::optimizer::adamw;
use crate::progress::Progress;
use crate::sort4::Sort4;

/// More epochs than any run needs: the run ends after its number of steps.
const EPOCHS: u32 = 1000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match demo(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn demo(arguments: &Arguments) -> Result<()> {
    let begun = Instant::now();
    let task = Arc::new(Sort4::open(&arguments.train, &arguments.held_out)?);
    let choice: DeviceChoice = arguments.device.parse().context("--device")?;
    let device = Device::open(choice).context("--device")?;
    let options = RunLog::options().accept_changes(arguments.accept_changes);
    let run = options
        .open(&arguments.run_dir, Durability::Process)
        .with_context(|| format!("--run-dir {}", arguments.run_dir.display()))?;
    let dir = arguments.run_dir.display();
    if run.metrics().gauges.step.0 >= arguments.steps {
        println!(
            "the run in {dir} has finished its {} steps: continue it with a larger --steps, or start a new run with --run-dir \
             DIR or after `rm -r {dir}`",
            run.metrics().gauges.step
        );
        return Ok(());
    }
    if run.found().session > 0 {
        println!("resuming the run in {dir}: {} steps recorded", run.metrics().gauges.step);
    }

    let policy = Policy::init(Config::tiny(task.vocabulary_size()), arguments.seed, &device)?;
    let engine = policy.engine(EngineOptions { max_len: Some(16), ..EngineOptions::default() })?;
    let mut learner = policy.learner(adamw())?;
    engine.install(learner.weights()?, Version(0)).await?;
    let before = task.accuracy(&engine).await?;
    println!(
        "{} | {} parameters | held-out accuracy {:.1}% before training",
        device.name(),
        policy.parameters().data().len(),
        100.0 * before
    );

    train(arguments, &run, &task, &engine, run.restore(learner)?).await?;
    let after = task.accuracy(&engine).await?;
    let steps = run.metrics().gauges.step;
    drop(run.finish());
    run.close()?;

    let wall = begun.elapsed().as_secs_f64();
    let last = format!(
        "accuracy {:.1}% -> {:.1}% | steps {steps} | wall {wall:.1}s | log {dir}",
        100.0 * before,
        100.0 * after
    );
    report::conclude(&arguments.run_dir, &last)
}

/// Runs the pipeline until its last step.
async fn train(
    arguments: &Arguments,
    run: &RunLog,
    task: &Arc<Sort4>,
    engine: &PolicyEngine,
    learner: Restored<PolicyLearner>,
) -> Result<()> {
    let unused = match arguments.unused {
        UnusedPrompts::Drop => Unused::Drop,
        UnusedPrompts::Retry => Unused::Retry { max_attempts: 3 },
    };
    let mode = match arguments.weight_sync {
        InFlightSamples::Retract => WeightSync::Retract,
        InFlightSamples::InPlace => WeightSync::InPlace,
        InFlightSamples::Drain => WeightSync::Drain,
        InFlightSamples::Abort => WeightSync::Abort,
    };
    let judge = task.clone();
    let groups = run
        .prompts(task.train.clone())
        .epochs(EPOCHS)
        .shuffle(arguments.seed)
        .unused(unused)
        .generate(engine, InFlight::groups(arguments.in_flight), Samples(arguments.group_size))
        .sampling(Sort4::sampling(1.0))
        .seed(arguments.seed)
        .score(move |response| judge.reward(&response.prompt.fields, response.response()))
        .admit("spread", |group| group.reward_spread() > 0.0)
        .log(run);
    // This operator alone makes the schedule asynchronous.
    let groups =
        if arguments.sync { groups.boxed() } else { groups.buffer(Capacity::groups(arguments.capacity)).boxed() };
    let mut steps = groups
        .fresh(MaxStaleness(arguments.max_staleness))
        .batch(arguments.batch)
        .train(learner)
        .checkpoint_every(arguments.checkpoint_every)
        .publish_every(arguments.update_interval, engine)
        .weight_sync(mode);

    let progress = Progress::new(run, arguments.steps, (!arguments.sync).then_some(arguments.capacity));
    while let Some(step) = steps.try_next().await? {
        progress.step(&step);
        if step.step.0 >= arguments.steps {
            break;
        }
    }
    progress.finish();
    Ok(())
}
