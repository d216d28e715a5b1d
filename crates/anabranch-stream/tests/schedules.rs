//! The two schedules: the same chain with and without `.buffer`, on a scripted engine in virtual time.

use std::time::Duration;

use anabranch_core::EventKind;
use anabranch_sim::{HashChain, Reply, Sim};
use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Samples};
use futures::{StreamExt, TryStreamExt};
use tokio::time::{Instant, sleep};

use common::{Laws, Recorded, dataset, ms};

mod common;

const TRAINING: Duration = ms(700);
const INSTALLATION: Duration = ms(40);
const BATCH: usize = 4;
const BATCHES: u64 = 6;

/// Group `row` takes as long as this.
fn generation(row: u32) -> Duration {
    ms(100 + 50 * (u64::from(row) * 7 % 11))
}

fn engine() -> Sim {
    let reply = |row: u32| Reply::tokens(5, generation(row) / 5);
    Sim::scripted(move |call| reply(call.request.tokens[0])).install_time(INSTALLATION)
}

/// Σ over batches of the slowest of its groups: all groups of a batch start together, with as many slots.
fn generation_of_batches() -> Duration {
    let rows: Vec<u32> = (0..BATCH as u32 * BATCHES as u32).collect();
    rows.chunks(BATCH).map(|rows| rows.iter().map(|&row| generation(row)).max().unwrap()).sum()
}

/// One chain; the schedules differ in one operator.
macro_rules! train {
    ($recorded:expr, $engine:expr $(, $buffer:ident($capacity:expr))?) => {{
        let (run, engine) = (&$recorded.run, $engine);
        let learner = run.restore(HashChain::new(0)).unwrap();
        let began = Instant::now();
        let steps: Vec<_> = run
            .prompts(dataset(BATCH as u32 * BATCHES as u32))
            .generate(engine, InFlight::groups(BATCH), Samples(2))
            .score(|_| 1.0)
            .log(run)
            $(.$buffer($capacity))?
            .fresh(MaxStaleness(6))
            .batch(BATCH)
            // The scripted training time passes here, because paused time does not advance while the learner's thread
            // runs.
            .then(|batch| async move {
                sleep(TRAINING).await;
                batch
            })
            .train(learner)
            .publish_every(1, engine)
            .try_collect()
            .await
            .unwrap();
        (steps, began.elapsed())
    }};
}

#[tokio::test(start_paused = true)]
async fn without_a_buffer_nothing_overlaps() {
    let (recorded, engine) = (Recorded::new(), engine());
    let (steps, makespan) = train!(recorded, &engine);
    assert_eq!(steps.len() as u64, BATCHES);
    let publications = INSTALLATION * (BATCHES as u32 + 1);
    assert_eq!(makespan, generation_of_batches() + TRAINING * BATCHES as u32 + publications);
    assert_eq!(recorded.gaps(), vec![0; BATCHES as usize]);
    Laws { batch: BATCH, limit: Some(0), buffered: false }.check(&recorded.events());
}

#[tokio::test(start_paused = true)]
async fn with_a_buffer_generation_runs_ahead() {
    let (synchronous, buffered) = (Recorded::new(), Recorded::new());
    let (_, slow) = train!(synchronous, &engine());
    let (steps, fast) = train!(buffered, &engine(), buffer(Capacity::groups(8)));
    assert_eq!(steps.len() as u64, BATCHES);
    assert!(fast < slow, "{fast:?} is not below {slow:?}");
    // The learner is busy without a break once the first batch is there: training is what is slow here.
    let first = generation_of_batches() / BATCHES as u32;
    assert!(fast < first * 2 + (TRAINING + INSTALLATION) * (BATCHES as u32 + 1), "{fast:?}");
    assert!(buffered.gaps().iter().any(|&gap| gap > 0), "{:?}", buffered.gaps());
    Laws { batch: BATCH, limit: Some(6), buffered: true }.check(&buffered.events());
}

#[tokio::test(start_paused = true)]
async fn when_a_batch_is_yielded_nothing_is_in_flight() {
    let (recorded, engine) = (Recorded::new(), engine());
    train!(recorded, &engine);
    let mut open = 0_i64;
    for event in recorded.events() {
        match event.kind {
            EventKind::Leased { .. } => open += 1,
            EventKind::BatchTaken { groups, .. } => {
                open -= groups.len() as i64;
                assert_eq!(open, 0, "at {}", event.seq);
            }
            _ => assert!(open <= BATCH as i64),
        }
    }
}
