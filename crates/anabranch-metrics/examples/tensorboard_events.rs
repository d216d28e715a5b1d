//! Trains on the scripted engine in two sessions and writes event files to the directory given; prints what TensorBoard
//! must then read, as JSON: for some tags the value at each step.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::{Batch, Dataset, Digest, Fields, Learner, LearnerError, MemoryJournal, Step, StepReport};
use anabranch_metrics::Metrics;
use anabranch_metrics::TensorBoard;
use anabranch_sim::{HashChain, Sim};
use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Run, Samples, Unused, tokio_clock};
use futures::{StreamExt, TryStreamExt};
use serde_json::json;

type Expected = BTreeMap<String, BTreeMap<u64, f64>>;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let dir = std::env::args().nth(1).ok_or_else(|| anyhow::anyhow!("usage: events DIR"))?;
    let dir = Path::new(&dir);
    let mut expected = Expected::new();
    // The second session is as if the first had got no further than step 7.
    session(dir, 0, 12, &mut expected).await?;
    for values in expected.values_mut() {
        values.retain(|step, _| *step <= 7);
    }
    session(dir, 7, 12, &mut expected).await?;
    // A writer of its own, and numbers that are none.
    let mut own = TensorBoard::create(dir.join("own"))?;
    own.write(3, &[("pi".to_owned(), std::f64::consts::PI), ("nan".to_owned(), f64::NAN)])?;
    println!("{}", json!({ "tags": expected }));
    Ok(())
}

/// Trains, and writes the steps after `from`.
async fn session(dir: &Path, from: u64, steps: usize, expected: &mut Expected) -> anyhow::Result<()> {
    let run = Run::builder("board").journal(Arc::new(MemoryJournal::new())).clock(tokio_clock()).open()?;
    let engine = Sim::random(3, 2..=20, 1..=9).install_time(Duration::from_millis(5));
    let rows = (0..200).map(|row| (vec![row], Fields::new())).collect();
    let mut board = TensorBoard::create(dir.join("run"))?;
    let trained = run
        .prompts(Dataset::new("d", rows)?)
        .unused(Unused::Retry { max_attempts: 2 })
        .generate(&engine, InFlight::groups(4), Samples(2))
        .score(|response| response.response().len() as u32)
        .buffer(Capacity::groups(8))
        .fresh(MaxStaleness(1))
        .batch(4)
        .then(|batch| async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            batch
        })
        .train(run.restore(Measured(HashChain::new(0)))?)
        .publish_every(1, &engine);
    let mut trained = trained.take(steps);
    while let Some(step) = trained.try_next().await? {
        let metrics = run.metrics();
        if step.step.0 > from {
            board.step(&step, &metrics)?;
            expect(&step, &metrics, expected);
        }
    }
    Ok(())
}

fn expect(step: &Step, metrics: &Metrics, expected: &mut Expected) {
    let Metrics { counters, gauges, histograms, .. } = metrics;
    let stale = counters.excluded.get("stale").map(|&count| count as f64);
    let values = [
        ("step/reward_mean", step.reward_mean),
        ("step/gap_mean", step.gap_mean),
        ("step/waited_seconds", Some(step.waited.as_secs_f64())),
        ("step/paused_seconds", Some(step.paused.as_secs_f64())),
        ("anabranch_loss", Some(step.loss)),
        ("anabranch_effective_sample_size", Some(1.0 / step.step.0 as f64)),
        ("anabranch_learner/entropy", Some(step.step.0 as f64)),
        ("anabranch_consumed_total", Some(counters.consumed as f64)),
        ("anabranch_excluded_total/stale", stale),
        ("anabranch_version", gauges.version.map(|version| version.0 as f64)),
        ("anabranch_queue_size", gauges.queue.map(|groups| groups as f64)),
        ("anabranch_buffered_gap_mean", gauges.buffered_gap.mean()),
        ("anabranch_gap/consumed/mean", histograms.consumed.gap.mean()),
        ("anabranch_gap/excluded/max", histograms.excluded.gap.max().map(|gap| gap as f64)),
        ("anabranch_learner_wait_seconds/mean", histograms.learner_wait.mean().map(|wait| wait / 1e9)),
    ];
    for (tag, value) in values {
        let of_tag = expected.entry(tag.to_owned()).or_default();
        of_tag.extend(value.map(|value| (step.step.0, value)));
    }
}

/// A chain that measures something: one over its step, and its step.
#[derive(Debug)]
struct Measured(HashChain);

impl Learner for Measured {
    type Weights = u64;

    fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError> {
        let mut report = self.0.step(batch)?;
        let step = batch.step.0 as f64;
        report.metrics.extend([("ess".to_owned(), 1.0 / step), ("entropy".to_owned(), step)]);
        Ok(report)
    }

    fn weights(&mut self) -> Result<u64, LearnerError> {
        self.0.weights()
    }

    fn digest(&mut self) -> Result<Digest, LearnerError> {
        self.0.digest()
    }

    fn save(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.0.save(dir)
    }

    fn load(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.0.load(dir)
    }
}
