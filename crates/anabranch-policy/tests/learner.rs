//! The learner against a written-out step in `f64`, and against itself resumed, on a real device.

mod rollout;

use anabranch_core::{Batch, Learner};

use anabranch_policy::packed::Packed;
use anabranch_policy::{
    AdamW, Config, Device, DeviceChoice, Grpo, Parameters, Policy, PolicyLearner, Ratio, reference,
};
use rollout::{batch, group, sample};

/// ε far above the gradients' rounding: else a first `AdamW` update is the sign of noise where a gradient is near zero.
fn adamw() -> AdamW {
    AdamW { learning_rate: 1e-2, warmup: 0, eps: 1e-3, ..AdamW::default() }
}

fn policy() -> Policy {
    let device = Device::open(DeviceChoice::Wgpu).unwrap();
    Policy::init(Config { kv_heads: 2, ..Config::tiny(16) }, 4, &device).unwrap()
}

fn learner(grpo: Grpo) -> PolicyLearner {
    policy().learner(adamw()).unwrap().objective(grpo).unwrap()
}

/// Groups whose recorded log-probs lie on both sides of the clip range of a freshly drawn model (about ln 16 each).
fn groups(step: u64) -> Batch {
    let make = |row: u64| {
        let samples = (0..4_u64).map(|index| {
            let len = 6 + (row + index) % 4;
            let tokens: Vec<u32> = (0..len).map(|i| ((i * i + 5 * row + 3 * index + step) % 16) as u32).collect();
            let recorded = |i: u64| -2.77 + 0.4 * ((i + 2 * index + row) as f32).sin();
            let logprobs: Vec<f32> = (0..len - 3).map(recorded).collect();
            sample(&tokens, 3, &logprobs, (index * row % 3) as f64)
        });
        group(row, samples.collect())
    };
    batch(step, (0..6).map(make).collect())
}

/// The same step in `f64`, written out.
fn expected_step(policy: &Policy, batch: &Batch, grpo: &Grpo) -> (f64, f64, f64, Vec<f64>) {
    let (config, layout) = (policy.config(), policy.parameters().layout());
    let mut weights: Vec<f64> = policy.parameters().data().iter().map(|v| f64::from(*v)).collect();
    let mut packed = Packed::new();
    let (mut advantages, mut recorded) = (Vec::new(), Vec::new());
    for group in &batch.groups {
        let rewards: Vec<f64> = group.samples.iter().map(|s| s.reward.unwrap()).collect();
        let n = rewards.len() as f64;
        let mean = rewards.iter().sum::<f64>() / n;
        let std = (rewards.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        for (sample, reward) in group.samples.iter().zip(rewards) {
            packed.push(&sample.tokens, |index| index >= 3);
            for logprob in &sample.logprobs {
                advantages.push((reward - mean) / (std + 1e-4));
                recorded.push(f64::from(*logprob));
            }
        }
    }
    let trace = reference::forward(config, layout, &weights, &packed, 1.0);
    let tokens = recorded.len() as f64;
    let (mut loss, mut factors) = (0.0, Vec::new());
    let (mut first, mut second) = (0.0, 0.0);
    for (index, log_prob) in trace.log_probs.iter().enumerate() {
        let advantage = advantages[index];
        let importance = (log_prob - recorded[index]).exp();
        first += importance;
        second += importance * importance;
        let (ratio, weight) = match grpo.ratio {
            Ratio::Recorded => (importance, 1.0),
            // On the first update ℓ = p.
            Ratio::Decoupled => (1.0, importance),
            Ratio::Truncated { cap } => (1.0, importance.min(cap)),
        };
        let clipped = ratio.clamp(0.8, 1.2) * advantage;
        loss -= (ratio * advantage).min(clipped) * weight / tokens;
        let active = ratio * advantage <= clipped;
        factors.push(if active { -ratio * advantage * weight / tokens } else { 0.0 });
    }
    let gradient = reference::backward(config, layout, &weights, &packed, &trace, &factors, 1.0);
    let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
    let scale = (1.0 / norm).min(1.0);
    let settings = adamw();
    for (index, (weight, gradient)) in weights.iter_mut().zip(&gradient).enumerate() {
        let gradient = gradient * scale;
        if index < layout.decayed {
            *weight *= 1.0 - settings.learning_rate * settings.weight_decay;
        }
        // First update: the bias-corrected moments are the gradient and its square.
        *weight -= settings.learning_rate * gradient / (gradient.abs() + settings.eps);
    }
    (loss, norm, first * first / (tokens * second), weights)
}

#[test]
fn a_step_matches_the_reference() {
    for ratio in [Ratio::Recorded, Ratio::Decoupled, Ratio::Truncated { cap: 1.1 }] {
        let (policy, batch) = (policy(), groups(1));
        let grpo = Grpo { ratio, ..Grpo::default() };
        let (loss, norm, sample_size, weights) = expected_step(&policy, &batch, &grpo);
        let mut learner = policy.learner(adamw()).unwrap().objective(grpo).unwrap();
        let report = learner.step(&batch).unwrap();
        // The loss is a sum of both signs, of terms around 1.
        assert!((report.loss - loss).abs() < 1e-5, "{ratio:?}: loss {} {loss}", report.loss);
        let found = report.metrics["grad_norm"];
        assert!((found - norm).abs() < 1e-4 * norm, "{ratio:?}: norm {found} {norm}");
        let after = learner.parameters().unwrap();
        for (slot, values) in after.tensors() {
            for (ours, exact) in values.iter().zip(&weights[slot.range()]) {
                let error = (f64::from(*ours) - exact).abs();
                // A step moves a weight by up to 1e-2: within 1 % of that.
                assert!(error < 1e-4, "{ratio:?} {}: {ours}, reference {exact}", slot.name);
            }
        }
        assert_eq!(report.weights, after.digest());
        assert_eq!(report.updates, 1);
        let ess = report.metrics["ess"];
        assert!((ess - sample_size).abs() < 1e-5, "{ess} {sample_size}");
        let clipped = report.metrics["clip_fraction"];
        assert_eq!(clipped > 0.05 && clipped < 0.95, ratio == Ratio::Recorded, "{ratio:?}: {clipped}");
    }
}

#[test]
fn packing_does_not_change_the_step() {
    let run = |rows_per_pass| {
        let mut learner = learner(Grpo { rows_per_pass, updates: 2, ..Grpo::default() });
        let report = learner.step(&groups(1)).unwrap();
        (report, learner.parameters().unwrap())
    };
    let (whole, expected) = run(10_000);
    assert!((whole.metrics["passes"] - 1.0).abs() < f64::EPSILON);
    assert_eq!(whole.updates, 2);
    for rows_per_pass in [1, 20, 64] {
        let (report, parameters) = run(rows_per_pass);
        assert!(report.metrics["passes"] > 1.0);
        assert!((report.loss - whole.loss).abs() < 1e-6);
        for (ours, whole) in parameters.data().iter().zip(expected.data()) {
            // Two updates of up to 1e-2 each.
            assert!((ours - whole).abs() < 1e-5, "{rows_per_pass} rows: {ours} {whole}");
        }
    }
}

#[test]
fn a_loaded_learner_goes_on_bit_for_bit() {
    let directory = tempfile::tempdir().unwrap();
    let mut straight = learner(Grpo::default());
    straight.step(&groups(1)).unwrap();
    let published = straight.weights().unwrap();
    straight.step(&groups(2)).unwrap();
    straight.save(directory.path()).unwrap();
    let expected = straight.step(&groups(3)).unwrap();

    let mut resumed = learner(Grpo::default());
    assert!(resumed.published().unwrap().is_none());
    resumed.load(directory.path()).unwrap();
    let kept = resumed.published().unwrap().expect("they were handed out before the save");
    assert_eq!(kept.digest(), published.digest());
    assert_ne!(kept.digest(), resumed.digest().unwrap());
    assert_eq!(resumed.step(&groups(3)).unwrap(), expected);
    assert_eq!(bits(&resumed), bits(&straight));

    // Saved by the resumed learner, the published weights are still those.
    let again = tempfile::tempdir().unwrap();
    resumed.save(again.path()).unwrap();
    let mut third = learner(Grpo::default());
    third.load(again.path()).unwrap();
    assert_eq!(third.published().unwrap().unwrap().digest(), published.digest());
    assert_eq!(bits(&third), bits(&straight));
}

fn bits(learner: &PolicyLearner) -> Vec<u32> {
    learner.parameters().unwrap().data().iter().map(|value| value.to_bits()).collect()
}

#[test]
fn the_checkpoint_is_a_model_directory() {
    let directory = tempfile::tempdir().unwrap();
    let mut learner = learner(Grpo::default());
    learner.step(&groups(1)).unwrap();
    learner.save(directory.path()).unwrap();
    let device = Device::open(DeviceChoice::Wgpu).unwrap();
    let policy = Policy::read(directory.path(), &device).unwrap();
    assert_eq!(policy.parameters().digest(), learner.digest().unwrap());
}

#[test]
fn damage_is_found_and_named() {
    let directory = tempfile::tempdir().unwrap();
    learner(Grpo::default()).save(directory.path()).unwrap();
    let path = directory.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let error = learner(Grpo::default()).load(directory.path()).unwrap_err().to_string();
    assert!(error.contains("model.safetensors") && error.contains("digest"), "{error}");

    std::fs::remove_file(directory.path().join("learner.json")).unwrap();
    let error = learner(Grpo::default()).load(directory.path()).unwrap_err().to_string();
    assert!(error.contains("learner.json"), "{error}");
}

#[test]
fn groups_that_cannot_be_trained_on_are_named() {
    let refuse = |change: fn(&mut anabranch_core::Sample)| {
        let mut batch = groups(1);
        change(&mut batch.groups[2].samples[1]);
        learner(Grpo::default()).step(&batch).unwrap_err().to_string()
    };
    for error in [
        refuse(|sample| sample.reward = None),
        refuse(|sample| sample.reward = Some(f64::NAN)),
        refuse(|sample| sample.tokens[4] = 16),
        refuse(|sample| sample.logprobs.truncate(1)),
    ] {
        assert!(error.contains("group test/0/2#0, sample 1"), "{error}");
    }
    let mut learner = learner(Grpo::default());
    let before = learner.digest().unwrap();
    let error = learner.step(&batch(1, Vec::new())).unwrap_err().to_string();
    assert!(error.contains("expected at least one generated token"), "{error}");
    assert_eq!(learner.digest().unwrap(), before);
}

#[test]
fn groups_without_spread_dilute_the_token_mean() {
    let mut with_flat = groups(1);
    let spread = with_flat.groups.clone();
    let mut flat = spread[1].clone();
    flat.samples.iter_mut().for_each(|sample| sample.reward = Some(1.0));
    with_flat.groups.push(flat);
    let run = |batch: &Batch| learner(Grpo::default()).step(batch).unwrap();
    let (few, many) = (run(&groups(1)), run(&with_flat));
    let share = few.metrics["tokens"] / many.metrics["tokens"];
    assert!(share < 0.9);
    let (few_norm, many_norm) = (few.metrics["grad_norm"], many.metrics["grad_norm"]);
    assert!((many_norm / few_norm - share).abs() < 1e-4, "{few_norm} {many_norm}");
}

#[test]
fn parameters_are_those_of_the_policy_before_the_first_step() {
    let policy = policy();
    let mut learner = policy.learner(AdamW::default()).unwrap();
    let digest = Parameters::digest(policy.parameters());
    assert_eq!(learner.digest().unwrap(), digest);
    assert_eq!(learner.weights().unwrap().digest(), digest);
    assert_eq!(learner.parameters().unwrap().digest(), digest);
}

#[test]
fn a_gradient_that_is_not_finite_stops_the_run_and_changes_nothing() {
    let mut batch = groups(1);
    batch.groups[2].samples[1].logprobs[0] = f32::NEG_INFINITY;
    let mut learner = learner(Grpo::default());
    let before = learner.digest().unwrap();
    let error = learner.step(&batch).unwrap_err().to_string();
    assert!(error.contains("not finite"), "{error}");
    assert_eq!(learner.parameters().unwrap().digest(), before);
}
