//! What durability costs: appending groups of 8 × 512 tokens to a run's log, beside bare `RocksDB` writes of as many
//! bytes, one `WriteBatch` a group, with the same sync.

use std::time::{Duration, Instant};

use anabranch::prelude::*;
use anabranch::{Fields, Group, GroupId, Prompt, PromptId, Sample, SampleTimes, SpanVersion, Spans, Status, Version};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rocksdb::{DB, Options, WriteBatch, WriteOptions};

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

criterion_group!(benches, log);
criterion_main!(benches);
