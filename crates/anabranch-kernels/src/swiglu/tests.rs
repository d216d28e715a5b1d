use super::{backward, forward, reference};
use crate::testing::{FORWARD, GRADIENT, Random, assert_close, assert_gradient, device, dot, poisoned, upload};

#[test]
fn agrees_with_the_reference() {
    let device = device();
    let mut random = Random::new();
    for (rows, width) in [(1, 1), (3, 5), (130, 160)] {
        let gate_up = random.normal(rows * width * 2, 4.0);
        let grad = random.normal(rows * width, 1.0);
        let gate_up_d = upload(&device, &gate_up, &[rows, 2 * width]);
        let out = poisoned(&device, &[rows, width]);
        forward(&device, &gate_up_d, &out);
        assert_close(&device, "out", &out, &reference::forward(&gate_up, width), FORWARD);
        let grad_gate_up = poisoned(&device, &[rows, 2 * width]);
        backward(&device, &gate_up_d, &upload(&device, &grad, &[rows, width]), &grad_gate_up);
        assert_close(&device, "grad", &grad_gate_up, &reference::backward(&gate_up, width, &grad), GRADIENT);
    }
}

#[test]
fn large_gates_stay_finite() {
    let device = device();
    let gate_up = device.tensor(&[100.0, -100.0, 1000.0, -1000.0, 1.0, 1.0, 1.0, 1.0], &[1, 8]);
    let out = poisoned(&device, &[1, 4]);
    forward(&device, &gate_up, &out);
    let out = out.read(&device);
    assert!((out[0] - 100.0).abs() < 1e-3 && (out[2] - 1000.0).abs() < 1e-2, "{out:?}");
    assert!(out[1].abs() < 1e-30 && out[3].abs() < 1e-30, "{out:?}");
}

#[test]
fn the_reference_gradient_is_the_derivative() {
    let mut random = Random::new();
    let gate_up = random.normal(24, 2.0);
    let grad = random.normal(12, 1.0);
    let want = reference::backward(&gate_up, 4, &grad);
    assert_gradient("gate_up", &gate_up, &want, |g| dot(&reference::forward(g, 4), &grad));
}
