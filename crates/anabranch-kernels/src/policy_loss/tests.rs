use super::reference::Token;
use super::*;
use crate::testing::device;

const PLAIN: Clip = Clip { low: 0.2, high: 0.2, dual: None };
const WIDE: Clip = Clip { low: 0.3, high: 0.5, dual: Some(2.0) };
const CORRECTIONS: [Correction; 3] = [Correction::None, Correction::Decoupled, Correction::Truncated { cap: 0.8 }];

fn token(log_prob: f32, proximal: f32, behaviour: f32, advantage: f32) -> Token {
    let [log_prob, proximal, behaviour, advantage] = [log_prob, proximal, behaviour, advantage].map(f64::from);
    Token { log_prob, proximal, behaviour, advantage, mask: true, entropy: 0.5 }
}

/// The shared vector of formulas.md.
fn shared() -> Vec<Token> {
    vec![token(-1.693_147_2, -1.0, -0.5, 1.0), token(-1.0, -1.0, -1.5, -1.0), token(-0.594_534_9, -1.0, -0.8, 2.0)]
}

/// Tokens whose ratios and weights lie on all sides of every bound, every fifth masked out.
fn tokens(n: usize) -> Vec<Token> {
    let make = |i: usize| {
        let x = i as f32;
        let proximal = -1.5 + (x * 0.61).sin();
        let mut token = token(
            proximal + 1.1 * (x * 1.37).sin() * (x * 0.11).cos(),
            proximal,
            proximal + 0.7 * (x * 2.1).cos(),
            [1.3, -0.7, 0.0, 2.1, -1.9, 0.4, -0.2][i % 7],
        );
        token.mask = i % 5 != 3;
        token.entropy = f64::from(1.0 + (x * 0.3).sin());
        token
    };
    (0..n).map(make).collect()
}

/// Metrics and gradient from the device, into outputs full of NaN.
fn run(clip: &Clip, correction: Correction, tokens: &[Token], scale: f32) -> (Metrics, Vec<f32>) {
    let device = device();
    let column = |of: fn(&Token) -> f64| {
        let values: Vec<f32> = tokens.iter().map(|t| of(t) as f32).collect();
        device.tensor(&values, &[values.len()])
    };
    let inputs = Inputs {
        log_prob: column(|t| t.log_prob),
        proximal: column(|t| t.proximal),
        behaviour: column(|t| t.behaviour),
        advantages: column(|t| t.advantage),
        mask: column(|t| f64::from(u8::from(t.mask))),
        entropy: column(|t| t.entropy),
    };
    let grad = device.tensor(&vec![f32::NAN; tokens.len()], &[tokens.len()]);
    let output = LossOutput::new(&device, tokens.len());
    crate::elementwise::fill(&device, f32::NAN, &output.partial);
    forward_backward(&device, clip, &correction, &inputs, scale, &grad, &output);
    (output.read(&device), grad.read(&device))
}

fn assert_near(name: &str, found: f64, exact: f64, tolerance: f64) {
    assert!((found - exact).abs() <= tolerance, "{name}: {found}, expected {exact}");
}

#[test]
fn the_shared_vector() {
    // −r·A = −0.5 and +1 for the first two, −1.2 · 2 for the third, which is clipped. By hand and in closed form: the printed
    // −0.2064977 and −0.4744227 of formulas.md are 1.6e-6 and 0.9e-6 away from what its own weights give.
    let (near, far, third) = ((-0.5f64).exp(), 0.5f64.exp(), (-0.2f64).exp());
    let expected = [-1.9 / 3.0, (far - 0.5 * near - 2.4 * third) / 3.0, (0.8 - 0.5 * near - 2.4 * 0.8) / 3.0];
    for (exact, printed) in expected.iter().zip([-0.633_333_3, -0.206_497_7, -0.474_422_7]) {
        assert_near("formulas.md", *exact, printed, 2e-6);
    }
    for (correction, expected) in CORRECTIONS.iter().zip(expected) {
        for (side, metrics) in [
            ("reference", reference::forward_backward(&PLAIN, correction, &shared(), 1.0).0),
            ("device", run(&PLAIN, *correction, &shared(), 1.0).0),
        ] {
            let name = format!("{side} {correction:?}");
            assert_near(&name, metrics.loss_sum / metrics.tokens, expected, 5e-7);
            assert_near(&name, metrics.effective_sample_size(), 0.838_49, 5e-6);
            assert_near(&name, metrics.weight_sum, 0.606_530_7 + 1.648_721_3 + 0.818_730_8, 1e-6);
            assert_near(&name, metrics.ratio_sum, 3.0, 1e-6);
            assert_near(&name, metrics.max_ratio_deviation, 0.5, 1e-6);
            // The third token alone is beyond a bound that its advantage pushes against.
            assert_near(&name, metrics.clipped, 1.0, 0.0);
            assert_near(&name, metrics.entropy_sum, 1.5, 1e-6);
        }
    }
}

#[test]
fn k3_of_formulas() {
    // d = 1: 0.7183; d = 15 and the clamp at 20; a small d has d²/2 although e^d − 1 − d has no digits left in f32.
    for (d, expected) in [(1.0f32, 0.718_281_8), (15.0, 15.0f64.exp() - 16.0), (30.0, 20.0f64.exp() - 21.0)] {
        let metrics = run(&PLAIN, Correction::None, &[token(-1.0, -1.0, -1.0 - d, 1.0)], 1.0).0;
        assert_near("k3", metrics.kl_k3_sum / expected, 1.0, 1e-5);
    }
    for d in [1e-3f32, -1e-3, 0.2, -0.2, 0.249, -0.249, 0.251, -0.251] {
        let given = token(d, 0.0, 0.0, 1.0);
        let (found, exact) = (run(&PLAIN, Correction::None, &[given], 1.0).0, f64::from(d).exp_m1());
        // Beyond the series the difference costs less than two digits: 0.03 of 1.3.
        assert_near("k3", found.kl_k3_sum / (exact - f64::from(d)), 1.0, 1e-5);
        assert_near("deviation", found.max_ratio_deviation / exact.abs(), 1.0, 1e-5);
    }
}

#[test]
fn the_device_matches_the_reference() {
    for clip in [PLAIN, WIDE, Clip { low: 0.0, high: 0.28, dual: Some(1.2) }] {
        for correction in CORRECTIONS {
            for n in [1, 3, 15, 16, 17, 64, 1023, 5001] {
                let tokens = tokens(n);
                let scale = 1.0 / n as f32;
                let (exact, exact_grads) = reference::forward_backward(&clip, &correction, &tokens, f64::from(scale));
                let (found, grads) = run(&clip, correction, &tokens, scale);
                let name = format!("{clip:?} {correction:?} {n}");
                let size: f64 = tokens.iter().filter(|t| t.mask).map(|t| t.advantage.abs()).sum();
                // The loss is a sum of both signs: relative to the sum of the magnitudes.
                assert_near(&name, found.loss_sum, exact.loss_sum, 1e-5 * size);
                assert_near(&name, found.tokens, exact.tokens, 0.0);
                assert_near(&name, found.clipped, exact.clipped, 0.0);
                for (found, exact) in [
                    (found.kl_k3_sum, exact.kl_k3_sum),
                    (found.ratio_sum, exact.ratio_sum),
                    (found.max_ratio_deviation, exact.max_ratio_deviation),
                    (found.weight_sum, exact.weight_sum),
                    (found.weight_square_sum, exact.weight_square_sum),
                    (found.entropy_sum, exact.entropy_sum),
                ] {
                    assert_near(&name, found, exact, 1e-5 * exact);
                }
                let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
                let error = square(&mut grads.iter().zip(&exact_grads).map(|(f, e)| f64::from(*f) - e));
                let norm = square(&mut exact_grads.iter().copied());
                assert!(error <= 1e-4 * norm, "{name}: gradient error {error} of norm {norm}");
            }
        }
    }
}

/// Both sides of a bound on the ratio, and well inside and outside.
fn around(bound: f64) -> [f64; 4] {
    [bound * 0.9, bound - 1e-3, bound + 1e-3, bound * 1.1]
}

#[test]
fn gradients_match_finite_differences() {
    let mut seen = [0, 0];
    for correction in CORRECTIONS {
        for clip in [PLAIN, WIDE] {
            let edges = [1.0 - f64::from(clip.low), 1.0 + f64::from(clip.high), 2.0];
            for ratio in edges.into_iter().flat_map(around) {
                for advantage in [1.7, -1.7] {
                    for weight in [0.79f64, 0.81, 1.4] {
                        for mask in [true, false] {
                            let log_prob = -1.0 + ratio.ln();
                            let behaviour = -1.0 - weight.ln();
                            let given = Token { log_prob, proximal: -1.0, behaviour, advantage, mask, entropy: 0.3 };
                            let loss = |shift: f64| {
                                let moved = Token { log_prob: log_prob + shift, ..given };
                                reference::forward_backward(&clip, &correction, &[moved], 1.0).0.loss_sum
                            };
                            let slope = 0.25 * (loss(1e-6) - loss(-1e-6)) / 2e-6;
                            let (_, exact) = reference::forward_backward(&clip, &correction, &[given], 0.25);
                            let name = format!("{clip:?} {correction:?} {given:?}");
                            assert_near(&name, exact[0], slope, 1e-8);
                            let (_, found) = run(&clip, correction, &[given], 0.25);
                            assert_near(&name, f64::from(found[0]), slope, 1e-4 * slope.abs());
                            seen[usize::from(slope == 0.0)] += usize::from(mask);
                        }
                    }
                }
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 30), "both sides of the clip: {seen:?}");
}

#[test]
fn equal_log_probs_give_ratios_of_exactly_one() {
    let tokens: Vec<Token> = (0..777).map(|i| token(-0.013 * i as f32, -0.013 * i as f32, -2.0, 1.0)).collect();
    let metrics = run(&PLAIN, Correction::Decoupled, &tokens, 1.0).0;
    assert_near("ratios", metrics.ratio_sum, 777.0, 0.0);
    assert_near("deviation", metrics.max_ratio_deviation, 0.0, 0.0);
    assert_near("clipped", metrics.clipped, 0.0, 0.0);
}

#[test]
fn far_ratios_stay_finite() {
    for advantage in [1.0, -1.0] {
        for distance in [-500.0f32, -21.0, 21.0, 500.0] {
            let given = [token(-600.0 + distance, -600.0, -600.0 - distance, advantage)];
            let (exact, exact_grads) = reference::forward_backward(&PLAIN, &Correction::Decoupled, &given, 1.0);
            let (found, grads) = run(&PLAIN, Correction::Decoupled, &given, 1.0);
            assert_near("loss", found.loss_sum, exact.loss_sum, 1e-5 * exact.loss_sum.abs());
            assert_near("squares", found.weight_square_sum, exact.weight_square_sum, 1e-5 * exact.weight_square_sum);
            assert_eq!([f64::from(grads[0])].as_slice(), exact_grads);
        }
    }
}

#[test]
fn masked_tokens_take_no_part_whatever_they_hold() {
    let mut spoiled = tokens(100);
    for token in spoiled.iter_mut().filter(|t| !t.mask) {
        let nan = f64::NAN;
        *token =
            Token { log_prob: nan, proximal: f64::INFINITY, behaviour: nan, advantage: nan, entropy: nan, ..*token };
    }
    let (metrics, grads) = run(&WIDE, Correction::Decoupled, &spoiled, 1.0);
    assert_eq!((metrics, grads.clone()), run(&WIDE, Correction::Decoupled, &tokens(100), 1.0));
    assert!(spoiled.iter().zip(&grads).all(|(t, g)| t.mask || *g == 0.0));
    let all_masked: Vec<Token> = spoiled.into_iter().filter(|t| !t.mask).collect();
    assert_eq!(run(&WIDE, Correction::Decoupled, &all_masked, 1.0), (Metrics::default(), vec![0.0; 20]));
}

#[test]
fn a_value_that_is_not_finite_shows() {
    let spoil: [fn(&mut Token, f64); 4] =
        [|t, bad| t.log_prob = bad, |t, bad| t.proximal = bad, |t, bad| t.behaviour = bad, |t, bad| t.advantage = bad];
    for spoil in spoil {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut given = tokens(50);
            spoil(&mut given[7], bad);
            let (metrics, grads) = run(&PLAIN, Correction::Truncated { cap: 0.8 }, &given, 1.0);
            assert!(grads.iter().enumerate().all(|(i, g)| g.is_nan() == (i == 7)), "{bad}: {grads:?}");
            assert!(metrics.loss_sum.is_nan() && metrics.clipped.is_nan() && metrics.kl_k3_sum.is_nan());
            assert!(metrics.max_ratio_deviation.is_nan() && metrics.effective_sample_size().is_nan());
            assert_near("tokens", metrics.tokens, 40.0, 0.0);
            let merged = Metrics::default().merge(metrics).merge(run(&PLAIN, Correction::None, &tokens(9), 1.0).0);
            assert!(merged.loss_sum.is_nan() && merged.max_ratio_deviation.is_nan());
        }
    }
}

#[test]
fn micro_batches_add_up() {
    let all = tokens(500);
    let (whole, grads) = run(&WIDE, Correction::Decoupled, &all, 0.002);
    let parts: Vec<_> =
        [&all[..77], &all[77..300], &all[300..]].map(|part| run(&WIDE, Correction::Decoupled, part, 0.002)).into();
    let merged = parts.iter().map(|(metrics, _)| *metrics).reduce(Metrics::merge).unwrap();
    assert_near("loss", merged.loss_sum, whole.loss_sum, 1e-4);
    assert_near("kl", merged.kl_k3_sum, whole.kl_k3_sum, 1e-5 * whole.kl_k3_sum);
    assert_eq!((merged.tokens, merged.clipped), (whole.tokens, whole.clipped));
    assert_eq!(merged.max_ratio_deviation.to_bits(), whole.max_ratio_deviation.to_bits());
    // A token's gradient does not depend on the tokens around it.
    assert_eq!(parts.iter().flat_map(|(_, grads)| grads.clone()).collect::<Vec<_>>(), grads);
}

#[test]
fn no_tokens_have_no_metrics() {
    assert_eq!(run(&PLAIN, Correction::None, &[], 1.0), (Metrics::default(), vec![]));
}

#[test]
#[should_panic(expected = "policy_loss::forward_backward: `output`")]
fn an_output_for_another_batch_is_refused() {
    let device = device();
    let three = device.zeros(&[3]);
    let inputs = Inputs {
        log_prob: three.clone(),
        proximal: three.clone(),
        behaviour: three.clone(),
        advantages: three.clone(),
        mask: three.clone(),
        entropy: three.clone(),
    };
    let output = LossOutput::new(&device, 4);
    forward_backward(&device, &PLAIN, &Correction::None, &inputs, 1.0, &three, &output);
}
