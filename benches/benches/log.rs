//! What durability costs: appending groups of 8 × 512 tokens to a run's log, beside bare `RocksDB` writes of as many
//! bytes, one `WriteBatch` a group, with the same sync; sixteen producers that wait for their acknowledgements beside
//! one; opening a log of 10⁶ events; and reading a log with its payloads beside a bare scan of the same database.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anabranch::prelude::*;
use anabranch::{
    Fields, Group, GroupId, Prompt, PromptId, ReadLog, Sample, SampleTimes, SpanVersion, Spans, Status, Version,
};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::executor::block_on;
use rocksdb::{DB, IteratorMode, Options, WriteBatch, WriteOptions};

const SAMPLES: u32 = 8;
const TOKENS: u32 = 512;
/// Tokens, log-probs and masks of a group.
const BYTES: usize = (SAMPLES * TOKENS * (4 + 4 + 1)) as usize;

fn group(row: u64) -> Group {
    let prompt =
        Prompt { id: PromptId { dataset: "bench".into(), epoch: 0, row }, tokens: vec![1], fields: Fields::new() };
    let mut spans = Spans::new();
    spans.push(TOKENS, SpanVersion::Exact(Version(0)), false);
    let spans = spans.into_vec();
    let sample = |index: u32| Sample {
        tokens: (0..=TOKENS).map(|token| token.wrapping_mul(index + 3)).collect(),
        prompt_len: 1,
        loss_mask: vec![true; TOKENS as usize],
        logprobs: (0..TOKENS).map(|token| -(token as f32)).collect(),
        truncated_logprobs: None,
        spans: spans.clone(),
        reward: Some(f64::from(index)),
        status: Status::Completed,
        cause: None,
        times: SampleTimes::default(),
    };
    let id = GroupId { prompt: prompt.id.clone(), attempt: 0 };
    let samples = (0..SAMPLES).map(sample).collect();
    Group { id, prompt, expected: SAMPLES, samples, extra: Fields::new(), context: anabranch::Context::default() }
}

fn log(criterion: &mut Criterion) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let mut bench = criterion.benchmark_group("log");
    bench.throughput(Throughput::Elements(1)).sample_size(10).measurement_time(Duration::from_secs(5));
    for (name, durability, sync) in [("process", Durability::Process, false), ("sync", Durability::Sync, true)] {
        bench.bench_function(BenchmarkId::new("rocksdb", name), |bencher| {
            let dir = tempfile::tempdir().expect("a directory");
            let mut options = Options::default();
            options.create_if_missing(true);
            let db = DB::open(&options, dir.path()).expect("a database");
            let mut write = WriteOptions::default();
            write.set_sync(sync);
            let value = vec![7_u8; BYTES];
            let mut key = 0_u64;
            bencher.iter(|| {
                let mut batch = WriteBatch::default();
                batch.put(key.to_be_bytes(), &value);
                db.write_opt(batch, &write).expect("a write");
                key += 1;
            });
        });
        bench.bench_function(BenchmarkId::new("append", name), |bencher| {
            let _entered = runtime.enter();
            let dir = tempfile::tempdir().expect("a directory");
            let run = RunLog::open(dir.path().join("run"), durability).expect("a run");
            let mut row = 0;
            bencher.iter_custom(|rounds| {
                let groups: Vec<Group> = (row..row + rounds).map(|row| run.adopt(group(row))).collect();
                row += rounds;
                let begun = Instant::now();
                for mut group in groups {
                    let recorded = group.complete().expect("a group not yet logged");
                    if sync {
                        runtime.block_on(recorded.ack).expect("an acknowledgement");
                    }
                }
                runtime.block_on(run.settled()).expect("an acknowledgement");
                begun.elapsed()
            });
        });
    }
    bench.finish();
}

fn producers(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut bench = criterion.benchmark_group("log-producers");
    bench.throughput(Throughput::Elements(1)).sample_size(10).measurement_time(Duration::from_secs(5));
    for producers in [1_u64, 16] {
        bench.bench_function(BenchmarkId::new("sync", producers), |bencher| {
            let _entered = runtime.enter();
            let dir = tempfile::tempdir().expect("a directory");
            let run = RunLog::open(dir.path().join("run"), Durability::Sync).expect("a run");
            let row = AtomicU64::new(0);
            let produce = |groups: u64| {
                for _ in 0..groups {
                    let mut group = run.adopt(group(row.fetch_add(1, Ordering::Relaxed)));
                    block_on(group.complete().expect("a group not yet logged").ack).expect("an acknowledgement");
                }
            };
            bencher.iter_custom(|rounds| {
                let each = rounds.div_ceil(producers);
                let begun = Instant::now();
                std::thread::scope(|scope| {
                    for _ in 0..producers {
                        scope.spawn(|| produce(each));
                    }
                });
                begun.elapsed().mul_f64(rounds as f64 / (each * producers) as f64)
            });
        });
    }
    bench.finish();
}

fn opening(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    let mut bench = criterion.benchmark_group("log-opening");
    bench.sample_size(10).measurement_time(Duration::from_secs(10));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run");
    let run = RunLog::open(&path, Durability::Process).expect("a run");
    for row in 0..500_000 {
        let mut small = group(row);
        small.samples.clear();
        run.adopt(small).complete().expect("a group not yet logged");
        if row % 1000 == 0 {
            block_on(run.settled()).expect("an acknowledgement");
        }
    }
    run.close().expect("a sealed run");
    bench.bench_function("1000000 events", |bencher| {
        bencher.iter(|| {
            let run = RunLog::open(&path, Durability::Process).expect("the run");
            assert!(run.found().events >= 1_000_000);
        });
    });
    bench.finish();
}

fn replay(criterion: &mut Criterion) {
    const GROUPS: u64 = 2000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    let mut bench = criterion.benchmark_group("log-replay");
    bench.throughput(Throughput::Elements(GROUPS)).sample_size(10).measurement_time(Duration::from_secs(5));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run");
    let run = RunLog::open(&path, Durability::Process).expect("a run");
    for row in 0..GROUPS {
        run.adopt(group(row)).complete().expect("a group not yet logged");
    }
    run.close().expect("a sealed run");
    // What the write-ahead log held goes into sorted files.
    RunLog::open(&path, Durability::Process).expect("the run").close().expect("a sealed run");
    let log = ReadLog::open(&path).expect("the log");
    let families = ["default", "events", "groups", "state"];
    let db = DB::open_cf_for_read_only(&Options::default(), path.join("log"), families, false).expect("its database");
    bench.bench_function("bare scan", |bencher| {
        bencher.iter(|| {
            let scan = |family: &str| -> usize {
                let family = db.cf_handle(family).expect("a family");
                db.iterator_cf(family, IteratorMode::Start).map(|row| row.expect("a row").1.len()).sum()
            };
            assert!(scan("events") + scan("groups") > GROUPS as usize * BYTES);
        });
    });
    bench.bench_function("events and payloads", |bencher| {
        bencher.iter(|| {
            let groups: usize = log.segments(None).map(|segment| segment.expect("a segment").groups.len()).sum();
            assert_eq!(groups as u64, GROUPS);
        });
    });
    bench.finish();
}

criterion_group!(benches, log, producers, opening, replay);
criterion_main!(benches);
