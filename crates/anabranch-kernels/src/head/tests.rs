use super::{Head, HeadGradient, HeadOutput, backward, forward, reference};
use crate::Device;
use crate::testing::{
    FORWARD, GRADIENT, Random, TestRuntime, assert_close, assert_gradient, bits, device, dot, poisoned, upload,
};

fn output(device: &Device<TestRuntime>, rows: usize) -> HeadOutput<TestRuntime> {
    HeadOutput {
        log_prob: poisoned(device, &[rows]),
        entropy: poisoned(device, &[rows]),
        state: poisoned(device, &[rows, 4]),
    }
}

/// (rows, width, vocabulary, chunk): one chunk, several that do not divide the vocabulary, rows long enough for a cube.
const CASES: [(usize, usize, usize, usize); 5] =
    [(70, 64, 16, 8192), (9, 20, 200, 64), (5, 12, 130, 128), (3, 8, 1300, 640), (2, 4, 1, 64)];

#[test]
fn forward_and_backward_agree_in_one_chunk_and_in_several() {
    let device = device();
    let mut random = Random::new();
    for (rows, width, vocab, chunk) in CASES {
        for temperature in [1.0f32, 0.7] {
            let head = Head::new(chunk);
            let tau = f64::from(temperature);
            let (hidden, weight) = (random.normal(rows * width, 1.0), random.normal(vocab * width, 0.7));
            let targets = random.ids(rows, vocab);
            let (hidden_d, weight_d, targets_d) = (
                upload(&device, &hidden, &[rows, width]),
                upload(&device, &weight, &[vocab, width]),
                device.ids(&targets),
            );
            let out = output(&device, rows);
            forward(&device, &head, &hidden_d, &weight_d, &targets_d, temperature, &out);
            let (want, want_entropy) = reference::forward(&hidden, &weight, width, &targets, tau);
            let case = format!("{rows} {width} {vocab} {chunk} {temperature}");
            assert_close(&device, &format!("log p {case}"), &out.log_prob, &want, FORWARD);
            assert_close(&device, &format!("entropy {case}"), &out.entropy, &want_entropy, FORWARD);

            let (grad, grad_entropy) = (random.normal(rows, 1.0), random.normal(rows, 1.0));
            let before = random.normal(vocab * width, 1.0);
            for with_entropy in [false, true] {
                let (grad_d, grad_entropy_d) =
                    (upload(&device, &grad, &[rows]), upload(&device, &grad_entropy, &[rows]));
                let gradient = HeadGradient { log_prob: &grad_d, entropy: with_entropy.then_some(&grad_entropy_d) };
                let grad_hidden = poisoned(&device, &[rows, width]);
                let grad_weight = upload(&device, &before, &[vocab, width]);
                backward(
                    &device,
                    &head,
                    &hidden_d,
                    &weight_d,
                    &targets_d,
                    temperature,
                    &out,
                    gradient,
                    &grad_hidden,
                    &grad_weight,
                );
                let used = if with_entropy { grad_entropy.clone() } else { vec![0.0; rows] };
                let (want_hidden, want_weight) =
                    reference::backward(&hidden, &weight, width, &targets, tau, &grad, &used);
                let want_weight: Vec<f64> = want_weight.iter().zip(&before).map(|(a, b)| a + b).collect();
                assert_close(&device, &format!("hidden {case}"), &grad_hidden, &want_hidden, GRADIENT);
                assert_close(&device, &format!("weight {case}"), &grad_weight, &want_weight, GRADIENT);
            }
        }
    }
}

#[test]
fn the_reference_gradient_is_the_derivative() {
    let mut random = Random::new();
    let (rows, width, vocab, tau) = (3, 4, 5, 0.8);
    let (hidden, weight) = (random.normal(rows * width, 1.0), random.normal(vocab * width, 1.0));
    let targets = random.ids(rows, vocab);
    let (grad, grad_entropy) = (random.normal(rows, 1.0), random.normal(rows, 1.0));
    let loss = |hidden: &[f64], weight: &[f64]| {
        let (log_prob, entropy) = reference::forward(hidden, weight, width, &targets, tau);
        dot(&log_prob, &grad) + dot(&entropy, &grad_entropy)
    };
    let (grad_hidden, grad_weight) = reference::backward(&hidden, &weight, width, &targets, tau, &grad, &grad_entropy);
    assert_gradient("hidden", &hidden, &grad_hidden, |h| loss(h, &weight));
    assert_gradient("weight", &weight, &grad_weight, |w| loss(&hidden, w));
}

#[test]
fn a_row_has_the_same_bits_in_every_batch() {
    let device = device();
    let mut random = Random::new();
    for (width, vocab, chunk) in [(64, 16, 64), (12, 200, 64), (8, 1300, 640)] {
        let hidden = random.normal(130 * width, 1.0);
        let weight = upload(&device, &random.normal(vocab * width, 1.0), &[vocab, width]);
        let targets = random.ids(130, vocab);
        let run = |first: usize, rows: usize| {
            let out = output(&device, rows);
            let hidden = upload(&device, &hidden[first * width..(first + rows) * width], &[rows, width]);
            let targets = device.ids(&targets[first..first + rows]);
            forward(&device, &Head::new(chunk), &hidden, &weight, &targets, 0.9, &out);
            (bits(&out.log_prob.read(&device)), bits(&out.entropy.read(&device)))
        };
        let all = run(0, 130);
        for (first, rows) in [(0, 1), (129, 1), (3, 64), (60, 65)] {
            let part = run(first, rows);
            assert_eq!(part.0, all.0[first..first + rows], "log p {first} {rows} {vocab}");
            assert_eq!(part.1, all.1[first..first + rows], "entropy {first} {rows} {vocab}");
        }
    }
}

/// The largest logit in the last chunk, the target in the first, and differences beyond what exp can hold.
#[test]
fn extreme_logits_stay_finite_across_chunks() {
    let device = device();
    let vocab = 100;
    let mut weight = vec![0.0; vocab];
    weight[99] = 200.0;
    weight[3] = -300.0;
    let out = output(&device, 2);
    let hidden = upload(&device, &[1.0, 1.0], &[2, 1]);
    let weight_d = upload(&device, &weight, &[vocab, 1]);
    forward(&device, &Head::new(64), &hidden, &weight_d, &device.ids(&[3, 99]), 1.0, &out);
    let log_prob = out.log_prob.read(&device);
    assert!((log_prob[0] + 500.0).abs() < 1e-3 && log_prob[1].abs() < 1e-6, "{log_prob:?}");
    let entropy = out.entropy.read(&device);
    assert!(entropy.iter().all(|h| h.abs() < 1e-6), "{entropy:?}");
}

#[test]
#[should_panic(expected = "`temperature` must be positive and finite, it is 0")]
fn no_temperature_is_refused() {
    let device = device();
    let out = output(&device, 1);
    let zeros = device.zeros(&[1, 4]);
    forward(&device, &Head::default(), &zeros, &zeros, &device.ids(&[0]), 0.0, &out);
}
