//! The in-process engine against its promises, on a real device.

mod rollout;

use anabranch_core::{Engine, Finish, Learner, Sampling, SpanVersion, Version, WeightSync};
use futures::StreamExt;
use futures::executor::block_on;

use anabranch_policy::{AdamW, Config, Device, DeviceChoice, EngineOptions, Grpo, Policy, PolicyEngine, Weights};
use rollout::{Answer, batch, collect, request, rollout};

fn policy() -> Policy {
    let device = Device::open(DeviceChoice::Wgpu).unwrap();
    Policy::init(Config { kv_heads: 2, ..Config::tiny(16) }, 4, &device).unwrap()
}

fn weights(policy: &Policy) -> Weights {
    policy.learner(AdamW::default()).unwrap().weights().unwrap()
}

fn engine(policy: &Policy, options: EngineOptions) -> PolicyEngine {
    let engine = policy.engine(options).unwrap();
    block_on(engine.install(weights(policy), Version(0))).unwrap();
    engine
}

fn sampling(max_tokens: u32) -> Sampling {
    Sampling { max_tokens, ..Sampling::default() }
}

fn prompts() -> Vec<Vec<u32>> {
    (0..5_u32).map(|row| (0..3 + row).map(|i| (i * 5 + row) % 16).collect()).collect()
}

fn bits(answer: &Answer) -> Vec<u32> {
    answer.logprobs.iter().map(|value| value.to_bits()).collect()
}

/// The promise on which importance ratios rest: recorded and recomputed log-probs are the same bits.
#[test]
fn the_learner_recomputes_the_recorded_log_probs_exactly() {
    for (kv_heads, temperature) in [(4, 1.0), (4, 0.7), (2, 1.0), (2, 0.7)] {
        let device = Device::open(DeviceChoice::Wgpu).unwrap();
        let policy = Policy::init(Config { kv_heads, ..Config::tiny(16) }, 4, &device).unwrap();
        let sampling = Sampling { temperature, ..sampling(6) };
        let groups = rollout(&engine(&policy, EngineOptions::default()), &prompts(), 4, &sampling);
        let grpo = Grpo { temperature: f64::from(temperature), ..Grpo::default() };
        let mut learner = policy.learner(AdamW::default()).unwrap().objective(grpo).unwrap();
        let report = learner.step(&batch(1, groups)).unwrap();
        let deviation = report.metrics["ratio_max_deviation"];
        assert_eq!(deviation.to_bits(), 0.0_f64.to_bits(), "{kv_heads} KV heads, τ {temperature}: {deviation:e}");
        assert!(report.metrics["kl"].abs() < f64::EPSILON);
        assert!((report.metrics["tokens"] - 120.0).abs() < f64::EPSILON);
    }
}

#[test]
fn a_request_does_not_depend_on_its_company() {
    let policy = policy();
    let crowd = engine(&policy, EngineOptions::default());
    let together: Vec<_> = (0..3)
        .flat_map(|sample| prompts().into_iter().enumerate().map(move |(row, prompt)| (row, sample, prompt)))
        .map(|(row, sample, prompt)| crowd.generate(request(&prompt, row as u64, sample, &sampling(7))))
        .collect();
    let together: Vec<Answer> = together.into_iter().map(collect).collect();
    // One slot and two rows a pass: prompts are read in pieces, and nothing shares a pass.
    let narrow = EngineOptions { slots: 1, rows_per_pass: 2, ..EngineOptions::default() };
    let lonely = engine(&policy, narrow);
    let mut index = 0;
    for sample in 0..3 {
        for (row, prompt) in prompts().iter().enumerate() {
            let alone = collect(lonely.generate(request(prompt, row as u64, sample, &sampling(7))));
            assert_eq!(alone, together[index], "row {row}, sample {sample}");
            assert_eq!(bits(&alone), bits(&together[index]));
            index += 1;
        }
    }
    // Different samples of one prompt are different.
    assert_ne!(together[0].tokens, together[5].tokens);
    assert_eq!(together[0].finish, Some(Finish::Length));
}

#[test]
fn stop_tokens_limits_and_greedy() {
    let policy = policy();
    let engine = engine(&policy, EngineOptions { max_len: Some(12), ..EngineOptions::default() });
    let prompt = vec![1, 2, 3];
    let long = collect(engine.generate(request(&prompt, 0, 0, &sampling(100))));
    assert_eq!((long.tokens.len(), long.finish), (9, Some(Finish::Length)));
    let stop = Sampling { stop: vec![long.tokens[4]], ..sampling(100) };
    let first = long.tokens.iter().position(|token| *token == long.tokens[4]).unwrap();
    let stopped = collect(engine.generate(request(&prompt, 0, 0, &stop)));
    assert_eq!(stopped.tokens, long.tokens[..=first]);
    assert_eq!(stopped.finish, Some(Finish::Stop));
    let nothing = collect(engine.generate(request(&prompt, 0, 0, &sampling(0))));
    assert_eq!((nothing.tokens.len(), nothing.finish), (0, Some(Finish::Length)));

    let greedy = block_on(engine.greedy(&[prompt.clone(), prompt.clone()], 4)).unwrap();
    assert_eq!(greedy[0], greedy[1]);
    assert_eq!(greedy[0].len(), 4);
    let top = Sampling { top_k: Some(1), ..sampling(4) };
    let only = collect(engine.generate(request(&prompt, 5, 5, &top)));
    assert_eq!(only.tokens, greedy[0]);
    assert_eq!(only.truncated, Some(vec![0.0; 4]));
    assert!(only.logprobs.iter().all(|logprob| *logprob < -0.5));
}

#[test]
fn senseless_requests_end_with_an_error() {
    let policy = policy();
    let unpublished = policy.engine(EngineOptions::default()).unwrap();
    let mut stream = unpublished.generate(request(&[1], 0, 0, &sampling(3)));
    let error = block_on(stream.next()).unwrap().unwrap_err().to_string();
    assert!(error.contains("publish once"), "{error}");
    assert!(block_on(stream.next()).is_none());

    let engine = engine(&policy, EngineOptions { max_len: Some(4), ..EngineOptions::default() });
    for (tokens, word) in [(vec![], "BOS"), (vec![1; 4], "max_len"), (vec![99], "vocabulary")] {
        let mut stream = engine.generate(request(&tokens, 0, 0, &sampling(3)));
        let error = block_on(stream.next()).unwrap().unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(policy.engine(EngineOptions { slots: 0, ..EngineOptions::default() }).is_err());
    let too_long = EngineOptions { max_len: Some(65), ..EngineOptions::default() };
    assert!(policy.engine(too_long).is_err());
}

/// Starts a request, waits for its first chunk, publishes other weights, and finishes it.
fn interrupted(mode: WeightSync) -> (Answer, Answer, u32) {
    let policy = policy();
    let device = policy.device();
    let other = Policy::init(policy.config().as_ref().clone(), 77, &device).unwrap();
    let engine = engine(&policy, EngineOptions::default());
    let prompt = prompts().remove(2);
    let undisturbed = collect(engine.generate(request(&prompt, 3, 0, &sampling(50))));
    let mut stream = engine.generate(request(&prompt, 3, 0, &sampling(50)));
    let first = block_on(stream.next()).unwrap().unwrap();
    block_on(engine.pause(mode)).unwrap();
    block_on(engine.install(weights(&other), Version(1))).unwrap();
    block_on(engine.resume()).unwrap();
    let mut rest = collect(stream);
    let mut spans = anabranch_core::Spans::new();
    spans.push(first.tokens.len() as u32, first.version, first.kv_carried);
    for span in &rest.spans {
        spans.push(span.end - span.start, span.version, span.kv_carried);
    }
    rest.spans = spans.into_vec();
    rest.tokens.splice(0..0, first.tokens);
    rest.logprobs.splice(0..0, first.logprobs);
    let old = rest.spans.iter().filter(|span| span.version == SpanVersion::Exact(Version(0)));
    let kept = old.map(|span| span.end - span.start).sum();
    (undisturbed, rest, kept)
}

#[test]
fn retraction_keeps_the_prefix_and_recomputes_the_rest() {
    let (undisturbed, answer, kept) = interrupted(WeightSync::Retract);
    assert_eq!((answer.tokens.len(), &answer.finish), (50, &Some(Finish::Length)));
    assert!(kept >= 1, "a chunk had arrived");
    let prefix = kept as usize;
    assert_eq!(answer.tokens[..prefix], undisturbed.tokens[..prefix]);
    assert_eq!(bits(&answer)[..prefix], bits(&undisturbed)[..prefix]);
    assert!(answer.spans.iter().all(|span| !span.kv_carried));
    if prefix < 50 {
        // The rest is what the new weights alone make of that prefix.
        let policy = policy();
        let other = Policy::init(policy.config().as_ref().clone(), 77, &policy.device()).unwrap();
        let mut continued = prompts().remove(2);
        continued.extend(&answer.tokens[..prefix]);
        let mut fresh = request(&continued, 3, 0, &sampling(50 - kept));
        fresh.position = kept;
        let fresh = collect(engine(&other, EngineOptions::default()).generate(fresh));
        assert_eq!(answer.tokens[prefix..], fresh.tokens);
        assert_eq!(bits(&answer)[prefix..], bits(&fresh));
    }
}

#[test]
fn in_place_marks_carried_spans() {
    let (undisturbed, answer, kept) = interrupted(WeightSync::InPlace);
    assert_eq!(answer.tokens.len(), 50);
    let prefix = kept as usize;
    assert_eq!(bits(&answer)[..prefix], bits(&undisturbed)[..prefix]);
    for span in &answer.spans {
        assert_eq!(span.kv_carried, span.version == SpanVersion::Exact(Version(1)));
    }
}

#[test]
fn drain_lets_requests_finish_and_abort_ends_them() {
    let (undisturbed, answer, kept) = interrupted(WeightSync::Drain);
    assert_eq!(kept, 50);
    assert_eq!(answer.tokens, undisturbed.tokens);

    let (undisturbed, answer, kept) = interrupted(WeightSync::Abort);
    assert_eq!(answer.tokens, undisturbed.tokens[..kept as usize]);
    if kept < 50 {
        assert!(matches!(answer.finish, Some(Finish::Abort { .. })));
    }
}

/// Publications of unchanged weights, at whatever moments they fall, change nothing but the versions.
#[test]
fn interruptions_alone_change_no_token() {
    let policy = policy();
    let submit = |engine: &PolicyEngine| -> Vec<_> {
        let requests = (0..4).flat_map(|sample| {
            let prompts = prompts().into_iter().enumerate();
            prompts.map(move |(row, prompt)| request(&prompt, row as u64, sample, &sampling(40)))
        });
        requests.map(|request| engine.generate(request)).collect()
    };
    let options = EngineOptions { slots: 7, rows_per_pass: 9, ..EngineOptions::default() };
    let undisturbed: Vec<Answer> =
        submit(&engine(&policy, EngineOptions::default())).into_iter().map(collect).collect();
    let engine = engine(&policy, options);
    let streams = submit(&engine);
    for version in 1..12 {
        let mode = if version % 3 == 0 { WeightSync::InPlace } else { WeightSync::Retract };
        let tokens = engine.stats().tokens;
        block_on(engine.pause(mode)).unwrap();
        block_on(engine.install(weights(&policy), Version(version))).unwrap();
        block_on(engine.resume()).unwrap();
        // Let some tokens be sampled before the next interruption, unless all are.
        while engine.stats().tokens < (tokens + 20).min(800) {
            std::thread::yield_now();
        }
    }
    let interrupted: Vec<Answer> = streams.into_iter().map(collect).collect();
    let versions = interrupted.iter().map(|answer| answer.spans.len()).max();
    assert!(versions > Some(1), "no request was interrupted");
    for (interrupted, undisturbed) in interrupted.iter().zip(&undisturbed) {
        assert_eq!(interrupted.tokens, undisturbed.tokens);
        assert_eq!(bits(interrupted), bits(undisturbed));
        let covered = interrupted.spans.last().map(|span| span.end);
        assert_eq!(covered, Some(40));
    }
}

#[test]
fn pausing_is_idempotent_and_holds_new_requests() {
    let policy = policy();
    let engine = engine(&policy, EngineOptions::default());
    for mode in [WeightSync::Retract, WeightSync::Drain, WeightSync::InPlace] {
        block_on(engine.pause(mode)).unwrap();
    }
    let stream = engine.generate(request(&[1, 2], 0, 0, &sampling(3)));
    block_on(engine.install(weights(&policy), Version(4))).unwrap();
    assert_eq!(engine.stats().tokens, 0);
    block_on(engine.resume()).unwrap();
    block_on(engine.resume()).unwrap();
    let answer = collect(stream);
    assert_eq!(answer.spans.len(), 1);
    assert_eq!(answer.spans[0].version, SpanVersion::Exact(Version(4)));
}

#[test]
fn a_prompt_shared_by_samples_is_read_once() {
    let policy = policy();
    let engine = engine(&policy, EngineOptions::default());
    block_on(engine.pause(WeightSync::Retract)).unwrap();
    let prompt = prompts().remove(2);
    let streams: Vec<_> = (0..8).map(|sample| engine.generate(request(&prompt, 0, sample, &sampling(1)))).collect();
    block_on(engine.resume()).unwrap();
    for stream in streams {
        assert_eq!(collect(stream).tokens.len(), 1);
    }
    let stats = engine.stats();
    assert_eq!((stats.passes, stats.rows, stats.tokens), (1, prompt.len() as u64, 8));
}

#[test]
fn dropped_streams_free_their_slots() {
    let policy = policy();
    let engine = engine(&policy, EngineOptions { slots: 1, ..EngineOptions::default() });
    let held: Vec<_> = (0..20).map(|sample| engine.generate(request(&[1, 2], 0, sample, &sampling(60)))).collect();
    let last = engine.generate(request(&[1, 2], 0, 99, &sampling(2)));
    drop(held);
    assert_eq!(collect(last).tokens.len(), 2);
    // Twenty whole requests would have been 1200 tokens.
    assert!(engine.stats().tokens < 300, "{:?}", engine.stats());
}

#[test]
fn weights_of_another_model_are_refused() {
    let policy = policy();
    let engine = engine(&policy, EngineOptions::default());
    let other = Policy::init(Config::tiny(32), 1, &policy.device()).unwrap();
    let error = block_on(engine.install(weights(&other), Version(1))).unwrap_err().to_string();
    assert!(error.contains("another model"), "{error}");
}
