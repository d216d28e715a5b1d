//! However much is ready at once, the other tasks of the runtime get their turns.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Poll;

use anabranch_core::{Chunk, Digest, Engine, EngineError, Error, Finish, Request, SpanVersion, Version, WeightSync};
use anabranch_stream::{Capacity, Generate, InFlight, MaxStaleness, Prompts, RolloutExt, Samples, publish};
use futures::channel::oneshot;
use futures::future::{BoxFuture, Shared, ready};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, stream};
use parking_lot::Mutex;

use common::{Recorded, dataset};

mod common;

const GROUPS: u32 = 1000;
/// Groups that may pass between two turns of another task.
const BOUND: u64 = 130;

/// An engine without tasks or clocks: all requests end together, when they are let go.
#[derive(Clone)]
struct Together(Shared<oneshot::Receiver<()>>);

impl Engine for Together {
    type Weights = u64;

    fn generate(&self, _: Request) -> BoxStream<'static, Result<Chunk, EngineError>> {
        let chunk = Chunk {
            tokens: vec![1],
            logprobs: vec![-1.0],
            truncated_logprobs: None,
            version: SpanVersion::Exact(Version(0)),
            kv_carried: false,
            finish: Some(Finish::Stop),
        };
        stream::once(self.0.clone().map(|_| Ok(chunk))).boxed()
    }

    fn pause(&self, _: WeightSync) -> BoxFuture<'static, Result<(), EngineError>> {
        ready(Ok(())).boxed()
    }

    fn install(&self, _: u64, _: Version) -> BoxFuture<'static, Result<(), EngineError>> {
        ready(Ok(())).boxed()
    }

    fn resume(&self) -> BoxFuture<'static, Result<(), EngineError>> {
        ready(Ok(())).boxed()
    }
}

/// Goes to the end of the runtime's queue: unlike tokio's `yield_now`, which may be put off for 61 polls of other tasks.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// How many groups pass between two turns of a task that only counts its turns.
#[derive(Clone, Default)]
struct Turns {
    /// The turns, and how many groups passed since the last.
    counts: Arc<Mutex<(u64, u64)>>,
    seen: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
}

impl Turns {
    fn see(&self) {
        self.seen.fetch_add(1, Relaxed);
        let mut counts = self.counts.lock();
        counts.1 += 1;
        self.most.fetch_max(counts.1, Relaxed);
    }

    /// A group passed.
    fn seen<T>(&self) -> impl FnMut(&T) + Send + 'static {
        let turns = self.clone();
        move |_| turns.see()
    }

    /// Runs a pipeline to its end beside the counting task, which lets the requests go once `before` groups were leased,
    /// and asserts that the pipeline let that task run.
    async fn check<T>(self, source: Source, before: u64, pipeline: impl Stream<Item = Result<T, Error>>) {
        let counts = self.counts.clone();
        let Source { recorded, go } = source;
        let (run, mut go) = (recorded.run.clone(), Some(go));
        let counting = tokio::spawn(async move {
            loop {
                if run.metrics().counters.leased >= before {
                    drop(go.take());
                }
                {
                    let mut counts = counts.lock();
                    *counts = (counts.0 + 1, 0);
                }
                yield_now().await;
            }
        });
        let mut pipeline = std::pin::pin!(pipeline);
        while let Some(item) = pipeline.next().await {
            assert!(item.is_ok());
        }
        counting.abort();
        let (seen, most, turns) = (self.seen.load(Relaxed), self.most.load(Relaxed), self.counts.lock().0);
        assert_eq!(seen, u64::from(GROUPS), "every group passed");
        assert!(most <= BOUND, "{most} groups passed between two of {turns} turns");
    }
}

/// Where the groups come from.
struct Source {
    recorded: Recorded,
    /// Dropped, it lets all requests go.
    go: oneshot::Sender<()>,
}

/// A thousand groups of two samples in flight at once.
async fn groups() -> (Source, Turns, Generate<Prompts, Together>) {
    let (go, gone) = oneshot::channel();
    let (recorded, engine) = (Recorded::new(), Together(gone.shared()));
    publish(&recorded.run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let in_flight = InFlight::groups(GROUPS as usize);
    let groups = recorded.run.prompts(dataset(GROUPS)).generate(&engine, in_flight, Samples(2));
    (Source { recorded, go }, Turns::default(), groups)
}

/// The requests go at once as they come, or all together when the last is there.
const WHEN: [u64; 2] = [0, GROUPS as u64];

#[tokio::test]
async fn while_groups_are_generated() {
    for when in WHEN {
        let (source, turns, groups) = groups().await;
        let groups = groups.inspect(turns.seen());
        turns.check(source, when, groups).await;
    }
}

#[tokio::test]
async fn while_groups_go_into_batches_without_a_buffer() {
    for when in [0, 500] {
        let (source, turns, groups) = groups().await;
        let batches = groups.inspect(turns.seen()).log(&source.recorded.run).batch(500);
        turns.check(source, when, batches).await;
    }
}

#[tokio::test]
async fn while_groups_go_through_the_log_into_the_buffer() {
    for when in WHEN {
        let (source, turns, groups) = groups().await;
        let groups = groups.inspect(turns.seen()).log(&source.recorded.run).buffer(Capacity::groups(2000));
        turns.check(source, when, groups).await;
    }
}

#[tokio::test]
async fn while_groups_leave_a_full_buffer() {
    let (mut source, turns, groups) = groups().await;
    let mut groups = groups.buffer(Capacity::groups(2000));
    // Lets the requests go now.
    source.go = oneshot::channel().0;
    assert!(groups.next().now_or_never().is_none());
    while source.recorded.run.metrics().gauges.queue.unwrap_or(0) < GROUPS as usize {
        yield_now().await;
    }
    turns.clone().check(source, 0, groups.inspect(turns.seen()).batch(500)).await;
}

#[tokio::test]
async fn while_a_filter_refuses_all_groups() {
    for when in WHEN {
        let (source, turns, groups) = groups().await;
        let groups = groups.inspect(turns.seen()).admit("none", |_| false);
        turns.check(source, when, groups).await;
    }
}

#[tokio::test]
async fn while_all_rewards_come() {
    for when in WHEN {
        let (source, turns, groups) = groups().await;
        let groups = groups.score_async(|_| async { Ok::<_, Error>(1.0) }).concurrency(2000);
        let groups = groups.inspect(turns.seen());
        turns.check(source, when, groups).await;
    }
}

#[tokio::test]
async fn while_all_groups_are_stale() {
    for when in WHEN {
        let (source, turns, groups) = groups().await;
        let (run, published) = (source.recorded.run.clone(), AtomicBool::new(false));
        let (go, gone) = oneshot::channel();
        drop(go);
        let other = Together(gone.shared());
        let groups = groups.then(|group| {
            let (run, other, first) = (run.clone(), other.clone(), !published.swap(true, Relaxed));
            async move {
                if first {
                    publish(&run, &other, 1, Digest::default(), WeightSync::Retract).await.unwrap();
                }
                group
            }
        });
        let groups = groups.inspect(turns.seen()).fresh(MaxStaleness(0));
        turns.check(source, when, groups).await;
        assert_eq!(run.metrics().counters.excluded["stale"], u64::from(GROUPS));
    }
}
