//! Journals that take their time, or fail: who waits for them, and who does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use anabranch_core::{Digest, Error, Event, EventKind, JournalError, MemoryJournal, WeightSync};
use anabranch_sim::{HashChain, Sim};
use anabranch_stream::{Capacity, InFlight, RolloutExt, Run, Samples, publish, tokio_clock};
use anabranch_testing::journals::{Intercepted, OnAppend};
use futures::{StreamExt, TryStreamExt};
use tokio::time::sleep;

use common::{dataset, ms};

mod common;

/// A run whose journal acknowledges `delay` after each append, and refuses everything once an event of the kind
/// `fails_at` came.
fn open(delay: Duration, fails_at: Option<&'static str>) -> (Run, Arc<MemoryJournal>) {
    let (memory, poisoned) = (Arc::new(MemoryJournal::new()), AtomicBool::new(false));
    let slow = move |events: &[Event]| {
        let fails = events.iter().any(|event| Some(event.kind.name()) == fails_at);
        if poisoned.fetch_or(fails, SeqCst) || fails {
            return OnAppend::Refuse(JournalError::new("no space left on the device"));
        }
        OnAppend::AcknowledgeAfter(delay)
    };
    let journal = Arc::new(Intercepted::new(memory.clone()).on_append(slow));
    (Run::builder("test").journal(journal).clock(tokio_clock()).open().unwrap(), memory)
}

/// When each event of a kind was recorded, in milliseconds.
fn times(journal: &MemoryJournal, kind: &str) -> Vec<u64> {
    let events = journal.events();
    events.iter().filter(|event| event.kind.name() == kind).map(|event| event.at / 1_000_000).collect()
}

#[tokio::test(start_paused = true)]
async fn a_slow_journal_holds_groups_back_but_not_generation() {
    let (run, journal) = open(ms(1000), None);
    let engine = Sim::fixed(1, ms(10));
    publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let began = run.now();
    let groups = run.prompts(dataset(4)).generate(&engine, InFlight::groups(9), Samples(1)).log(&run);
    let mut passed = Vec::new();
    let mut groups = Box::pin(groups);
    while let Some(group) = groups.try_next().await.unwrap() {
        passed.push((group.id.prompt.row, (run.now() - began) / 1_000_000));
    }
    assert_eq!(passed, [(0, 1010), (1, 1010), (2, 1010), (3, 1010)], "in order, each a second after its record");
    let began = began / 1_000_000;
    assert_eq!(times(&journal, "completed"), vec![began + 10; 4], "recorded as soon as they were complete");
}

#[tokio::test(start_paused = true)]
async fn admission_waits_for_no_disk_but_a_batch_does() {
    let (run, journal) = open(ms(1000), None);
    let engine = Sim::fixed(1, ms(10));
    publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let began = run.now() / 1_000_000;
    let groups = run.prompts(dataset(4)).generate(&engine, InFlight::groups(9), Samples(1));
    let mut batches = groups.buffer(Capacity::groups(9)).batch(2);
    assert_eq!(batches.next().await.unwrap().unwrap().groups.len(), 2);
    assert_eq!(run.now() / 1_000_000, began + 1010);
    assert_eq!(times(&journal, "admitted"), vec![began + 10; 4]);
    assert_eq!(times(&journal, "batch_taken"), [began + 10], "taken at once; yielded when that is durable");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_its_record_is_durable() {
    let (run, _) = open(ms(1000), None);
    let engine = Sim::fixed(1, ms(10));
    let publication = publish(&run, &engine, 0, Digest::default(), WeightSync::Retract);
    let watcher = async {
        sleep(ms(999)).await;
        engine.stats().installs.len()
    };
    let (publication, before) = futures::join!(publication, watcher);
    assert_eq!(before, 0);
    assert!(publication.is_ok());
    assert_eq!(engine.stats().installs.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failing_journal_ends_the_pipeline_wherever_it_strikes() {
    for kind in ["publishing", "completed", "admitted", "batch_taken", "stepped", "published", "run_closed"] {
        let (run, journal) = open(ms(0), Some(kind));
        let engine = Sim::fixed(1, ms(10));
        let learner = run.restore(HashChain::new(0)).unwrap();
        let groups = run.prompts(dataset(8)).generate(&engine, InFlight::groups(2), Samples(1)).log(&run);
        let mut steps = groups.buffer(Capacity::groups(4)).batch(2).train(learner).publish_every(1, &engine);
        let error = loop {
            match steps.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("{kind}: the failure was lost"),
            }
        };
        assert!(matches!(error, Error::Journal(_)), "{kind}: {error}");
        assert!(steps.next().await.is_none(), "{kind}");
        sleep(ms(100)).await;
        assert_eq!(engine.stats().running, 0, "{kind}");
        let closed = journal.events().iter().any(|event| matches!(event.kind, EventKind::RunClosed { .. }));
        assert!(!closed, "{kind}");
    }
}
