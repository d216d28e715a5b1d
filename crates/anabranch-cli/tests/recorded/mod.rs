//! Records a pipeline on a scripted engine in virtual time into a Parquet folder, as `export` would.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::{Dataset, Event, Fields, Journal, MemoryJournal, Seq};
use anabranch_parquet::Segments;
use anabranch_sim::{Chunking, End, HashChain, Reply, Sim};
use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Run, Samples, Unused, tokio_clock};
use futures::{StreamExt, TryStreamExt};
use tokio::time::sleep;

/// The capacity of the recorded run's buffer, its limit on gaps, and its update interval.
pub const CAPACITY: u64 = 6;
pub const LIMIT: u64 = 1;
pub const INTERVAL: u64 = 1;

/// Records a run of 80 prompts into the Parquet folder `folder` and returns its events.
pub fn seal(folder: &Path, limit: u64, change: impl FnOnce(&mut Vec<Event>)) -> Vec<Event> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let journal = Arc::new(MemoryJournal::starting_at(Seq(0)));
    runtime.block_on(play(&journal, limit));
    let mut events = journal.events();
    change(&mut events);
    let mut segments = Segments::open(folder).unwrap();
    segments.seal(&events, |id| Ok(journal.payload(id)?)).unwrap();
    events
}

fn mix(mut state: u64) -> u64 {
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

async fn play(journal: &Arc<MemoryJournal>, limit: u64) {
    let ms = Duration::from_millis;
    let run = &Run::builder("test").journal(journal.clone()).clock(tokio_clock()).open().unwrap();
    // Times are drawn from a wide range, so that no two moments fall together.
    let engine = Sim::scripted(move |call| {
        let drawn = mix(call.request.key.lease ^ mix(u64::from(call.request.key.sample)));
        let end = if drawn.is_multiple_of(19) { End::Abort("script".to_owned()) } else { End::Stop };
        let time = |token: u64| ms(1 + mix(drawn ^ mix(token + 1)) % 100_000);
        Reply::timed((0..=(drawn >> 8) % 6).map(time).collect()).ending(end)
    })
    .chunking(Chunking::Token)
    .install_time(ms(17_001));
    let learner = run.restore(HashChain::new(0)).unwrap();
    let rows = (0..80).map(|row| (vec![row, row + 1], Fields::new())).collect();
    run.prompts(Dataset::new("d", rows).unwrap())
        .unused(Unused::Retry { max_attempts: 2 })
        .generate(&engine, InFlight::groups(4), Samples(2))
        .sampling(anabranch_core::Sampling { max_tokens: 100, ..Default::default() })
        .score(|response| response.response().len() as f64 / 8.0)
        .admit("most", |group| group.id.prompt.row % 9 != 1)
        .log(run)
        .buffer(Capacity::groups(CAPACITY as usize))
        .fresh(MaxStaleness(limit))
        .batch(4)
        .then(move |batch| async move {
            sleep(ms(250_003)).await;
            batch
        })
        .train(learner)
        .publish_every(INTERVAL, &engine)
        .try_collect::<Vec<_>>()
        .await
        .unwrap();
}
