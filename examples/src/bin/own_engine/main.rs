//! Implements an engine and generates on it while new weights are published. Each sample keeps the version of every
//! token.
//!
//! The first table counts up and the second counts down. With `Retract`, a sample in flight continues under the new
//! table; with `Drain` it ends first; with `Abort` it is given up.
//!
//! ```text
//! retract
//!   0 -> 123 by v0, 210 by v1 (Truncated)
//!   5 -> 678 by v0, 765 by v1 (Truncated)
//! drain
//!   0 -> 123456 by v0 (Truncated)
//!   5 -> 678901 by v0 (Truncated)
//! abort
//!   0 -> 123 by v0 (Aborted)
//!   5 -> 678 by v0 (Aborted)
//! ```

mod engine;
mod table;

use anabranch::prelude::*;
use anabranch::{Fields, Rollout, Sample, publish, tokio_clock};

use engine::{TOKEN_TIME, TableEngine};
use table::{DIGITS, Table};

/// A table that adds `difference` to the last digit, nearly always.
fn counting_by(difference: usize) -> Table {
    let mut table = Table::default();
    for (last, logits) in table.0.iter_mut().enumerate() {
        logits[(last + difference) % DIGITS] = 9.0;
    }
    table
}

/// The digits that each version wrote.
fn shown(sample: &Sample) -> String {
    let digits: String = sample.response().iter().map(u32::to_string).collect();
    let spans = sample.spans.iter().filter_map(|span| {
        Some(format!("{} by {}", &digits[span.start as usize..span.end as usize], span.version.lowest()?))
    });
    spans.collect::<Vec<_>>().join(", ")
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    for mode in [WeightSync::Retract, WeightSync::Drain, WeightSync::Abort] {
        let run = Run::builder("own_engine").clock(tokio_clock()).open()?;
        let engine = TableEngine::new();
        let (up, down) = (counting_by(1), counting_by(DIGITS - 1));
        publish(&run, &engine, up.clone(), up.digest(), mode).await?;

        let rows = [0, 5].map(|digit| (vec![digit], Fields::new()));
        let groups = run
            .prompts(Dataset::new("digits", rows.to_vec())?)
            .generate(&engine, InFlight::groups(2), Samples(1))
            .sampling(Sampling { max_tokens: 6, ..Sampling::default() });
        let publishing = async {
            tokio::time::sleep(TOKEN_TIME * 7 / 2).await;
            publish(&run, &engine, down.clone(), down.digest(), mode).await
        };
        let (groups, _) = futures::try_join!(groups.try_collect::<Vec<Rollout>>(), publishing)?;

        println!("{}", mode.name());
        for sample in groups.iter().flat_map(|group| &group.samples) {
            println!("  {} -> {} ({:?})", sample.tokens[0], shown(sample), sample.status);
        }
    }
    Ok(())
}

/// What every engine must do. Tests like these suit any engine.
#[cfg(test)]
mod tests {
    use anabranch::{Chunk, EngineError, Finish, Request, SamplingKey, SpanVersion};
    use futures::FutureExt;

    use super::*;

    fn request(max_tokens: u32) -> Request {
        let sampling = Sampling { max_tokens, ..Sampling::default() };
        Request { id: "test".to_owned(), tokens: vec![0], position: 0, sampling, key: SamplingKey::default() }
    }

    async fn engine() -> TableEngine {
        let engine = TableEngine::new();
        engine.install(counting_by(1), Version(0)).await.unwrap();
        engine.resume().await.unwrap();
        engine
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_runs_without_being_polled() {
        let chunks = engine().await.generate(request(6));
        tokio::time::sleep(TOKEN_TIME * 7).await;
        let chunks: Vec<Chunk> = chunks.try_collect().now_or_never().expect("everything is there").unwrap();
        assert_eq!((chunks.len(), chunks[5].finish.clone()), (6, Some(Finish::Length)));
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_stream_cancels_the_request() {
        let engine = engine().await;
        let chunks = engine.generate(request(1_000_000));
        tokio::time::sleep(TOKEN_TIME).await;
        drop(chunks);
        let began = tokio::time::Instant::now();
        engine.pause(WeightSync::Drain).await.unwrap();
        assert!(began.elapsed() <= TOKEN_TIME, "nothing is left to drain");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sampled_during_a_pause_and_calls_may_be_repeated() {
        let engine = engine().await;
        let mut chunks = engine.generate(request(6));
        chunks.try_next().await.unwrap();
        for _ in 0..2 {
            engine.pause(WeightSync::Retract).await.unwrap();
        }
        tokio::time::sleep(TOKEN_TIME * 100).await;
        assert!(chunks.try_next().now_or_never().is_none());
        engine.install(counting_by(2), Version(1)).await.unwrap();
        for _ in 0..2 {
            engine.resume().await.unwrap();
        }
        let chunk = chunks.try_next().await.unwrap().unwrap();
        assert_eq!(chunk.version, SpanVersion::Exact(Version(1)));
    }

    #[tokio::test]
    async fn a_request_that_the_engine_cannot_serve_is_refused() {
        let mut bad = request(1);
        bad.tokens = vec![10];
        let error: Result<Vec<Chunk>, EngineError> = engine().await.generate(bad).try_collect().await;
        assert!(error.unwrap_err().to_string().contains("found Some(10)"));
    }
}
