//! The demo's task without the pipeline: generate, train, install, one after the other, on sort4.
//!
//! Shows that engine and learner alone learn from random weights, and what a step costs:
//! `cargo run -p anabranch-policy --example learn_sort4 -- [STEPS] [SEED] [DEVICE]`.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use anabranch_core::{
    Batch, Chunk, Context, Digest, Engine, EngineError, Fields, Group, GroupId, Learner, Prompt, PromptId, Request,
    Sample, SampleTimes, Sampling, SamplingKey, Seq, Status, TrainingStep, Version,
};
use anabranch_policy::{
    AdamW, Config, Device, DeviceChoice, EngineOptions, LinearDecay, Policy, PolicyEngine, Vocabulary,
};
use futures::TryStreamExt;
use futures::executor::block_on;
use futures::stream::BoxStream;

const GROUPS: usize = 64;
const SAMPLES: u32 = 8;
const DIGITS: u32 = 4;

struct Task {
    prompt: Vec<u32>,
    answer: Vec<u32>,
}

fn read(file: &str, vocabulary: &Vocabulary) -> Result<Vec<Task>, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datasets").join(file);
    std::fs::read_to_string(path)?
        .lines()
        .map(|line| {
            let row: serde_json::Value = serde_json::from_str(line)?;
            let text = |field: &str| row[field].as_str().ok_or_else(|| format!("no {field} in {line}"));
            Ok(Task { prompt: vocabulary.prompt(text("prompt")?)?, answer: vocabulary.encode(text("answer")?)? })
        })
        .collect()
}

fn score(task: &Task, response: &[u32]) -> f64 {
    let right = task.answer.iter().zip(response).filter(|(a, b)| a == b).count();
    right as f64 / f64::from(DIGITS)
}

/// A group for each task; all requests are submitted before the first is awaited.
fn generate(engine: &PolicyEngine, tasks: &[&Task], step: u64, seed: u64) -> Result<Vec<Group>, EngineError> {
    let submit = |row: usize, sample: u32| {
        engine.generate(Request {
            id: format!("{step}/{row}/{sample}"),
            tokens: tasks[row].prompt.clone(),
            position: 0,
            sampling: Sampling { max_tokens: DIGITS, ..Sampling::default() },
            key: SamplingKey { seed, lease: step * GROUPS as u64 + row as u64, sample },
        })
    };
    let running: Vec<Vec<_>> =
        (0..tasks.len()).map(|row| (0..SAMPLES).map(|sample| submit(row, sample)).collect()).collect();
    let finish = |(row, streams): (usize, Vec<BoxStream<'static, Result<Chunk, EngineError>>>)| {
        let task = tasks[row];
        let mut samples = Vec::new();
        for stream in streams {
            let chunks: Vec<Chunk> = block_on(stream.try_collect())?;
            let response: Vec<u32> = chunks.iter().flat_map(|chunk| chunk.tokens.clone()).collect();
            samples.push(Sample {
                tokens: [task.prompt.as_slice(), &response].concat(),
                prompt_len: task.prompt.len() as u32,
                loss_mask: vec![true; response.len()],
                logprobs: chunks.into_iter().flat_map(|chunk| chunk.logprobs).collect(),
                truncated_logprobs: None,
                spans: Vec::new(),
                reward: Some(score(task, &response)),
                status: Status::Completed,
                cause: None,
                times: SampleTimes::default(),
            });
        }
        let id = PromptId { dataset: "sort4".into(), epoch: step as u32, row: row as u64 };
        Ok(Group {
            id: GroupId { prompt: id.clone(), attempt: 0 },
            prompt: Prompt { id, tokens: task.prompt.clone(), fields: Fields::default() },
            expected: SAMPLES,
            samples,
            extra: Fields::default(),
            context: Context::default(),
        })
    };
    running.into_iter().enumerate().map(finish).collect()
}

fn accuracy(engine: &PolicyEngine, tasks: &[Task]) -> Result<f64, EngineError> {
    let prompts: Vec<Vec<u32>> = tasks.iter().map(|task| task.prompt.clone()).collect();
    let answers = block_on(engine.greedy(&prompts, DIGITS))?;
    let right = tasks.iter().zip(&answers).filter(|(task, answer)| task.answer == **answer).count();
    Ok(right as f64 / tasks.len() as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let steps: u64 = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let seed: u64 = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let choice: DeviceChoice = arguments.next().map_or(Ok(DeviceChoice::Auto), |text| text.parse())?;

    let vocabulary = Vocabulary::digits();
    let (train, held_out) = (read("sort4.jsonl", &vocabulary)?, read("sort4-held-out.jsonl", &vocabulary)?);
    let device = Device::open(choice)?;
    let policy = Policy::init(Config::tiny(vocabulary.len()), seed, &device)?;
    let decay = Some(LinearDecay { from: 150, to: 240, floor: 0.1 });
    let mut learner = policy.learner(AdamW { decay, ..AdamW::default() })?;
    let engine = policy.engine(EngineOptions { max_len: Some(16), ..EngineOptions::default() })?;
    block_on(engine.install(learner.weights()?, Version(0)))?;
    println!("device {}, {} parameters", device.name(), policy.config().parameters());

    let begun = Instant::now();
    for step in 1..=steps {
        let started = Instant::now();
        let tasks: Vec<&Task> =
            (0..GROUPS).map(|row| &train[((step - 1) as usize * GROUPS + row) % train.len()]).collect();
        let groups = generate(&engine, &tasks, step, seed)?;
        let generated = started.elapsed();
        let reward = groups.iter().filter_map(Group::reward_mean).sum::<f64>() / groups.len() as f64;
        let groups: Vec<Group> = groups.into_iter().filter(|group| group.reward_spread() > 0.0).collect();
        let kept = groups.len();
        let batch = Batch {
            step: TrainingStep(step),
            taken: Seq(step),
            version: None,
            gap_mean: None,
            gap_max: None,
            groups,
            digest: Digest::default(),
        };
        let started = Instant::now();
        let report = learner.step(&batch)?;
        let trained = started.elapsed();
        block_on(engine.install(learner.weights()?, Version(step)))?;
        if step <= 3 || step.is_multiple_of(5) {
            let accuracy = accuracy(&engine, &held_out)?;
            println!(
                "step {step:3}  reward {reward:.3}  accuracy {accuracy:.3}  kept {kept}  entropy {:.3}  norm {:.2}  \
                 ratio-1 {:.1e}  generate {generated:.2?}  train {trained:.2?}  total {:.1?}",
                report.metrics["entropy"],
                report.metrics["grad_norm"],
                report.metrics["ratio_max_deviation"],
                begun.elapsed(),
            );
        }
    }
    Ok(())
}
