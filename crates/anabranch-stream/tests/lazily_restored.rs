//! A run resumed with many completed groups reads their payloads one by one, as room is made for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anabranch_core::{Digest, Error, GroupId, MemoryJournal, WeightSync};
use anabranch_metrics::Meter;
use anabranch_sim::Sim;
use anabranch_stream::{Capacity, InFlight, Rollout, RolloutExt, Run, Samples, publish, tokio_clock};
use anabranch_testing::journals::Intercepted;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::time::sleep;

use common::{dataset, ms};

mod common;

const LEFT: usize = 300;
const CAPACITY: usize = 5;

/// A run whose first session completed this many groups and took none; half of them were admitted. The counter is that
/// of the payloads that are read.
async fn left(groups: usize) -> (Run, Arc<AtomicUsize>, Sim) {
    let (memory, read) = (Arc::new(MemoryJournal::new()), Arc::new(AtomicUsize::new(0)));
    let counter = read.clone();
    let counted = move |_: &GroupId| {
        counter.fetch_add(1, Relaxed);
    };
    let journal = Arc::new(Intercepted::new(memory.clone()).on_payload(counted));
    let engine = Sim::fixed(3, ms(1));
    let run = Run::builder("test").journal(journal.clone()).clock(tokio_clock()).open().unwrap();
    publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let made = run.prompts(dataset(LEFT as u32)).generate(&engine, InFlight::groups(50), Samples(1)).log(&run);
    let mut made = made.buffer(Capacity::groups(groups / 2));
    assert!(made.next().now_or_never().is_none());
    let mut last = 0;
    loop {
        sleep(ms(100)).await;
        let completed = run.metrics().counters.completed;
        if completed == last {
            break;
        }
        last = completed;
    }
    drop(made);
    let past = anabranch_core::resume(memory.events()).unwrap();
    assert!(past.queued.len() > groups / 2, "{} were completed", past.queued.len());
    let run = Run::builder("test")
        .journal(journal.clone())
        .resume(past, Meter::of(&memory.events()))
        .clock(tokio_clock())
        .accept_changes(true)
        .open()
        .unwrap();
    publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    assert_eq!(read.load(Relaxed), 0, "opening reads none");
    (run, read, engine)
}

type Groups = BoxStream<'static, Result<Rollout, Error>>;

#[tokio::test(start_paused = true)]
async fn no_more_payloads_are_read_than_the_buffer_holds() {
    let chains: [fn(Groups, Run) -> Groups; 4] = [
        |groups, _| groups,
        |groups, run| groups.log(&run).boxed(),
        |groups, run| groups.score(|_| 1.0).admit("all", |_| true).log(&run).boxed(),
        |groups, run| groups.score_async(|_| async { Ok::<_, String>(1.0) }).log(&run).boxed(),
    ];
    for (chain, index) in chains.into_iter().zip(0..) {
        let (run, payloads, engine) = left(LEFT).await;
        let groups = run.prompts(dataset(LEFT as u32)).generate(&engine, InFlight::groups(50), Samples(1)).boxed();
        let mut groups = chain(groups, run.clone()).buffer(Capacity::groups(CAPACITY));
        assert!(groups.next().now_or_never().is_none());
        sleep(ms(500)).await;
        for taken in 0..20 {
            let read = payloads.load(Relaxed);
            assert!(
                (CAPACITY + taken..=CAPACITY + taken + 3).contains(&read),
                "chain {index}: {read} for {taken} taken"
            );
            groups.next().await.unwrap().unwrap();
            sleep(ms(5)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_a_buffer_reads_what_it_takes() {
    let (run, payloads, engine) = left(LEFT).await;
    let groups = run.prompts(dataset(LEFT as u32)).generate(&engine, InFlight::groups(50), Samples(1)).log(&run);
    let mut batches = groups.batch(4);
    for taken in 1..=10 {
        batches.next().await.unwrap().unwrap();
        let read = payloads.load(Relaxed);
        assert!((4 * taken..=4 * taken + 1).contains(&read), "{read} for {taken} batches");
    }
}
