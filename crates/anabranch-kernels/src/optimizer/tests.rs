use super::*;
use crate::testing::device;

const SETTINGS: AdamW =
    AdamW { learning_rate: 3e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, max_norm: Some(1.0) };

/// Numbers of both signs in about ±scale that repeat after a long while.
fn wave(len: usize, scale: f32, seed: f32) -> Vec<f32> {
    (0..len).map(|i| scale * ((i as f32 * 0.7371 + seed).sin() + 0.1 * (i as f32 * 0.013).cos())).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|v| f64::from(*v)).collect()
}

fn assert_close(name: &str, found: &[f64], exact: &[f64], tolerance: f64) {
    assert_eq!(found.len(), exact.len());
    let error = reference::gradient_norm(&found.iter().zip(exact).map(|(f, e)| f - e).collect::<Vec<_>>());
    let norm = reference::gradient_norm(exact);
    assert!(error <= tolerance * norm, "{name}: error {error} of norm {norm}");
}

fn norm_of(grads: &[f32]) -> f32 {
    let device = device();
    let norm = GradientNorm::new(&device, grads.len());
    crate::elementwise::fill(&device, f32::NAN, &norm.value);
    crate::elementwise::fill(&device, f32::NAN, &norm.partial);
    gradient_norm(&device, &device.tensor(grads, &[grads.len()]), &norm);
    norm.value.read(&device)[0]
}

#[test]
fn norms_match_the_reference() {
    // Around the block, the cube, the tree and (the last) the largest number of units, with uneven blocks each.
    for len in [1, 2, 63, 64, 65, 127, 129, 4095, 8191, 8193, 100_003, 16_384 * 64 * 2 + 77] {
        let grads = wave(len, 0.3, 1.0);
        let (found, exact) = (f64::from(norm_of(&grads)), reference::gradient_norm(&wide(&grads)));
        assert!((found - exact).abs() <= 1e-5 * exact, "{len}: {found}, reference {exact}");
    }
    assert_eq!(norm_of(&[3.0, 4.0]).to_bits(), 5.0f32.to_bits());
    assert_eq!(norm_of(&[0.0; 77]).to_bits(), 0.0f32.to_bits());
}

#[test]
fn long_sums_of_one_sign_keep_their_digits() {
    // 3 million equal squares: a plain f32 sum loses the fifth digit long before its end.
    let len = 3_000_001;
    let (found, exact) = (f64::from(norm_of(&vec![0.1; len])), f64::from(0.1f32) * (len as f64).sqrt());
    assert!((found - exact).abs() <= 1e-6 * exact, "{found}, exact {exact}");
}

#[test]
fn a_gradient_that_is_not_finite_shows_in_the_norm() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
        for at in [0, 64, 5_000, 9_999] {
            let mut grads = wave(10_000, 1.0, 0.0);
            grads[at] = bad;
            assert!(!norm_of(&grads).is_finite(), "{bad} at {at}");
        }
    }
}

#[test]
fn the_norm_is_the_same_every_time() {
    let grads = wave(200_003, 1.0, 0.5);
    let first = norm_of(&grads).to_bits();
    assert!((0..3).all(|_| norm_of(&grads).to_bits() == first));
}

/// Three updates on the device and in f64: (parameters, first, second) of each, and the parameters before.
fn updates(settings: &AdamW, len: usize, decayed: usize, scale: f32) -> [[Vec<f64>; 3]; 2] {
    let device = device();
    let start = wave(len, 0.5, 2.0);
    let buffer = |values: &[f32]| device.tensor(values, &[len]);
    let (params, first, second) = (buffer(&start), buffer(&vec![0.0; len]), buffer(&vec![0.0; len]));
    let norm = GradientNorm::new(&device, len);
    let (mut p, mut m, mut v) = (wide(&start), vec![0.0; len], vec![0.0; len]);
    for step in 1..=3 {
        let grads = wave(len, scale, step as f32);
        let on_device = buffer(&grads);
        gradient_norm(&device, &on_device, &norm);
        adamw(&device, settings, step, decayed, &params, &on_device, &first, &second, &norm);
        reference::adamw(settings, step, decayed, &mut p, &wide(&grads), &mut m, &mut v);
    }
    let moved = |after: &[f64]| after.iter().zip(&start).map(|(a, s)| a - f64::from(*s)).collect::<Vec<_>>();
    let found = device.read_many(&[&params, &first, &second]);
    [[moved(&wide(&found[0])), wide(&found[1]), wide(&found[2])], [moved(&p), m, v]]
}

#[test]
fn updates_match_the_reference() {
    for len in [1, 63, 65, 1000, 4099] {
        for decayed in [0, len / 2, len] {
            for max_norm in [None, Some(1.0), Some(1e6)] {
                let settings = AdamW { max_norm, ..SETTINGS };
                let [found, exact] = updates(&settings, len, decayed, 2.0);
                // How far the parameters moved: a rounding of the parameter (0.5 · 6e-8) is 1e-5 of the way (3e-3).
                assert_close("movement", &found[0], &exact[0], 1e-4);
                assert_close("first", &found[1], &exact[1], 1e-5);
                assert_close("second", &found[2], &exact[2], 1e-5);
            }
        }
    }
}

#[test]
fn an_update_by_hand() {
    // Norm 5 clipped to 1: g = 0.6, 0.8. At step 1 the corrected moments are g and g².
    let device = device();
    let one = |values: &[f32]| device.tensor(values, &[2]);
    let (params, grads) = (one(&[1.0, 1.0]), one(&[3.0, 4.0]));
    let (first, second, norm) = (one(&[0.0, 0.0]), one(&[0.0, 0.0]), GradientNorm::new(&device, 2));
    let settings = AdamW { learning_rate: 0.1, eps: 0.2, weight_decay: 0.5, ..SETTINGS };
    gradient_norm(&device, &grads, &norm);
    adamw(&device, &settings, 1, 1, &params, &grads, &first, &second, &norm);
    let read = device.read_many(&[&params, &first, &second, &norm.value]);
    let expected = [[1.0 - 0.05 - 0.1 * 0.6 / 0.8, 1.0 - 0.1 * 0.8 / 1.0], [0.06, 0.08], [0.018, 0.032]];
    for (found, expected) in read.iter().zip(expected) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-6, "{read:?}");
        }
    }
    assert_eq!(read[3][0].to_bits(), 5.0f32.to_bits());
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let device = device();
    let len = 130;
    for bad in [f32::NAN, f32::INFINITY] {
        let start = [wave(len, 0.5, 1.0), wave(len, 0.1, 2.0), vec![0.25; len]];
        let [params, first, second] = [0, 1, 2].map(|i: usize| device.tensor(&start[i], &[len]));
        let mut grads = wave(len, 1.0, 3.0);
        grads[77] = bad;
        let grads = device.tensor(&grads, &[len]);
        let norm = GradientNorm::new(&device, len);
        gradient_norm(&device, &grads, &norm);
        adamw(&device, &AdamW { max_norm: None, ..SETTINGS }, 4, len, &params, &grads, &first, &second, &norm);
        assert_eq!(device.read_many(&[&params, &first, &second]), start, "{bad}");
        assert!(!norm.value.read(&device)[0].is_finite());
    }
}

#[test]
#[should_panic(expected = "optimizer::adamw: `second`")]
fn a_short_moment_is_refused() {
    let device = device();
    let (long, short) = (device.zeros(&[3]), device.zeros(&[2]));
    adamw(&device, &SETTINGS, 1, 0, &long, &long, &long, &short, &GradientNorm::new(&device, 3));
}
