//! Measures the accuracy on held-out prompts before, during and after training, on the engine that also trains.
//! `run.evaluation()` gives the evaluation the engine to itself: all of it runs on one version, and training continues
//! afterwards.
//!
//! ```text
//! before   accuracy 0.00
//! step 12  accuracy 1.00
//! step 24  accuracy 1.00
//! step 36  accuracy 1.00
//! step 48  accuracy 1.00
//! after    accuracy 1.00
//! ```

#[path = "own_engine/engine.rs"]
mod engine;
#[path = "own_learner/learner.rs"]
mod learner;
#[path = "own_engine/table.rs"]
mod table;

use anabranch::prelude::*;
use anabranch::{Fields, Response, Rollout, tokio_clock};

use engine::TableEngine;
use learner::Reinforce;
use table::DIGITS;

/// Prompts of two digits, such as `3 4` and `8 7`. Every fifth is held out.
fn prompts(name: &str, held_out: bool) -> anyhow::Result<Dataset> {
    let pairs = (0..100).filter(|pair| (pair % 5 == 0) == held_out);
    Ok(Dataset::new(name, pairs.map(|pair| (vec![pair / 10, pair % 10], Fields::new())).collect())?)
}

/// The share of the response's digits that are one less than the digit before.
fn counts_down(response: Response<'_>) -> f64 {
    let pairs = response.tokens[response.prompt_len as usize - 1..].windows(2);
    let right = pairs.filter(|pair| (pair[1] + 1) % DIGITS as u32 == pair[0]).count();
    right as f64 / response.response().len() as f64
}

/// Evaluates greedily on a run of its own, so that the log of `run` has no groups of the evaluation.
async fn evaluate(run: &Run, engine: &TableEngine, held_out: &Dataset) -> anyhow::Result<f64> {
    // Submissions and publications of `run` wait until this is dropped.
    let _evaluation = run.evaluation().await;
    let own = Run::builder("evaluation").clock(tokio_clock()).open()?;
    let groups: Vec<Rollout> = own
        .prompts(held_out.clone())
        .generate(engine, InFlight::groups(20), Samples(1))
        .sampling(Sampling { temperature: 0.0, max_tokens: 3, ..Sampling::default() })
        .score(counts_down)
        .try_collect()
        .await?;
    let right: f64 = groups.iter().filter_map(|group| group.reward_mean()).sum();
    Ok(right / groups.len() as f64)
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let run = Run::builder("evaluate").clock(tokio_clock()).open()?;
    let (engine, mut learner) = (TableEngine::new(), Reinforce::default());
    let held_out = prompts("held out", true)?;

    // Training installs the first weights itself; an evaluation before it needs them earlier.
    engine.install(learner.weights()?, Version(0)).await?;
    engine.resume().await?;
    println!("before   accuracy {:.2}", evaluate(&run, &engine, &held_out).await?);

    let mut steps = run
        .prompts(prompts("training", false)?)
        .epochs(6)
        .shuffle(1)
        .generate(&engine, InFlight::groups(10), Samples(8))
        .sampling(Sampling { max_tokens: 3, ..Sampling::default() })
        .seed(1)
        .score(counts_down)
        .log(&run)
        .buffer(Capacity::groups(10))
        .fresh(MaxStaleness(2))
        .batch(10)
        .train(run.restore(learner)?)
        .publish_every(1, &engine);
    while let Some(step) = steps.try_next().await? {
        if step.step.0.is_multiple_of(12) {
            println!("step {:>2}  accuracy {:.2}", step.step.0, evaluate(&run, &engine, &held_out).await?);
        }
    }
    println!("after    accuracy {:.2}", evaluate(&run, &engine, &held_out).await?);
    Ok(())
}
