//! Adaptors of `tokio-stream` between the operators of a chain: items carry all that the operators need, so that whatever
//! passes them on may stand anywhere before `.train`.
//!
//! `futures` and `tokio-stream` both have a trait named `StreamExt`. Import both, under other names or as `_`. A method that
//! only one of them has (`throttle`; `boxed`) is called as usual. One that both have (`map`, `next`, `filter_map`,
//! `take_while`), or that an operator has itself (`timeout`), is called by the name of its trait, as here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anabranch_core::{BoxError, Error, EventKind};
use anabranch_sim::{HashChain, Reply, Sim};
use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Samples};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{StreamExt as TokioStreamExt, StreamMap};

use common::{Laws, Recorded, dataset, ms};

mod common;

#[tokio::test(start_paused = true)]
async fn adaptors_may_stand_between_any_two_operators() {
    let recorded = Recorded::new();
    let run = &recorded.run;
    // Every fifth prompt takes so long that the timeout behind `generate` passes first.
    let engine = Sim::scripted(|call| {
        let slow = call.request.tokens[0] % 5 == 4;
        Reply::tokens(3, if slow { ms(200) } else { ms(5) })
    });
    let silences = Arc::new(AtomicU64::new(0));
    let (heard, seen) = (silences.clone(), Arc::new(AtomicU64::new(0)));
    let (counted, passed) = (seen.clone(), seen.clone());

    let prompts = run.prompts(dataset(40));
    let prompts = TokioStreamExt::map(prompts, |lease| lease);
    let groups = prompts.generate(&engine, InFlight::groups(3), Samples(2));
    let groups = TokioStreamExt::timeout(groups, ms(50));
    // Only the timeouts go: a group that leaves a chain is excluded with a reason, by `admit`.
    let groups = TokioStreamExt::filter_map(groups, move |group| {
        heard.fetch_add(u64::from(group.is_err()), Ordering::Relaxed);
        group.ok()
    });
    let groups = groups.score(|response| response.response().len() as u32);
    let groups = TokioStreamExt::map_while(groups, Some).admit("even", |group| group.id.prompt.row % 2 == 0).log(run);
    let groups = TokioStreamExt::map(groups, move |group| {
        counted.fetch_add(1, Ordering::Relaxed);
        group
    });
    let batches = TokioStreamExt::fuse(groups.buffer(Capacity::groups(4)))
        .fresh(MaxStaleness(1))
        .batch(2)
        .throttle(Duration::from_millis(1));
    let batches =
        TokioStreamExt::take_while(batches, |batch| batch.as_ref().is_ok_and(|batch| batch.groups.len() == 2));
    let learner = run.restore(HashChain::new(3)).unwrap();
    let steps = batches.boxed().train(learner).publish_every(1, &engine);
    let steps: Vec<u64> = TokioStreamExt::map(steps, |step| step.map(|step| step.step.0)).try_collect().await.unwrap();

    assert_eq!(steps, (1..=steps.len() as u64).collect::<Vec<_>>());
    let trained: usize = recorded.batches().iter().map(Vec::len).sum();
    assert_eq!(trained, 2 * steps.len());
    assert!(steps.len() > 5, "{steps:?}");
    assert!(silences.load(Ordering::Relaxed) > 0, "the engine was silent for longer than 50 ms");
    assert!(passed.load(Ordering::Relaxed) >= trained as u64);
    Laws { batch: 2, limit: Some(1), buffered: true }.check(&recorded.events());
}

/// A closed channel ends the chain, as any source does.
#[tokio::test(start_paused = true)]
async fn groups_out_of_a_channel_are_adopted() {
    let recorded = Recorded::new();
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    let version = anabranch_core::SpanVersion::Exact(anabranch_core::Version(0));
    let made: Vec<_> = (0..6).map(|row| common::adopted(&recorded.run, row, &[version])).collect();
    let sending = tokio::spawn(async move {
        for group in made {
            tokio::time::sleep(ms(10)).await;
            sender.send(Ok(group)).await.unwrap();
        }
    });
    let batches = ReceiverStream::new(receiver).log(&recorded.run).batch(2);
    let batches: Vec<_> = batches.try_collect().await.unwrap();
    sending.await.unwrap();
    assert_eq!(batches.len(), 3);
    let completed = recorded.ids(|kind| if let EventKind::Completed { id, .. } = kind { Some(id) } else { None });
    assert_eq!(completed.len(), 6);
}

/// Groups out of two channels in one chain: the key of a `StreamMap` says which of them a group came from.
#[tokio::test(start_paused = true)]
async fn sources_are_merged_by_a_stream_map() {
    let recorded = Recorded::new();
    let version = anabranch_core::SpanVersion::Exact(anabranch_core::Version(0));
    let mut sources = StreamMap::new();
    for (key, rows, every) in [(0, 0..6, ms(10)), (1, 6..10, ms(15))] {
        let groups: Vec<_> = rows.map(|row| common::adopted(&recorded.run, row, &[version])).collect();
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            for group in groups {
                tokio::time::sleep(every).await;
                sender.send(group).await.unwrap();
            }
        });
        sources.insert(key, ReceiverStream::new(receiver));
    }
    let groups = TokioStreamExt::map(sources, |(key, group)| {
        assert_eq!(key == 1, group.id.prompt.row >= 6, "{}", group.id);
        Ok::<_, Error>(group)
    });
    let batches: Vec<_> = groups.log(&recorded.run).batch(5).try_collect().await.unwrap();
    let mut rows: Vec<u64> = batches.iter().flat_map(|batch| &batch.groups).map(|group| group.id.prompt.row).collect();
    assert_eq!(batches.len(), 2);
    assert_ne!(rows, (0..10).collect::<Vec<_>>(), "the two take turns");
    rows.sort_unstable();
    assert_eq!(rows, (0..10).collect::<Vec<_>>());
}

/// An error that an adaptor makes ends the chain behind it, as an operator's does.
#[tokio::test(start_paused = true)]
async fn a_timeout_can_be_made_an_error() {
    let recorded = Recorded::new();
    let engine = Sim::scripted(|_| Reply::tokens(1, Duration::from_hours(1)));
    let groups = recorded.run.prompts(dataset(4)).generate(&engine, InFlight::groups(2), Samples(1));
    let groups = TokioStreamExt::map(TokioStreamExt::timeout(groups, ms(100)), |group| {
        group.unwrap_or_else(|_| Err(Error::Task("the engine said nothing for 100 ms".to_owned())))
    });
    let mut batches = Box::pin(groups.log(&recorded.run).buffer(Capacity::groups(2)).batch(1));
    let error: BoxError = TokioStreamExt::next(&mut batches).await.unwrap().unwrap_err().into();
    assert!(error.to_string().contains("said nothing for 100 ms"), "{error}");
    assert!(TokioStreamExt::next(&mut batches).now_or_never().unwrap().is_none(), "it has ended");
}
