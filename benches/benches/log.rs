//! Measures the cost of durability:
//!
//! - appending groups of 8 × 512 tokens to a run's log, compared with bare `RocksDB` writes of the same bytes (one
//!   `WriteBatch` per group, with the same sync): from one thread that continues while acknowledgements are pending, as a
//!   pipeline does, and from one thread that waits for each acknowledgement;
//! - sixteen producers that wait for their acknowledgements, compared with one producer, for groups of two sizes, and
//!   with sixteen threads of bare synced writes. The gain depends on the duration of a sync; `slow-sync.sh` makes syncs
//!   longer;
//! - opening a log of 10⁶ events;
//! - reading a log with its payloads, compared with a bare scan of the same database.
//!
//! Unless the name of a measurement says so, the log is not sealed into Parquet at the same time. The groups and the
//! bytes to write are in memory before the measurement begins, and are dropped after it has ended.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anabranch::RunLog;
use anabranch::{
    Durability, EventKind, Fields, Group, GroupId, Prompt, PromptId, ReadLog, Rollout, Run, Sample, SampleTimes,
    SpanVersion, Spans, Status, Version,
};
use anabranch_stream::by_hand::RolloutByHand;
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use futures::executor::block_on;
use rocksdb::{DB, IteratorMode, Options, WriteBatch, WriteOptions};

const SAMPLES: u32 = 8;
const TOKENS: u32 = 512;
/// Groups of one producer that may wait for their acknowledgements: a pipeline generates on meanwhile.
const AHEAD: usize = 64;
/// Tokens of a sample where waiting for the disk is nearly all there is.
const FEW_TOKENS: u32 = 16;
/// Tokens, log-probs and masks of a group.
const BYTES: usize = (SAMPLES * TOKENS * (4 + 4 + 1)) as usize;

/// A group of tokens below 2^17 and of log-probs that compress no better than real ones.
fn group(row: u64, tokens: u32) -> Group {
    let prompt =
        Prompt { id: PromptId { dataset: "bench".into(), epoch: 0, row }, tokens: vec![1], fields: Fields::new() };
    let mut spans = Spans::new();
    spans.push(tokens, SpanVersion::Exact(Version(0)), false);
    let spans = spans.into_vec();
    // xorshift
    let mut state = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = move |bits: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> (64 - bits)
    };
    let mut sample = |index: u32| Sample {
        tokens: std::iter::once(1).chain((0..tokens).map(|_| noise(17) as u32)).collect(),
        prompt_len: 1,
        loss_mask: vec![true; tokens as usize],
        logprobs: (0..tokens).map(|_| -(noise(24) as f32) / 2_f32.powi(22)).collect(),
        truncated_logprobs: None,
        spans: spans.clone(),
        reward: Some(f64::from(index)),
        status: Status::Completed,
        cause: None,
        times: SampleTimes::default(),
    };
    let id = GroupId { prompt: prompt.id.clone(), attempt: 0 };
    let samples = (0..SAMPLES).map(&mut sample).collect();
    Group { id, prompt, expected: SAMPLES, samples, extra: Fields::new() }
}

/// Its tokens, log-probs and masks, one after another.
fn bytes(group: &Group) -> Vec<u8> {
    let words = |sample: &Sample| -> Vec<u8> {
        let tokens = sample.response().iter().flat_map(|token| token.to_le_bytes());
        let logprobs = sample.logprobs.iter().flat_map(|logprob| logprob.to_le_bytes());
        tokens.chain(logprobs).chain(sample.loss_mask.iter().map(|&mask| u8::from(mask))).collect()
    };
    group.samples.iter().flat_map(words).collect()
}

fn database() -> (DB, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = Options::default();
    options.create_if_missing(true);
    (DB::open(&options, dir.path()).expect("a database"), dir)
}

/// Writes `values`, one `WriteBatch` each.
fn put(db: &DB, key: &AtomicU64, values: &[Vec<u8>], sync: bool) {
    let mut write = WriteOptions::default();
    write.set_sync(sync);
    for value in values {
        let mut batch = WriteBatch::default();
        batch.put(key.fetch_add(1, Ordering::Relaxed).to_be_bytes(), value);
        db.write_opt(batch, &write).expect("a write");
    }
}

/// Appends `groups`, of which `ahead` may wait for their acknowledgements before the next is appended.
fn append(groups: &mut [Rollout], ahead: usize) {
    let mut waiting = VecDeque::new();
    for group in groups {
        waiting.push_back(group.complete().expect("a group not yet logged").durable);
        if waiting.len() > ahead {
            block_on(waiting.pop_front().expect("one that waits")).expect("an acknowledgement");
        }
    }
}

/// Appends `rounds` new groups of a run from one thread.
fn appending(run: &Run, ahead: usize) -> impl FnMut(u64) -> Duration {
    let mut row = 0;
    move |rounds| {
        let mut groups: Vec<Rollout> = (row..row + rounds).map(|row| run.adopt(group(row, TOKENS))).collect();
        row += rounds;
        block_on(run.flushed()).expect("an acknowledgement");
        let begun = Instant::now();
        append(&mut groups, ahead);
        block_on(run.flushed()).expect("an acknowledgement");
        begun.elapsed()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn log(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut bench = criterion.benchmark_group("log");
    bench.throughput(Throughput::Elements(1)).sample_size(10).measurement_time(Duration::from_secs(5));
    bench.sampling_mode(SamplingMode::Flat);
    for (name, durability, sync) in [("process", Durability::Process, false), ("sync", Durability::Sync, true)] {
        bench.bench_function(BenchmarkId::new("rocksdb", name), |bencher| {
            let (db, _dir) = database();
            let key = AtomicU64::new(0);
            bencher.iter_custom(|rounds| {
                let first = key.load(Ordering::Relaxed);
                let values: Vec<Vec<u8>> = (first..first + rounds).map(|row| bytes(&group(row, TOKENS))).collect();
                let begun = Instant::now();
                put(&db, &key, &values, sync);
                begun.elapsed()
            });
        });
        bench.bench_function(BenchmarkId::new("append", name), |bencher| {
            let dir = tempfile::tempdir().expect("a directory");
            let run = RunLog::options().unsealed().open(dir.path().join("run"), durability).expect("a run");
            bencher.iter_custom(appending(&run, AHEAD));
        });
        bench.bench_function(BenchmarkId::new("append, each waited for", name), |bencher| {
            let dir = tempfile::tempdir().expect("a directory");
            let run = RunLog::options().unsealed().open(dir.path().join("run"), durability).expect("a run");
            bencher.iter_custom(appending(&run, 0));
        });
        bench.bench_function(BenchmarkId::new("append, sealed beside", name), |bencher| {
            let _entered = runtime.enter();
            let dir = tempfile::tempdir().expect("a directory");
            let run = RunLog::open(dir.path().join("run"), durability).expect("a run");
            bencher.iter_custom(appending(&run, AHEAD));
        });
    }
    bench.finish();
}

/// Has each of `parts` worked on by a thread of its own; gives the time for `rounds` of all that they hold.
fn side_by_side<T: Send>(mut parts: Vec<Vec<T>>, rounds: u64, work: impl Fn(&mut [T]) + Sync) -> Duration {
    let all: usize = parts.iter().map(Vec::len).sum();
    let work = &work;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for part in &mut parts {
            scope.spawn(move || work(part));
        }
    });
    begun.elapsed().mul_f64(rounds as f64 / all as f64)
}

fn producers(criterion: &mut Criterion) {
    let mut bench = criterion.benchmark_group("log-producers");
    bench.throughput(Throughput::Elements(1)).sample_size(10).measurement_time(Duration::from_secs(4));
    bench.sampling_mode(SamplingMode::Flat);
    for tokens in [FEW_TOKENS, TOKENS] {
        for producers in [1_u64, 16] {
            let name = format!("8 x {tokens} tokens, {producers}");
            bench.bench_function(BenchmarkId::new("rocksdb", &name), |bencher| {
                let (db, _dir) = database();
                let key = AtomicU64::new(0);
                bencher.iter_custom(|rounds| {
                    let each = rounds.div_ceil(producers);
                    let values =
                        |part: u64| (0..each).map(|row| bytes(&group(part * each + row, tokens))).collect::<Vec<_>>();
                    side_by_side((0..producers).map(values).collect(), rounds, |values| put(&db, &key, values, true))
                });
            });
            bench.bench_function(BenchmarkId::new("append", &name), |bencher| {
                let dir = tempfile::tempdir().expect("a directory");
                let run = RunLog::options().unsealed().open(dir.path().join("run"), Durability::Sync).expect("a run");
                let mut row = 0;
                bencher.iter_custom(|rounds| {
                    let each = rounds.div_ceil(producers);
                    let mut groups = || {
                        row += each;
                        (row - each..row).map(|row| run.adopt(group(row, tokens))).collect::<Vec<_>>()
                    };
                    let parts = (0..producers).map(|_| groups()).collect();
                    block_on(run.flushed()).expect("an acknowledgement");
                    side_by_side(parts, rounds, |groups| append(groups, 0))
                });
            });
        }
    }
    bench.finish();
}

fn opening(criterion: &mut Criterion) {
    let mut bench = criterion.benchmark_group("log-opening");
    bench.sample_size(10).measurement_time(Duration::from_secs(10));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run");
    let run = RunLog::options().unsealed().open(&path, Durability::Process).expect("a run");
    for row in 0..500_000 {
        let empty = Group { samples: Vec::new(), ..group(row, 0) };
        drop(run.adopt(empty).complete().expect("a group not yet logged"));
        if row % 1000 == 0 {
            block_on(run.flushed()).expect("an acknowledgement");
        }
    }
    run.close().expect("a sealed run");
    bench.bench_function("1000000 events", |bencher| {
        bencher.iter(|| {
            let run = RunLog::options().unsealed().open(&path, Durability::Process).expect("the run");
            assert!(run.found().events >= 1_000_000);
        });
    });
    bench.finish();
}

fn replay(criterion: &mut Criterion) {
    const GROUPS: u64 = 2000;
    let mut bench = criterion.benchmark_group("log-replay");
    bench.throughput(Throughput::Elements(GROUPS)).sample_size(10).measurement_time(Duration::from_secs(5));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("run");
    let run = RunLog::options().unsealed().open(&path, Durability::Process).expect("a run");
    for row in 0..GROUPS {
        drop(run.adopt(group(row, TOKENS)).complete().expect("a group not yet logged"));
    }
    run.close().expect("a sealed run");
    // What the write-ahead log held goes into sorted files.
    RunLog::options().unsealed().open(&path, Durability::Process).expect("the run").close().expect("a sealed run");
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
    bench.bench_function("each payload as its event comes", |bencher| {
        bencher.iter(|| {
            let mut groups = 0;
            for event in log.events() {
                if let EventKind::Completed { id, .. } = event.expect("an event").kind {
                    groups += u64::from(log.payload(&id).expect("a payload").expected == SAMPLES);
                }
            }
            assert_eq!(groups, GROUPS);
        });
    });
    bench.finish();
}

criterion_group!(benches, log, producers, opening, replay);
criterion_main!(benches);
