//! Exports the metrics of a run to Prometheus: runs a short pipeline on the scripted engine, then prints the text that a
//! scrape would get.
//!
//! ```sh
//! cargo run --release -p anabranch-examples --bin prometheus
//! ```
//!
//! To serve the metrics over HTTP, use the exporter's feature `http-listener` and
//! `PrometheusBuilder::with_http_listener`. `docs/metrics.md` explains each metric.

use std::time::Duration;

use anabranch::prelude::*;
use anabranch::sim::{HashChain, Reply, Sim};
use anabranch::{COUNT_BOUNDS, Fields, second_bounds};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Install the recorder before opening the run: a run uses the recorder that is installed when it opens.
    let prometheus = PrometheusBuilder::new()
        .set_buckets(&COUNT_BOUNDS.map(|bound| bound as f64))?
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &second_bounds())?
        .install_recorder()?;

    let run = Run::in_memory();
    let engine = Sim::scripted(|call| {
        let drawn = call.request.key.lease ^ u64::from(call.request.key.sample);
        Reply::tokens(1 + drawn as u32 % 12, Duration::from_millis(drawn >> 32 & 3))
    });
    let rows = (0..400).map(|row| (vec![row], Fields::new())).collect();
    let steps = run
        .prompts(Dataset::new("numbers", rows)?)
        .unused(Unused::Retry { max_attempts: 2 })
        .generate(&engine, InFlight::groups(8), Samples(4))
        .score(|response| f64::from(response.response().len() as u32))
        .admit("long", |group| group.reward_mean() > Some(3.0))
        .buffer(Capacity::groups(16))
        .fresh(MaxStaleness(1))
        .batch(4)
        // The duration of a training step.
        .then(|batch| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            batch
        })
        .train(run.restore(HashChain::new(1))?)
        .publish_every(1, &engine)
        .take(25);
    let mut steps = std::pin::pin!(steps);
    while let Some(step) = steps.try_next().await? {
        eprintln!("{step}");
    }

    // Gauges that change without an event are updated here. Do this before every scrape, or accept that they are one step
    // behind.
    run.metrics();
    print!("{}", prometheus.render());
    Ok(())
}
