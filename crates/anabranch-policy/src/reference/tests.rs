use super::{Real, Trace, backward, forward};
use crate::config::Config;
use crate::fixture::Fixture;
use crate::layout::Layout;
use crate::packed::Packed;
use crate::parameters::Parameters;

fn small(tied: bool) -> (Config, Packed) {
    let config = Config {
        vocab: 9,
        hidden: 12,
        ffn: 10,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        tied,
        ..Config::tiny(9)
    };
    let mut packed = Packed::new();
    packed.push(&[1, 2, 3, 4, 5], |i| i >= 2);
    packed.push(&[8, 1, 8], |_| true);
    packed.push(&[0, 7, 6, 6, 2, 3, 1, 5], |i| i > 3 && i != 5);
    (config, packed)
}

fn loss(trace: &Trace<f64>, factors: &[f64]) -> f64 {
    trace.log_probs.iter().zip(factors).map(|(l, f)| l * f).sum()
}

#[test]
fn gradients_match_finite_differences() {
    for tied in [false, true] {
        let (config, packed) = small(tied);
        let layout = Layout::new(&config);
        let init = Parameters::init(&config, 5).unwrap();
        // Spread out, so that no activation is near linear.
        let mut parameters: Vec<f64> = init.data().iter().map(|v| f64::from(*v) * 15.0).collect();
        for slot in layout.slots().iter().filter(|slot| slot.shape.len() == 1) {
            for (i, value) in parameters[slot.range()].iter_mut().enumerate() {
                *value = 1.0 + 0.1 * (i as f64).sin();
            }
        }
        let temperature = 0.7;
        let run = |parameters: &[f64]| forward(&config, &layout, parameters, &packed, temperature);
        let trace = run(&parameters);
        let factors: Vec<f64> = (0..packed.scored.len()).map(|i| (i as f64 * 1.7).cos()).collect();
        let gradient = backward(&config, &layout, &parameters, &packed, &trace, &factors, temperature);
        for slot in layout.slots() {
            // A stride coprime to the widths visits different rows and columns.
            for index in slot.range().step_by(7) {
                let step = 1e-5;
                let kept = parameters[index];
                parameters[index] = kept + step;
                let above = loss(&run(&parameters), &factors);
                parameters[index] = kept - step;
                let below = loss(&run(&parameters), &factors);
                parameters[index] = kept;
                let measured = (above - below) / (2.0 * step);
                let error = (measured - gradient[index]).abs();
                let scale = measured.abs().max(1e-2);
                assert!(error < 1e-6 * scale, "{} [{index}]: {measured} {}", slot.name, gradient[index]);
            }
        }
        let covered: usize = layout.slots().iter().map(|slot| slot.range().step_by(7).count()).sum();
        assert!(covered > 100);
    }
}

#[test]
fn probabilities_sum_to_one_and_entropy_is_theirs() {
    let (config, packed) = small(false);
    let layout = Layout::new(&config);
    let parameters = Parameters::init(&config, 5).unwrap();
    let wide: Vec<f64> = parameters.data().iter().map(|v| f64::from(*v) * 10.0).collect();
    let trace = forward(&config, &layout, &wide, &packed, 1.0);
    for (index, row) in trace.probabilities.chunks_exact(config.vocab).enumerate() {
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let entropy: f64 = row.iter().map(|p| -p * p.ln()).sum();
        assert!((entropy - trace.entropies[index]).abs() < 1e-12);
        let target = packed.targets[index] as usize;
        assert!((row[target].ln() - trace.log_probs[index]).abs() < 1e-12);
    }
}

#[test]
fn fixture_of_another_implementation() {
    let fixture = Fixture::read();
    check_fixture::<f64>(&fixture, 1e-6);
    check_fixture::<f32>(&fixture, 1e-5);
}

/// Both sides are stored or computed in single precision: `tolerance` is relative to the largest entry of a tensor.
fn check_fixture<T: Real>(fixture: &Fixture, tolerance: f64) {
    let weights: Vec<T> = fixture.weights.data().iter().map(|v| T::of(f64::from(*v))).collect();
    let factors: Vec<T> = fixture.factors.iter().map(|v| T::of(f64::from(*v))).collect();
    let layout = fixture.weights.layout();
    let (packed, temperature) = (&fixture.packed, fixture.temperature);
    let trace = forward(&fixture.config, layout, &weights, packed, temperature);
    let scores: Vec<f32> = trace.log_probs.iter().map(|v| v.wide() as f32).collect();
    fixture.check_log_probs(&scores, tolerance);
    let gradient = backward(&fixture.config, layout, &weights, packed, &trace, &factors, temperature);
    let gradient: Vec<f32> = gradient.iter().map(|v| v.wide() as f32).collect();
    fixture.check_gradients(&gradient, tolerance);
}
