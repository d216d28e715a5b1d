//! What one synchronous step of the demo's size costs: 64 × 8 samples, 6 prompt and 4 generated tokens each.
//!
//! `cargo run -p anabranch-policy --example step_time -- [ROUNDS] [DEVICE]` prints generation, training and installation of
//! each round, and their medians without the first round, which compiles kernels.

use std::error::Error;
use std::time::{Duration, Instant};

use anabranch_core::{
    Batch, Chunk, Context, Digest, Engine, EngineError, Fields, Group, GroupId, Learner, Prompt, PromptId, Request,
    Sample, SampleTimes, Sampling, SamplingKey, Seq, Status, TrainingStep, Version,
};
use anabranch_policy::{AdamW, Config, Device, DeviceChoice, EngineOptions, Policy, PolicyEngine};
use futures::TryStreamExt;
use futures::executor::block_on;

const GROUPS: u64 = 64;
const SAMPLES: u32 = 8;
const GENERATED: u32 = 4;

fn prompt(row: u64) -> Vec<u32> {
    let digits = (0..4).map(|place| 2 + (row / 10_u64.pow(place) * 7 % 10) as u32);
    std::iter::once(0).chain(digits).chain([12]).collect()
}

fn generate(engine: &PolicyEngine, round: u64) -> Result<Vec<Group>, EngineError> {
    let submit = |row: u64, sample: u32| {
        engine.generate(Request {
            id: format!("{round}/{row}/{sample}"),
            tokens: prompt(row),
            position: 0,
            sampling: Sampling { max_tokens: GENERATED, ..Sampling::default() },
            key: SamplingKey { seed: 1, lease: round * GROUPS + row, sample },
        })
    };
    let streams: Vec<Vec<_>> =
        (0..GROUPS).map(|row| (0..SAMPLES).map(|sample| submit(row, sample)).collect()).collect();
    let mut groups = Vec::new();
    for (row, streams) in streams.into_iter().enumerate() {
        let id = PromptId { dataset: "step".into(), epoch: round as u32, row: row as u64 };
        let tokens = prompt(row as u64);
        let mut samples = Vec::new();
        for (index, stream) in streams.into_iter().enumerate() {
            let chunks: Vec<Chunk> = block_on(stream.try_collect())?;
            let response = chunks.iter().flat_map(|chunk| chunk.tokens.iter().copied());
            samples.push(Sample {
                tokens: tokens.iter().copied().chain(response).collect(),
                prompt_len: tokens.len() as u32,
                loss_mask: vec![true; GENERATED as usize],
                logprobs: chunks.iter().flat_map(|chunk| chunk.logprobs.iter().copied()).collect(),
                truncated_logprobs: None,
                spans: Vec::new(),
                reward: Some(f64::from(index as u32 % 3)),
                status: Status::Truncated,
                cause: None,
                times: SampleTimes::default(),
            });
        }
        groups.push(Group {
            id: GroupId { prompt: id.clone(), attempt: 0 },
            prompt: Prompt { id, tokens, fields: Fields::default() },
            expected: SAMPLES,
            samples,
            extra: Fields::default(),
            context: Context::default(),
        });
    }
    Ok(groups)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 = arguments.next().map_or(Ok(6), |text| text.parse())?;
    let choice: DeviceChoice = arguments.next().map_or(Ok(DeviceChoice::Auto), |text| text.parse())?;
    let device = Device::open(choice)?;
    let policy = Policy::init(Config::tiny(16), 1, &device)?;
    let mut learner = policy.learner(AdamW::default())?;
    let engine = policy.engine(EngineOptions { max_len: Some(16), ..EngineOptions::default() })?;
    block_on(engine.install(learner.weights()?, Version(0)))?;
    println!("device {}, {} samples a round", device.name(), GROUPS * u64::from(SAMPLES));
    let (mut generating, mut training, mut installing) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds.max(2) {
        let started = Instant::now();
        let groups = generate(&engine, round)?;
        generating.push(started.elapsed());
        let batch = Batch {
            step: TrainingStep(round + 1),
            taken: Seq(round),
            version: None,
            gap_mean: None,
            gap_max: None,
            groups,
            digest: Digest::default(),
        };
        let started = Instant::now();
        let report = learner.step(&batch)?;
        training.push(started.elapsed());
        let started = Instant::now();
        block_on(engine.install(learner.weights()?, Version(round + 1)))?;
        installing.push(started.elapsed());
        let at = round as usize;
        println!(
            "round {round}: generate {:.1?}, train {:.1?}, install {:.1?}, largest |ratio-1| {:e}",
            generating[at], training[at], installing[at], report.metrics["ratio_max_deviation"]
        );
    }
    let medians = [generating, training, installing].map(|times| median(times[1..].to_vec()));
    println!("median: generate {:.1?}, train {:.1?}, install {:.1?}", medians[0], medians[1], medians[2]);
    println!("median sum: {:.1?}; {:?}", medians.iter().sum::<Duration>(), engine.stats());
    Ok(())
}
