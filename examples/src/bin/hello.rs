//! Trains a scripted learner on a scripted engine with the whole chain of operators. Time is virtual, so that each run
//! prints the same lines.
//!
//! ```text
//! step    1  reward 0.375  loss +0.5000  gap 0.00 (max 0)  v1  waited 0.14s  trained 0.00s  paused 0.000s
//! step    2  reward 0.625  loss +0.3333  gap 1.00 (max 1)  v2  waited 0.08s  trained 0.00s  paused 0.000s
//! step    3  reward 0.500  loss +0.2500  gap 1.00 (max 1)  v3  waited 0.05s  trained 0.00s  paused 0.000s
//! step    4  reward 0.562  loss +0.2000  gap 0.25 (max 1)  v4  waited 0.13s  trained 0.00s  paused 0.000s
//! ```

use anabranch::prelude::*;
use anabranch::sim::{HashChain, Sim};
use anabranch::{Fields, tokio_clock};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let run = Run::builder("hello").clock(tokio_clock()).open()?;
    let engine = Sim::random(7, 1..=9, 5..=20); // 1 to 9 tokens, each after 5 to 20 ms
    let rows = (0..24).map(|row| (vec![row], Fields::new())).collect();

    let mut steps = run
        .prompts(Dataset::new("numbers", rows)?)
        .generate(&engine, InFlight::groups(4), Samples(4))
        .score(|response| response.response().len() > 4)
        .admit("spread", |group| group.reward_spread() > 0.0)
        .log(&run)
        .buffer(Capacity::groups(8))
        .fresh(MaxStaleness(1))
        .batch(4)
        .train(run.restore(HashChain::new(1))?)
        .publish_every(1, &engine);

    while let Some(step) = steps.try_next().await? {
        println!("{step}");
    }
    Ok(())
}
