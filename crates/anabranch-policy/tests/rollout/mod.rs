//! Groups made in a test, by hand or by an engine.
#![allow(dead_code, reason = "each test binary uses its own part")]

use anabranch_core::{Batch, Digest, Fields, Finish, Group, GroupId, Prompt, PromptId, Request, Sample, Sampling};
use anabranch_core::{Engine, SamplingKey, Seq, Spans, Status, TrainingStep};
use futures::StreamExt;
use futures::executor::block_on;

use anabranch_policy::PolicyEngine;

/// A sample that generated everything after its prompt.
pub fn sample(tokens: &[u32], prompt: usize, logprobs: &[f32], reward: f64) -> Sample {
    Sample {
        tokens: tokens.to_vec(),
        prompt_len: prompt as u32,
        loss_mask: vec![true; tokens.len() - prompt],
        logprobs: logprobs.to_vec(),
        truncated_logprobs: None,
        spans: Vec::new(),
        reward: Some(reward),
        status: Status::Completed,
        cause: None,
        times: anabranch_core::SampleTimes::default(),
    }
}

/// A group of these samples.
pub fn group(row: u64, samples: Vec<Sample>) -> Group {
    let prompt = PromptId { dataset: "test".into(), epoch: 0, row };
    let tokens = samples[0].tokens[..samples[0].prompt_len as usize].to_vec();
    Group {
        id: GroupId { prompt: prompt.clone(), attempt: 0 },
        prompt: Prompt { id: prompt, tokens, fields: Fields::default() },
        expected: samples.len() as u32,
        samples,
        extra: Fields::default(),
    }
}

/// A batch of these groups.
pub fn batch(step: u64, groups: Vec<Group>) -> Batch {
    Batch {
        step: TrainingStep(step),
        taken: Seq(step),
        version: None,
        gap_mean: None,
        gap_max: None,
        groups,
        digest: Digest::default(),
    }
}

/// A request of sample `sample` of lease `lease`.
pub fn request(tokens: &[u32], lease: u64, sample: u32, sampling: &Sampling) -> Request {
    Request {
        id: format!("{lease}/{sample}"),
        tokens: tokens.to_vec(),
        position: 0,
        sampling: sampling.clone(),
        key: SamplingKey { seed: 11, lease, sample },
    }
}

/// What a finished request came to: generated tokens, log-probs, spans and how it ended.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    pub tokens: Vec<u32>,
    pub logprobs: Vec<f32>,
    pub truncated: Option<Vec<f32>>,
    pub spans: Vec<anabranch_core::VersionSpan>,
    pub finish: Option<Finish>,
}

/// Collects a stream of chunks to its end.
pub fn collect(
    mut stream: impl futures::Stream<Item = Result<anabranch_core::Chunk, anabranch_core::EngineError>> + Unpin,
) -> Answer {
    let mut answer = Answer::default();
    let mut spans = Spans::new();
    while let Some(chunk) = block_on(stream.next()) {
        let chunk = chunk.unwrap();
        spans.push(chunk.tokens.len() as u32, chunk.version, chunk.kv_carried);
        answer.tokens.extend(chunk.tokens);
        answer.logprobs.extend(chunk.logprobs);
        if let Some(truncated) = chunk.truncated_logprobs {
            answer.truncated.get_or_insert_default().extend(truncated);
        }
        answer.finish = chunk.finish;
    }
    answer.spans = spans.into_vec();
    answer
}

/// Generates groups of `samples` for prompts; the reward is the share of even tokens.
pub fn rollout(engine: &PolicyEngine, prompts: &[Vec<u32>], samples: u32, sampling: &Sampling) -> Vec<Group> {
    let streams: Vec<Vec<_>> = prompts
        .iter()
        .enumerate()
        .map(|(row, prompt)| {
            let submit = |sample| engine.generate(request(prompt, row as u64, sample, sampling));
            (0..samples).map(submit).collect()
        })
        .collect();
    let finish = |(row, streams): (usize, Vec<_>)| {
        let samples = streams.into_iter().map(|stream| {
            let answer = collect(stream);
            let mut tokens = prompts[row].clone();
            tokens.extend(&answer.tokens);
            let even = answer.tokens.iter().filter(|token| **token % 2 == 0).count();
            let reward = even as f64 / answer.tokens.len() as f64;
            sample(&tokens, prompts[row].len(), &answer.logprobs, reward)
        });
        group(row as u64, samples.collect())
    };
    streams.into_iter().enumerate().map(finish).collect()
}
