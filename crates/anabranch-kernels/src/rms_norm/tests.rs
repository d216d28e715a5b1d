use super::{backward, forward, reference};
use crate::testing::{FORWARD, GRADIENT, Random, assert_close, assert_gradient, bits, device, dot, poisoned, upload};

const EPS: f64 = 1e-5;

#[test]
fn agrees_with_the_reference_for_short_and_long_rows() {
    let device = device();
    let mut random = Random::new();
    for (rows, width) in [(1, 1), (3, 7), (70, 64), (300, 33), (5, 513), (3, 1030)] {
        let x = random.normal(rows * width, 2.0);
        let weight = random.normal(width, 1.0);
        let grad = random.normal(rows * width, 1.0);
        let before = random.normal(rows * width, 1.0);
        let before_weight = random.normal(width, 1.0);
        let (x_d, w_d, g_d) = (
            upload(&device, &x, &[rows, width]),
            upload(&device, &weight, &[width]),
            upload(&device, &grad, &[rows, width]),
        );
        let (out, inv_rms) = (poisoned(&device, &[rows, width]), poisoned(&device, &[rows]));
        forward(&device, &x_d, &w_d, EPS as f32, &out, &inv_rms);
        let (want, want_inv) = reference::forward(&x, &weight, EPS);
        assert_close(&device, "out", &out, &want, FORWARD);
        assert_close(&device, "inv_rms", &inv_rms, &want_inv, FORWARD);

        let grad_x = upload(&device, &before, &[rows, width]);
        let grad_weight = upload(&device, &before_weight, &[width]);
        backward(&device, &x_d, &w_d, &inv_rms, &g_d, &grad_x, &grad_weight);
        let (want_x, want_weight) = reference::backward(&x, &weight, EPS, &grad);
        let added = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>();
        assert_close(&device, "grad_x", &grad_x, &added(&before, &want_x), GRADIENT);
        assert_close(&device, "grad_weight", &grad_weight, &added(&before_weight, &want_weight), GRADIENT);
    }
}

#[test]
fn the_reference_gradient_is_the_derivative() {
    let mut random = Random::new();
    let (rows, width) = (3, 5);
    let x = random.normal(rows * width, 1.0);
    let weight = random.normal(width, 1.0);
    let grad = random.normal(rows * width, 1.0);
    let (grad_x, grad_weight) = reference::backward(&x, &weight, EPS, &grad);
    assert_gradient("x", &x, &grad_x, |x| dot(&reference::forward(x, &weight, EPS).0, &grad));
    assert_gradient("weight", &weight, &grad_weight, |w| dot(&reference::forward(&x, w, EPS).0, &grad));
}

#[test]
fn a_row_has_the_same_bits_in_every_batch() {
    let device = device();
    let mut random = Random::new();
    for width in [64, 700] {
        let x = random.normal(65 * width, 1.0);
        let weight = upload(&device, &random.normal(width, 1.0), &[width]);
        let run = |rows: usize| {
            let out = poisoned(&device, &[rows, width]);
            let inv_rms = poisoned(&device, &[rows]);
            forward(&device, &upload(&device, &x[..rows * width], &[rows, width]), &weight, 1e-6, &out, &inv_rms);
            bits(&out.read(&device)[..width])
        };
        let alone = run(1);
        for rows in [2, 7, 64, 65] {
            assert_eq!(alone, run(rows), "row 0 of {rows} rows of {width}");
        }
    }
}

#[test]
#[should_panic(expected = "rms_norm::forward: `weight` must have shape [4]")]
fn a_wrong_shape_names_its_argument() {
    let device = device();
    let x = device.zeros(&[2, 4]);
    forward(&device, &x, &device.zeros(&[5]), 1e-5, &device.zeros(&[2, 4]), &device.zeros(&[2]));
}
