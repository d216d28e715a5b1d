//! Compares the two schedules of one chain, with and without `.buffer`, on a scripted engine in virtual time, and runs
//! verification and audit on both logs.

use std::sync::Arc;
use std::time::Duration;

use anabranch::prelude::*;
use anabranch::replay::{audit, verify};
use anabranch::sim::{HashChain, Reply, Sim};
use anabranch::{Event, Fields, MemoryJournal, tokio_clock};
use tokio::time::{Instant, sleep};

const BATCH: usize = 4;
const BATCHES: u32 = 8;
const TRAINING: Duration = Duration::from_millis(600);
const INSTALLATION: Duration = Duration::from_millis(50);

/// How long group `row` takes.
fn generation(row: u32) -> Duration {
    Duration::from_millis(u64::from(200 + 25 * (row * 5 % 13)))
}

/// The events of one run of the chain, and how long it took.
async fn schedule(buffered: bool) -> (Vec<Event>, Duration) {
    let journal = Arc::new(MemoryJournal::new());
    let run = Run::builder("schedules").journal(journal.clone()).clock(tokio_clock()).open().unwrap();
    let engine = Sim::scripted(|call| Reply::tokens(1, generation(call.request.tokens[0]))).install_time(INSTALLATION);
    let learner = run.restore(HashChain::new(0)).expect("a new run");
    let rows = (0..BATCH as u32 * BATCHES).map(|row| (vec![row], Fields::new())).collect();
    let began = Instant::now();
    let groups = run
        .prompts(Dataset::new("d", rows).expect("rows"))
        .generate(&engine, InFlight::groups(BATCH), Samples(2))
        .score(|response| response.reward.is_none())
        .admit("all", |_| true)
        .log(&run);
    let groups = if buffered { groups.buffer(Capacity::groups(BATCH)).boxed() } else { groups.boxed() };
    let steps: Vec<Step> = groups
        .fresh(MaxStaleness(8))
        .batch(BATCH)
        // The scripted training time passes here, because paused time does not advance while the learner's thread runs.
        .then(|batch| async {
            sleep(TRAINING).await;
            batch
        })
        .train(learner)
        .publish_every(1, &engine)
        .try_collect()
        .await
        .expect("no error");
    assert_eq!(steps.len(), BATCHES as usize);
    (journal.events(), began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn the_buffer_is_the_whole_difference_between_the_schedules() {
    let (synchronous, slow) = schedule(false).await;
    let (overlapping, fast) = schedule(true).await;

    let rows: Vec<u32> = (0..BATCH as u32 * BATCHES).collect();
    let slowest = |batch: &[u32]| batch.iter().map(|&row| generation(row)).max().unwrap_or_default();
    let generation: Duration = rows.chunks(BATCH).map(slowest).sum();
    assert_eq!(slow, generation + TRAINING * BATCHES + INSTALLATION * (BATCHES + 1), "nothing overlaps");
    // Except for the first batch, generation happens during training. Publications stop both.
    let least = slowest(&rows[..BATCH]) + TRAINING * BATCHES + INSTALLATION * (BATCHES + 1);
    assert!(fast >= least && fast < slow, "{least:?} <= {fast:?} < {slow:?}");

    for events in [&synchronous, &overlapping] {
        let report = verify(events);
        assert!(report.is_clean(), "{report}");
    }
    let (synchronous, overlapping) = (audit(&synchronous), audit(&overlapping));
    assert_eq!(synchronous.gap.consumed.max(), Some(0), "without a buffer every gap is 0");
    assert!(overlapping.gap.consumed.max() > Some(0), "with one, generation runs ahead");
}
