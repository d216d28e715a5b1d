//! The scripted engine keeps the contract of every engine, in virtual time.

use std::time::Duration;

use anabranch_core::{Chunk, Engine, EngineError, Finish, Request, Sampling, SamplingKey, Version, WeightSync};
use anabranch_sim::{Chunking, End, Reply, Sim};
use futures::{FutureExt, StreamExt, TryStreamExt};
use tokio::time::{Instant, sleep};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn request(sample: u32) -> Request {
    Request {
        id: format!("run/d/0/0#0/{sample}"),
        tokens: vec![1],
        position: 0,
        sampling: Sampling::default(),
        key: SamplingKey { seed: 1, lease: 2, sample },
    }
}

async fn all(sim: &Sim, sample: u32) -> Result<Vec<Chunk>, EngineError> {
    sim.generate(request(sample)).try_collect().await
}

async fn installed(sim: Sim) -> Sim {
    sim.install(0, Version(0)).await.unwrap();
    sim
}

#[tokio::test(start_paused = true)]
async fn requests_wait_until_weights_are_installed() {
    let sim = Sim::fixed(2, ms(10));
    let mut chunks = sim.generate(request(0));
    sleep(ms(1000)).await;
    assert!(chunks.next().now_or_never().is_none());
    sim.install(0, Version(0)).await.unwrap();
    let began = Instant::now();
    assert_eq!(chunks.next().await.unwrap().unwrap().tokens.len(), 2);
    assert_eq!(began.elapsed(), ms(20));
}

#[tokio::test(start_paused = true)]
async fn generation_goes_on_unpolled_and_dropping_cancels() {
    let sim = installed(Sim::fixed(2, ms(10))).await;
    let (kept, dropped) = (sim.generate(request(0)), sim.generate(request(1)));
    sleep(ms(5)).await;
    assert_eq!(sim.stats().running, 2);
    drop(dropped);
    sleep(ms(1)).await;
    assert_eq!((sim.stats().running, sim.stats().cancelled), (1, 1));
    sleep(ms(100)).await;
    assert_eq!((sim.stats().running, sim.stats().finished), (0, 1));
    assert_eq!(kept.count().await, 1);
    assert_eq!(sim.stats().cancelled, 1, "a stream that was read to its end cancels nothing");
}

#[tokio::test(start_paused = true)]
async fn pauses_and_resumes_are_idempotent_and_time_stands_still_between() {
    let sim = installed(Sim::fixed(4, ms(10))).await;
    let began = Instant::now();
    let chunks = all(&sim, 0);
    let publication = async {
        sleep(ms(15)).await;
        sim.pause(WeightSync::Retract).await.unwrap();
        sim.pause(WeightSync::Retract).await.unwrap();
        sleep(ms(100)).await;
        sim.resume().await.unwrap();
        sim.resume().await.unwrap();
    };
    let (chunks, ()) = futures::join!(chunks, publication);
    assert_eq!(began.elapsed(), ms(140), "the 5 ms left of the second token are worked off after the pause");
    assert_eq!(chunks.unwrap().len(), 1, "nothing was installed: the version stays the same");
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_what_runs_and_starts_nothing() {
    let sim = installed(Sim::fixed(3, ms(10))).await;
    let running = sim.generate(request(0));
    sleep(ms(5)).await;
    let began = Instant::now();
    let pause = sim.pause(WeightSync::Drain);
    let late = async {
        sleep(ms(1)).await;
        sim.generate(request(1))
    };
    let (paused, late) = futures::join!(pause, late);
    paused.unwrap();
    assert_eq!(began.elapsed(), ms(25));
    sim.install(1, Version(1)).await.unwrap();
    sleep(ms(50)).await;
    assert_eq!(sim.stats().running, 0);
    sim.resume().await.unwrap();
    let versions = |chunks: Vec<Result<Chunk, EngineError>>| {
        chunks.into_iter().map(|chunk| chunk.unwrap().version.lowest().unwrap().0).collect::<Vec<_>>()
    };
    assert_eq!(versions(running.collect().await), [0]);
    assert_eq!(versions(late.collect().await), [1]);
}

#[tokio::test(start_paused = true)]
async fn aborting_ends_what_runs_and_spares_what_waits() {
    let sim = installed(Sim::fixed(3, ms(10))).await;
    let running = sim.generate(request(0));
    sleep(ms(15)).await;
    sim.pause(WeightSync::Abort).await.unwrap();
    let waiting = sim.generate(request(1));
    sleep(ms(1)).await;
    sim.resume().await.unwrap();
    let last = |chunks: Vec<Result<Chunk, EngineError>>| chunks.into_iter().next_back().unwrap().unwrap();
    let aborted = last(running.collect().await);
    assert_eq!(aborted.finish, Some(Finish::Abort { cause: "publication".to_owned() }));
    assert_eq!(aborted.tokens.len(), 1, "what was sampled is kept");
    assert_eq!(last(waiting.collect().await).finish, Some(Finish::Stop));
}

#[tokio::test(start_paused = true)]
async fn scripts_end_as_they_say() {
    let ends = [
        (End::Abort("tool".to_owned()), "Ok(Some(Abort { cause: \"tool\" }))"),
        (End::Transient("busy".to_owned()), "Err(\"engine: busy (transient)\")"),
        (End::Fatal("gone".to_owned()), "Err(\"engine: gone\")"),
        (End::Stop, "Ok(Some(Stop))"),
    ];
    for (end, expected) in ends {
        for time in [ms(0), ms(10)] {
            let end = end.clone();
            let sim = installed(Sim::scripted(move |_| Reply::tokens(1, time).ending(end.clone()))).await;
            let items: Vec<_> = sim.generate(request(0)).collect().await;
            let last = items.into_iter().next_back().unwrap().map(|chunk| chunk.finish);
            assert_eq!(format!("{:?}", last.map_err(|error| error.to_string())), expected);
        }
    }
    let sim = installed(Sim::fixed(99, ms(1))).await;
    let chunk = all(&sim, 0).await.unwrap().remove(0);
    assert_eq!((chunk.tokens.len(), chunk.finish), (16, Some(Finish::Length)), "the request's limit is kept");
}

#[tokio::test(start_paused = true)]
async fn a_sample_is_the_same_whatever_runs_beside_it() {
    let alone = installed(Sim::random(7, 1..=9, 1..=20)).await;
    let crowded = installed(Sim::random(7, 1..=9, 1..=20)).await;
    let one = all(&alone, 3).await.unwrap();
    let many = futures::future::join_all((0..6).map(|sample| all(&crowded, sample))).await;
    assert_eq!(&one, many[3].as_ref().unwrap());
    assert_ne!(&one, many[4].as_ref().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_chunk_a_token_leaves_with_its_token() {
    let script = |_: &anabranch_sim::Call<'_>| Reply::timed(vec![ms(10), ms(20), ms(30)]);
    let sim = installed(Sim::scripted(script).chunking(Chunking::Token)).await;
    let began = Instant::now();
    let mut chunks = sim.generate(request(0));
    let mut arrived = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.unwrap();
        arrived.push((began.elapsed(), chunk.tokens.len(), chunk.finish));
    }
    assert_eq!(arrived, [(ms(10), 1, None), (ms(30), 1, None), (ms(60), 1, Some(Finish::Stop))]);
}
