//! Measures the demo's model: generated tokens and training steps per second, compared with the arithmetic that is
//! needed at least (2 operations per parameter and token forward, 6 in training), as matrix products of the same depth
//! by the crate `ndarray` on one core.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anabranch::policy::{AdamW, Config, Device, DeviceChoice, EngineOptions, Policy, PolicyEngine, Vocabulary};
use anabranch::prelude::*;
use anabranch::{Batch, BoxError, Fields, Version};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ndarray::Array2;
use tokio::runtime::Runtime;

const GROUPS: usize = 64;
const SAMPLES: u32 = 8;
const TOKENS: u32 = 4;

fn dataset() -> Dataset {
    let digits = |row: u32| vec![0, 2 + row % 10, 2 + row / 10 % 10, 2 + row / 100 % 10, 2 + row % 7, 12];
    Dataset::new("digits", (0..640).map(|row| (digits(row), Fields::new())).collect()).expect("rows")
}

async fn batch(engine: &PolicyEngine, seed: u64) -> Result<Batch, BoxError> {
    let run = Run::in_memory();
    let mut batches = run
        .prompts(dataset())
        .shuffle(seed)
        .generate(engine, InFlight::groups(GROUPS), Samples(SAMPLES))
        .sampling(Sampling { max_tokens: TOKENS, ..Sampling::default() })
        .seed(seed)
        .score(|response| response.response().is_sorted())
        .batch(GROUPS);
    batches.try_next().await?.ok_or_else(|| "the dataset has ten batches".into())
}

fn engine(policy: &Policy, runtime: &Runtime) -> Result<PolicyEngine, BoxError> {
    let engine = policy.engine(EngineOptions { max_len: Some(16), ..EngineOptions::default() })?;
    let weights = policy.learner(AdamW::default())?.weights()?;
    runtime.block_on(engine.install(weights, Version(0)))?;
    Ok(engine)
}

/// `operations` floating-point operations as products of matrices as deep as the model is wide.
fn products(operations: usize, rows: usize, depth: usize) {
    let columns = operations / (2 * rows * depth);
    let (a, b) = (Array2::from_elem((rows, depth), 0.5_f32), Array2::from_elem((depth, columns), 0.25_f32));
    black_box(a.dot(&b));
}

fn policy(criterion: &mut Criterion) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let device = Device::open(DeviceChoice::Auto).expect("a device");
    let policy = Policy::init(Config::tiny(Vocabulary::digits().len()), 1, &device).expect("a policy");
    let engine = engine(&policy, &runtime).expect("an engine");
    let mut learner = policy.learner(AdamW::default()).expect("a learner");
    let taken = runtime.block_on(batch(&engine, 0)).expect("a batch");
    learner.step(&taken).expect("a step");

    let mut bench = criterion.benchmark_group("policy");
    bench.sample_size(10).measurement_time(Duration::from_secs(10));
    bench.throughput(Throughput::Elements(GROUPS as u64 * u64::from(SAMPLES * TOKENS)));
    bench.bench_function("generate", |bencher| {
        let mut seed = 1;
        bencher.iter_custom(|rounds| {
            let begun = Instant::now();
            for _ in 0..rounds {
                runtime.block_on(batch(&engine, seed)).expect("a batch");
                seed += 1;
            }
            begun.elapsed()
        });
    });
    bench.throughput(Throughput::Elements(1));
    bench.bench_function("step", |bencher| bencher.iter(|| learner.step(&taken).expect("a step")));
    let parameters = policy.parameters().data().len();
    let rows: usize = taken.groups.iter().flat_map(|group| &group.samples).map(|sample| sample.tokens.len()).sum();
    let depth = policy.config().hidden;
    bench.bench_function("generate, arithmetic alone", |bencher| {
        bencher.iter(|| products(2 * parameters * rows, rows, depth));
    });
    bench.bench_function("step, arithmetic alone", |bencher| {
        bencher.iter(|| products(6 * parameters * rows, rows, depth));
    });
    bench.finish();
}

criterion_group!(benches, policy);
criterion_main!(benches);
