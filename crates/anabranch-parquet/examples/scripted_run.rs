//! A run on the scripted engine, sealed into a Parquet folder: stale, filtered, aborted and retried groups are in it.
//!
//! usage: `scripted_run FOLDER [STEPS]`
//!
//! The engine, the rewards and the learner follow a script in virtual time. Two runs differ in their wall times, and in
//! which comes first where a token and a publication fall on one moment.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anabranch_core::{
    Batch, BoxError, Dataset, Digest, Fields, Journal, Learner, LearnerError, MemoryJournal, Past, Run, Sampling, Seq,
    StepReport, Unused,
};
use anabranch_engine::{Chunking, End, HashChain, Reply, Sim};
use anabranch_parquet::Segments;
use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Samples, tokio_timer};
use futures::{StreamExt, TryStreamExt};

const ROWS: u32 = 400;
const SAMPLES: u32 = 4;
/// The step at which the script has learned all it will.
const LEARNED: f64 = 60.0;

/// A share that depends on `state` alone (`SplitMix64`).
fn share(state: u64) -> f64 {
    let mut state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((state ^ (state >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Responses take longer than a step now and then, and one in fifty is given up.
fn engine() -> Sim {
    Sim::scripted(|call| {
        let key = call.request.key;
        let drawn = |what: u64| share(key.lease ^ (u64::from(key.sample) << 40) ^ (what << 50));
        let tokens = 6 + (drawn(1).powi(3) * 50.0) as usize;
        let each = Duration::from_millis(8 + (drawn(2) * 12.0) as u64);
        let end = if drawn(3) < 0.02 { End::Abort("given up by the script".to_owned()) } else { End::Stop };
        Reply::timed(vec![each; tokens]).ending(end)
    })
    .chunking(Chunking::Token)
    .install_time(Duration::from_millis(25))
}

/// How much of the task is learned after `steps`.
fn skill(steps: u64) -> f64 {
    (steps as f64 / LEARNED).min(1.0)
}

/// A learner whose measures follow a script, and whose weights tell what it was trained on.
struct Scripted {
    chain: HashChain,
    steps: Arc<AtomicU64>,
}

impl Learner for Scripted {
    type Weights = u64;

    fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError> {
        let mut report = self.chain.step(batch)?;
        let noise = share(batch.step.0 << 8) - 0.5;
        let gap = batch.gap_mean.unwrap_or_default();
        report.loss = 0.4 * (1.0 - 0.8 * skill(batch.step.0)) + 0.06 * noise;
        report.metrics.insert("ess".to_owned(), 1.0 / (1.0 + 0.2 * gap) - 0.02 * (noise + 0.5));
        report.metrics.insert("entropy".to_owned(), 2.0 - 1.5 * skill(batch.step.0) + 0.1 * noise);
        self.steps.store(batch.step.0, Ordering::Relaxed);
        Ok(report)
    }

    fn weights(&mut self) -> Result<u64, LearnerError> {
        self.chain.weights()
    }

    fn digest(&mut self) -> Result<Digest, LearnerError> {
        self.chain.digest()
    }

    fn save(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.chain.save(dir)
    }

    fn load(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.chain.load(dir)
    }
}

async fn record(steps: usize) -> Result<Arc<MemoryJournal>, BoxError> {
    let journal = Arc::new(MemoryJournal::starting_at(Seq(0)));
    let run = &Run::new("scripted", journal.clone(), Past::default(), tokio_timer(), Fields::new(), false);
    let engine = engine();
    let made = Arc::new(AtomicU64::new(0));
    let learner = run.restore(Scripted { chain: HashChain::new(0), steps: made.clone() })?;
    let rows = (0..ROWS).map(|row| (vec![row % 10, row / 10], Fields::from([("answer".to_owned(), row.into())])));
    let mut trained =
        run.prompts(Dataset::new("script", rows.collect())?)
            .epochs(1000)
            .shuffle(7)
            .unused(Unused::Retry { max_attempts: 3 })
            .generate(&engine, InFlight::groups(8), Samples(SAMPLES))
            .sampling(Sampling { max_tokens: 64, ..Sampling::default() })
            .seed(7)
            .score(move |response| {
                let drawn = response.response().iter().fold(response.prompt.id.row, |state, &token| {
                    state.wrapping_mul(31).wrapping_add(u64::from(token))
                });
                // Four parts, each right by skill or by luck.
                let right = |part: &u64| share(drawn ^ (part << 60)) < 0.1 + 0.8 * skill(made.load(Ordering::Relaxed));
                (0..4).filter(right).count() as f64 / 4.0
            })
            .admit("spread", |group| group.reward_spread() > 0.0)
            .log(run)
            .buffer(Capacity::groups(8))
            .fresh(MaxStaleness(2))
            .batch(6)
            .then(|batch| async {
                // Now and then a step takes long, as where a checkpoint is written.
                let step = batch.as_ref().map_or(0, |batch| batch.step.0);
                let slow = if step.is_multiple_of(12) { 900.0 } else { 0.0 };
                tokio::time::sleep(Duration::from_millis((260.0 + 240.0 * share(step) + slow) as u64)).await;
                batch
            })
            .train(learner)
            .publish_every(1, &engine)
            .take(steps);
    while trained.try_next().await?.is_some() {}
    drop(trained);
    run.finish();
    Ok(journal)
}

fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().ok_or("usage: scripted_run FOLDER [STEPS]")?;
    let steps = arguments.next().map_or(Ok(30), |steps| steps.to_string_lossy().parse())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let journal = runtime.block_on(record(steps))?;
    let mut segments = Segments::open(Path::new(&folder))?;
    let events = journal.events();
    segments.seal_all(events.into_iter().map(Ok::<_, std::io::Error>), |id| Ok(journal.payload(id)?))?;
    Ok(())
}
