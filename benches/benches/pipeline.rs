//! Measures the cost of the combinators: groups of eight samples from an engine that takes no time pass through the
//! whole chain, with a journal that stores nothing. This is compared with the same number of groups through one bounded
//! channel between two tasks. The groups are either made before (`channel`), or drawn from the same engine by plain
//! code (`plain`). The difference between the two is the cost of the requests and groups themselves, which every
//! implementation has; the rest is the cost of the chain. Other measurements show that the cost of a group depends
//! neither on the number of groups nor on the buffer's capacity.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch::prelude::*;
use anabranch::{
    AppendReceipt, BoxError, Chunk, Cursor, EngineError, Event, Fields, Finish, Group, GroupId, Journal, JournalError,
    Prompt, PromptId, Request, Rollout, Sample, SampleTimes, Sampling, SamplingKey, SpanVersion, Spans, Status,
    Version,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::SinkExt;
use futures::Stream;
use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream};
use tokio::runtime::Runtime;

const GROUPS: u64 = 2_000;
const BATCH: usize = 50;

/// Answers every request at once, with one token.
#[derive(Clone)]
struct NoTime;

impl Engine for NoTime {
    type Weights = u64;

    fn generate(&self, _: Request) -> BoxStream<'static, Result<Chunk, EngineError>> {
        let chunk = Chunk {
            tokens: vec![7],
            logprobs: vec![-1.0],
            truncated_logprobs: None,
            version: SpanVersion::Exact(Version(0)),
            kv_carried: false,
            finish: Some(Finish::Stop),
        };
        stream::once(future::ready(Ok(chunk))).boxed()
    }

    fn pause(&self, _: WeightSync) -> BoxFuture<'static, Result<(), EngineError>> {
        Box::pin(future::ready(Ok(())))
    }

    fn install(&self, _: u64, _: Version) -> BoxFuture<'static, Result<(), EngineError>> {
        Box::pin(future::ready(Ok(())))
    }

    fn resume(&self) -> BoxFuture<'static, Result<(), EngineError>> {
        Box::pin(future::ready(Ok(())))
    }
}

/// A journal that stores nothing. The bench `log` measures the cost of logging.
struct Nowhere;

impl Journal for Nowhere {
    fn append(&self, _: Vec<Event>, _: &[&Group]) -> AppendReceipt {
        AppendReceipt::ready(Ok(()))
    }

    fn payload(&self, id: &GroupId) -> Result<Group, JournalError> {
        Err(JournalError::new(format!("{id} was not kept")))
    }

    fn checkpoint(
        &self,
        _: &Cursor,
        _: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
    ) -> Result<Option<String>, JournalError> {
        Ok(None)
    }
}

async fn chain(groups: u64, capacity: usize) -> Result<u64, BoxError> {
    let run = Run::builder("bench").journal(Arc::new(Nowhere)).open().expect("a new run");
    let dataset = Dataset::new("d", (0..10).map(|row| (vec![row], Fields::new())).collect())?;
    let epochs = u32::try_from(groups / 10)?;
    let mut batches = run
        .prompts(dataset)
        .epochs(epochs)
        .generate(&NoTime, InFlight::groups(64), Samples(8))
        .score(|_| 1.0)
        .admit("all", |_| true)
        .buffer(Capacity::groups(capacity))
        .fresh(MaxStaleness(1))
        .batch(BATCH)
        .emit_partial();
    let mut seen = 0;
    while let Some(batch) = batches.try_next().await? {
        seen += batch.groups.len() as u64;
    }
    Ok(seen)
}

/// What a user would write without the library: ask the engine, keep what it says, hand the group over.
async fn plain_group(row: u64) -> Result<Group, BoxError> {
    let id = PromptId { dataset: "d".into(), epoch: 0, row };
    let prompt = Prompt { id: id.clone(), tokens: vec![7], fields: Fields::new() };
    let mut samples = Vec::with_capacity(8);
    for sample in 0..8 {
        let request = Request {
            id: format!("plain/{id}/{sample}"),
            tokens: prompt.tokens.clone(),
            position: 0,
            sampling: Sampling::default(),
            key: SamplingKey { seed: 0, lease: row, sample },
        };
        let (mut tokens, mut loss_mask, mut logprobs) = (prompt.tokens.clone(), Vec::new(), Vec::new());
        let (mut spans, mut status) = (Spans::new(), Status::Aborted);
        let mut chunks = NoTime.generate(request);
        while let Some(chunk) = chunks.try_next().await? {
            tokens.extend_from_slice(&chunk.tokens);
            loss_mask.extend(std::iter::repeat_n(true, chunk.tokens.len()));
            logprobs.extend_from_slice(&chunk.logprobs);
            spans.push(chunk.tokens.len() as u32, chunk.version, chunk.kv_carried);
            status = if chunk.finish == Some(Finish::Stop) { Status::Completed } else { status };
        }
        samples.push(Sample {
            tokens,
            prompt_len: 1,
            loss_mask,
            logprobs,
            truncated_logprobs: None,
            spans: spans.into_vec(),
            reward: Some(1.0),
            status,
            cause: None,
            times: SampleTimes::default(),
        });
    }
    let id = GroupId { prompt: id, attempt: 0 };
    Ok(Group { id, prompt, expected: 8, samples, extra: Fields::new() })
}

async fn channel(mut groups: impl Stream<Item = Group> + Send + Unpin + 'static, capacity: usize) -> u64 {
    let (mut sender, mut receiver) = futures::channel::mpsc::channel(capacity);
    let producer = tokio::spawn(async move {
        while let Some(group) = groups.next().await {
            if sender.send(group).await.is_err() {
                return;
            }
        }
    });
    let mut seen = 0;
    while let Some(group) = receiver.next().await {
        black_box(&group);
        seen += 1;
    }
    producer.await.expect("the producer does not panic");
    seen
}

fn sample_groups(runtime: &Runtime) -> Vec<Group> {
    runtime.block_on(async {
        let run = Run::in_memory();
        let dataset = Dataset::new("d", vec![(vec![1], Fields::new())]).expect("a row");
        let groups = run.prompts(dataset).generate(&NoTime, InFlight::groups(1), Samples(8));
        let groups: Vec<Group> = groups.map_ok(Rollout::into_group).try_collect().await.expect("a group");
        groups.into_iter().cycle().take(GROUPS as usize).collect()
    })
}

fn pipeline(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    let groups = sample_groups(&runtime);
    let mut bench = criterion.benchmark_group("pipeline");
    bench.throughput(Throughput::Elements(GROUPS)).sample_size(10).measurement_time(Duration::from_secs(5));
    let hops = |rounds: u64, capacity: usize| -> Duration {
        let hop = |_| {
            let groups = groups.clone();
            let begun = Instant::now();
            assert_eq!(runtime.block_on(channel(stream::iter(groups), capacity)), GROUPS);
            begun.elapsed()
        };
        (0..rounds).map(hop).sum()
    };
    bench.bench_function("channel", |bencher| bencher.iter_custom(|rounds| hops(rounds, 256)));
    bench.bench_function("plain", |bencher| {
        bencher.iter(|| {
            let groups = stream::iter(0..GROUPS).then(async |row| plain_group(row).await.expect("a group"));
            assert_eq!(runtime.block_on(channel(Box::pin(groups), 256)), GROUPS);
        });
    });
    bench.bench_function("chain", |bencher| {
        bencher.iter(|| assert_eq!(runtime.block_on(chain(GROUPS, 256)).expect("the chain runs"), GROUPS));
    });
    bench.finish();
    let mut bench = criterion.benchmark_group("groups");
    bench.sample_size(10).measurement_time(Duration::from_secs(5));
    for groups in [10, 1_000, 100_000, 1_000_000] {
        bench.throughput(Throughput::Elements(groups)).bench_function(groups.to_string(), |bencher| {
            bencher.iter(|| assert_eq!(runtime.block_on(chain(groups, 256)).expect("the chain runs"), groups));
        });
    }
    bench.finish();
    let mut bench = criterion.benchmark_group("capacity");
    bench.throughput(Throughput::Elements(GROUPS)).sample_size(10).measurement_time(Duration::from_secs(5));
    for capacity in [1, 100, 100_000] {
        // A channel has one more place for each sender.
        let places = capacity - 1;
        bench.bench_function(format!("channel/{capacity}"), |bencher| {
            bencher.iter_custom(|rounds| hops(rounds, places));
        });
        bench.bench_function(format!("chain/{capacity}"), |bencher| {
            bencher.iter(|| assert_eq!(runtime.block_on(chain(GROUPS, capacity)).expect("the chain runs"), GROUPS));
        });
    }
    bench.finish();
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
