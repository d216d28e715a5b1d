//! What single operators promise, on a scripted engine in virtual time.

use anabranch_core::{EventKind, Group, Reason, Sampling, SpanVersion, Status, Then, Value, Version, WeightSync};
use anabranch_sim::{End, HashChain, Reply, Sim};
use anabranch_stream::by_hand::RolloutByHand;
use anabranch_stream::{
    Capacity, Granularity, InFlight, MaxStaleness, Order, Rollout, RolloutExt, Run, Samples, Unused, publish,
};
use futures::channel::mpsc;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::time::sleep;

use common::{Laws, Recorded, dataset, ms};

mod common;

async fn published(run: &Run, engine: &Sim, versions: u64) {
    for version in 0..versions {
        let digest = anabranch_core::Digest::of(&version.to_le_bytes());
        publish(run, engine, version, digest, WeightSync::Retract).await.unwrap();
    }
}

/// A complete group made wholly by `version`, adopted by the run.
fn adopted(run: &Run, row: u64, version: u64) -> Rollout {
    common::adopted(run, row, &[SpanVersion::Exact(Version(version))])
}

fn names<'a>(groups: impl IntoIterator<Item = &'a Group>) -> Vec<String> {
    groups.into_iter().map(|group| group.id.to_string()).collect()
}

fn names_of(rollouts: &[Rollout]) -> Vec<String> {
    names(rollouts.iter().map(|rollout| &**rollout))
}

#[tokio::test(start_paused = true)]
async fn the_buffer_is_fifo_by_completion() {
    let recorded = Recorded::new();
    let engine = Sim::scripted(|call| Reply::tokens(1, [ms(300), ms(100), ms(200)][call.request.tokens[0] as usize]));
    published(&recorded.run, &engine, 1).await;
    let groups = recorded.run.prompts(dataset(3)).generate(&engine, InFlight::groups(3), Samples(2));
    let groups: Vec<Rollout> = groups.buffer(Capacity::groups(3)).take(3).try_collect().await.unwrap();
    assert_eq!(names_of(&groups), ["d/0/1#0", "d/0/2#0", "d/0/0#0"], "A starts first, B and C complete before it");
    let dequeued: Vec<_> = groups.iter().map(|group| group.dequeued().unwrap() / 1_000_000).collect();
    assert_eq!(dequeued, [100, 200, 300]);
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_inclusive() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
    published(&recorded.run, &engine, 6).await;
    assert_eq!(recorded.run.version(), Some(Version(5)));
    let groups = [adopted(&recorded.run, 3, 3), adopted(&recorded.run, 4, 4)];
    let fresh: Vec<Rollout> = stream::iter(groups).map(Ok).fresh(MaxStaleness(1)).try_collect().await.unwrap();
    assert_eq!(names_of(&fresh), ["made/0/4#0"]);
    assert_eq!(recorded.excluded(), [("Stale { gap: 2 }".to_owned(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn a_publication_wakes_a_batch_that_holds_what_it_makes_stale() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
    published(&recorded.run, &engine, 1).await;
    let (sender, receiver) = mpsc::unbounded::<Rollout>();
    let run = recorded.run.clone();
    let batches = receiver.map(Ok).fresh(MaxStaleness(0)).batch(2);
    let batch = tokio::spawn(batches.into_future().map(|(batch, _)| batch.unwrap().unwrap()));
    sender.unbounded_send(adopted(&run, 0, 0)).unwrap();
    sleep(ms(1)).await;
    assert!(recorded.excluded().is_empty());
    publish(&run, &engine, 1, anabranch_core::Digest::default(), WeightSync::Retract).await.unwrap();
    sleep(ms(1)).await;
    assert_eq!(recorded.excluded(), [("Stale { gap: 1 }".to_owned(), 1)].into(), "before another group comes");
    sender.unbounded_send(adopted(&run, 1, 1)).unwrap();
    sender.unbounded_send(adopted(&run, 2, 1)).unwrap();
    let batch = batch.await.unwrap();
    assert_eq!(names(&batch.groups), ["made/0/1#0", "made/0/2#0"]);
    assert_eq!((batch.version, batch.gap_max), (Some(Version(1)), Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_holds_back_new_groups_but_not_running_ones() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(10)));
    published(&recorded.run, &engine, 1).await;
    let groups = recorded.run.prompts(dataset(50)).generate(&engine, InFlight::groups(3), Samples(1));
    let mut groups = groups.granularity(Granularity::Group).log(&recorded.run).buffer(Capacity::groups(2));
    assert!(groups.next().now_or_never().is_none());
    sleep(ms(1000)).await;
    let anabranch_metrics::Metrics { counters, gauges, .. } = recorded.run.metrics();
    assert_eq!((gauges.queue, gauges.queue_capacity, gauges.waiting), (Some(2), Some(2), 3), "one waits for each slot");
    assert_eq!((gauges.in_flight, counters.leased, counters.completed), (0, 5, 5), "what waits for room is in the log");
    // Taking one out lets one in at once, but the two left waiting still hold back new groups.
    groups.next().await.unwrap().unwrap();
    sleep(ms(1000)).await;
    assert_eq!(recorded.run.metrics().counters.leased, 5);
    for _ in 0..2 {
        groups.next().await.unwrap().unwrap();
    }
    sleep(ms(5)).await;
    assert_eq!(recorded.run.metrics().counters.leased, 8, "no group waits any more: all three slots go out");
}

#[tokio::test(start_paused = true)]
async fn a_group_goes_out_when_as_many_sample_slots_are_free_as_it_needs() {
    // Sample s of a group takes s + 1 times 10 ms; two groups of two samples in four slots.
    let engine = Sim::scripted(|call| Reply::tokens(1, ms(10) * (call.request.key.sample + 1)));
    let recorded = Recorded::new();
    published(&recorded.run, &engine, 1).await;
    let groups = recorded.run.prompts(dataset(3)).generate(&engine, InFlight::groups(2), Samples(2));
    let groups: Vec<Rollout> = groups.try_collect().await.unwrap();
    let submitted = |row: usize| groups[row].samples[0].times.submitted.unwrap() / 1_000_000;
    assert_eq!(
        [submitted(0), submitted(1), submitted(2)],
        [0, 0, 10],
        "two slots are free once both short samples end"
    );
}

#[tokio::test(start_paused = true)]
async fn any_adaptor_may_stand_between_two_operators() {
    for buffered in [false, true] {
        let (recorded, engine) = (Recorded::new(), Sim::random(3, 1..=9, 1..=9));
        let run = &recorded.run;
        let learner = run.restore(HashChain::new(0)).unwrap();
        let groups = run
            .prompts(dataset(24))
            .map(|lease| async { lease })
            .buffered(5)
            .inspect(|lease| assert!(lease.is_ok()))
            .generate(&engine, InFlight::groups(4), Samples(2))
            .map_ok(|mut group| {
                group.extra.insert("seen".to_owned(), Value::from(true));
                group
            })
            .score(|response| response.response().len() as u32)
            .try_filter(|group| std::future::ready(group.id.prompt.row != 7))
            .admit("all", |_| true)
            .and_then(|group| async move {
                sleep(ms(1)).await;
                Ok(group)
            })
            .log(run)
            .map(|group| async { group })
            .buffered(3)
            .boxed();
        let groups = if buffered { groups.buffer(Capacity::groups(5)).boxed() } else { groups };
        let steps: Vec<_> = groups
            .ready_chunks(2)
            .flat_map(stream::iter)
            .fresh(MaxStaleness(100))
            .batch(4)
            .inspect_ok(|batch| assert!(batch.groups.iter().all(|group| group.extra.contains_key("seen"))))
            .train(learner)
            .publish_every(1, &engine)
            .try_collect()
            .await
            .unwrap();
        assert_eq!(steps.len(), 5, "23 groups: one was taken out on the way");
        let taken: usize = recorded.batches().iter().map(Vec::len).sum();
        assert_eq!((taken, run.metrics().counters.leased), (20, 24));
        let leased = recorded.ids(|kind| if let EventKind::Leased { id, .. } = kind { Some(id) } else { None });
        assert!(leased.contains(&"d/0/7#0".to_owned()), "what an adaptor took out stays open in the log");
    }
}

#[tokio::test(start_paused = true)]
async fn groups_held_back_by_an_adaptor_come_out_at_the_end() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
    published(&recorded.run, &engine, 1).await;
    let chunks = recorded.run.prompts(dataset(5)).generate(&engine, InFlight::groups(3), Samples(1)).try_chunks(3);
    let sizes: Vec<usize> = chunks.map_ok(|chunk| chunk.len()).try_collect().await.unwrap();
    assert_eq!(sizes, [3, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_last_partial_batch_is_left_or_emitted() {
    for (partial, batches, left) in [(false, vec![2, 2], 1), (true, vec![2, 2, 1], 0)] {
        let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
        let run = &recorded.run;
        let learner = run.restore(HashChain::new(0)).unwrap();
        let groups = run.prompts(dataset(5)).generate(&engine, InFlight::groups(2), Samples(1));
        let groups = groups.buffer(Capacity::groups(2)).batch(2);
        let groups = if partial { groups.emit_partial() } else { groups };
        let steps: Vec<_> = groups.train(learner).publish_every(1, &engine).try_collect().await.unwrap();
        assert_eq!(steps.iter().map(|step| step.groups).collect::<Vec<_>>(), batches);
        let closed = recorded.events().pop().map(|event| event.kind);
        let Some(EventKind::RunClosed { left: ids }) = closed else { panic!("{closed:?}") };
        assert_eq!(ids.len(), left);
        if partial {
            continue;
        }
        Laws { batch: 2, limit: None, buffered: true }.check(&recorded.events());
        assert_eq!(ids[0].to_string(), "d/0/4#0");
    }
}

#[tokio::test(start_paused = true)]
async fn filtered_groups_are_dropped_by_name_and_aborted_ones_never_reach_the_filter() {
    let engine = Sim::scripted(|call| {
        let end = if call.request.tokens[0] == 1 { End::Abort("tool".to_owned()) } else { End::Stop };
        Reply::tokens(1, ms(1)).ending(end)
    });
    let recorded = Recorded::new();
    published(&recorded.run, &engine, 1).await;
    let mut seen = Vec::new();
    let groups = recorded.run.prompts(dataset(3)).unused(Unused::Retry { max_attempts: 2 });
    let groups = groups.generate(&engine, InFlight::groups(1), Samples(2)).score(|_| 1.0);
    let groups = groups.admit("even", |group| {
        seen.push(group.id.prompt.row);
        group.id.prompt.row.is_multiple_of(2)
    });
    let groups = groups.admit("none", |_| false).log(&recorded.run);
    assert_eq!(groups.count().await, 0);
    assert_eq!(seen, [0, 2]);
    let verdicts = |kind: EventKind| match kind {
        EventKind::Excluded { id, reason, then, .. } => Some((id.to_string(), reason, then)),
        _ => None,
    };
    let verdicts: Vec<_> = recorded.events().into_iter().filter_map(|event| verdicts(event.kind)).collect();
    let none = || Reason::Filtered { name: "none".to_owned() };
    assert_eq!(
        verdicts,
        [
            ("d/0/0#0".to_owned(), none(), Then::Drop),
            ("d/0/1#0".to_owned(), Reason::Aborted, Then::Retry("d/0/1#1".parse().unwrap())),
            ("d/0/1#1".to_owned(), Reason::Aborted, Then::Exhausted),
            ("d/0/2#0".to_owned(), none(), Then::Drop),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_the_pristine_prompt_and_goes_before_fresh_ones() {
    let engine = Sim::scripted(|call| {
        // Names end with `row#attempt/sample`.
        let end = if call.request.id.contains("/1#0/") { End::Abort("once".to_owned()) } else { End::Stop };
        Reply::tokens(2, ms(1)).ending(end)
    });
    let recorded = Recorded::new();
    published(&recorded.run, &engine, 1).await;
    let groups = recorded.run.prompts(dataset(4)).unused(Unused::Retry { max_attempts: 3 });
    let groups = groups.generate(&engine, InFlight::groups(1), Samples(2)).log(&recorded.run);
    // With retries a source ends when all leases are settled; these are kept.
    let groups: Vec<Rollout> = groups.take(4).try_collect().await.unwrap();
    assert_eq!(names_of(&groups), ["d/0/0#0", "d/0/1#1", "d/0/2#0", "d/0/3#0"]);
    assert_eq!(groups[1].samples[0].tokens[..1], [1], "the prompt alone was continued");
    assert_eq!(groups[1].samples[0].response().len(), 2);
    let leased = recorded.ids(|kind| if let EventKind::Leased { id, .. } = kind { Some(id) } else { None });
    assert_eq!(leased, ["d/0/0#0", "d/0/1#0", "d/0/1#1", "d/0/2#0", "d/0/3#0"]);
}

#[tokio::test(start_paused = true)]
async fn capacity_one_and_publications_do_not_deadlock() {
    for mode in [WeightSync::Retract, WeightSync::InPlace, WeightSync::Drain, WeightSync::Abort] {
        let recorded = Recorded::new();
        let engine = Sim::random(5, 1..=6, 1..=20).install_time(ms(7));
        let run = &recorded.run;
        let learner = run.restore(HashChain::new(0)).unwrap();
        let steps = run
            .prompts(dataset(30))
            .unused(Unused::Retry { max_attempts: 2 })
            .generate(&engine, InFlight::groups(3), Samples(2))
            .buffer(Capacity::groups(1))
            .fresh(MaxStaleness(1))
            .batch(2)
            .train(learner)
            .publish_every(1, &engine)
            .weight_sync(mode);
        let steps: Result<Vec<_>, _> = tokio::time::timeout(ms(1_000_000), steps.try_collect()).await.expect("it ends");
        assert!(steps.unwrap().len() > 5, "{mode:?}");
        Laws { batch: 2, limit: Some(1), buffered: true }.check(&recorded.events());
    }
}

#[tokio::test(start_paused = true)]
async fn a_buffer_full_of_stale_groups_gives_way_to_their_retries() {
    const BATCH: u32 = 3;
    for (order, capacity) in [(Order::Fifo, 1), (Order::Fifo, 5), (Order::Freshest, 5), (Order::Stalest, 5)] {
        let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(10)));
        let run = &recorded.run;
        published(run, &engine, 1).await;
        // As many prompts as fit into the buffer, and two: a batch can be filled by retries alone.
        let source = run.prompts(dataset(capacity + 2)).unused(Unused::Retry { max_attempts: 4 });
        let groups = source.generate(&engine, InFlight::groups(2), Samples(1)).granularity(Granularity::Group);
        let groups = groups.log(run).buffer(Capacity::groups(capacity as usize)).order(order);
        let mut batches = groups.fresh(MaxStaleness(0)).batch(BATCH as usize);
        // Polled once, the buffer's task fills it; then everything it holds goes stale, twice over.
        assert!(batches.next().now_or_never().is_none());
        for round in 1..=2 {
            sleep(ms(1000)).await;
            assert_eq!(run.metrics().gauges.queue, Some(capacity as usize), "{order}");
            published(run, &engine, 1).await;
            if round == 1 {
                continue;
            }
            let batch = tokio::time::timeout(ms(10_000), batches.next()).await.expect("no deadlock").unwrap().unwrap();
            assert_eq!((batch.groups.len() as u32, batch.gap_max), (BATCH, Some(0)), "{order} {capacity}");
        }
        let (stale, retried) =
            (run.metrics().counters.excluded["stale"], run.metrics().counters.retried.values().sum::<u64>());
        assert!(stale >= u64::from(capacity) && retried == stale, "{stale} stale, {retried} retried");
        // Nothing but the two versions it slept through was in the way: the rest is trained on as well.
        let rest = tokio::time::timeout(ms(10_000), batches.by_ref().count()).await.expect("no deadlock");
        let whole_batches = (capacity + 2) / BATCH;
        assert_eq!(rest as u32, whole_batches - 1, "{order} {capacity}");
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_bound_a_buffer_too_but_never_shut_it() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(10, ms(1)));
    published(&recorded.run, &engine, 1).await;
    // A sample of one prompt token and ten generated ones takes 4 * (11 + 10) + 10 bytes.
    let groups = recorded.run.prompts(dataset(9)).generate(&engine, InFlight::groups(2), Samples(1));
    let mut groups = groups.buffer(Capacity::groups(5).and_bytes(2 * 94));
    assert!(groups.next().now_or_never().is_none());
    sleep(ms(1000)).await;
    assert_eq!(recorded.run.metrics().gauges.queue, Some(2));
    drop(groups);
    let other = Recorded::new();
    published(&other.run, &engine, 1).await;
    let tiny = other.run.prompts(dataset(9)).generate(&engine, InFlight::groups(2), Samples(1));
    let all: Vec<Rollout> = tiny.buffer(Capacity::groups(5).and_bytes(1)).take(9).try_collect().await.unwrap();
    assert_eq!(all.len(), 9, "a group above the byte capacity enters an empty buffer");
}

#[tokio::test(start_paused = true)]
async fn sampling_settings_reach_the_engine() {
    let engine = Sim::scripted(|call| {
        assert_eq!((call.request.sampling.max_tokens, call.request.sampling.top_k), (3, Some(5)));
        assert_eq!(call.request.key.seed, 99);
        assert_eq!(call.request.id, format!("test/d/0/0#0/{}", call.request.key.sample));
        Reply::tokens(8, ms(1))
    });
    let recorded = Recorded::new();
    published(&recorded.run, &engine, 1).await;
    let sampling = Sampling { max_tokens: 3, top_k: Some(5), ..Sampling::default() };
    let groups = recorded.run.prompts(dataset(1)).generate(&engine, InFlight::groups(1), Samples(2));
    let groups: Vec<Rollout> = groups.sampling(sampling).seed(99).try_collect().await.unwrap();
    assert_eq!(groups[0].samples[0].status, Status::Truncated);
    assert_eq!(groups[0].generated(), 6);
    assert_ne!(groups[0].samples[0].tokens, groups[0].samples[1].tokens, "samples of a group differ");
}

#[test]
fn where_nothing_was_installed_the_gap_is_unknown_and_everything_passes() {
    let run = Run::in_memory();
    let groups = stream::iter([adopted(&run, 0, 0)]).map(Ok).fresh(MaxStaleness(0));
    let batch = futures::executor::block_on(groups.batch(1).next()).unwrap().unwrap();
    assert_eq!((batch.step.0, batch.version, batch.gap_mean, batch.gap_max), (1, None, None, None));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_no_demand_holds_back_waits_for_room_too() {
    let recorded = Recorded::new();
    let run = recorded.run.clone();
    let groups = stream::iter(0..).map(move |row| Ok(adopted(&run, row, 0)));
    let mut groups = groups.buffer(Capacity::groups(2));
    assert!(groups.next().now_or_never().is_none());
    sleep(ms(10)).await;
    assert_eq!(recorded.run.metrics().counters.leased, 3, "two in the buffer, one waits");
    assert_eq!(groups.next().await.unwrap().unwrap().id.to_string(), "made/0/0#0");
}
