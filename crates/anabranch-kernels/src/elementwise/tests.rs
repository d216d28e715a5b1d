use super::{add, axpy, copy, fill};
use crate::testing::{FORWARD, Random, assert_close, device, poisoned, upload};

#[test]
fn each_does_what_it_says_beyond_one_grid_row() {
    let device = device();
    let mut random = Random::new();
    // More cubes than one grid dimension of `grid::cubes` holds.
    for len in [1, 1000, 32_768 * 64 + 5] {
        let (x, y) = (random.normal(len, 1.0), random.normal(len, 1.0));
        let (x_d, y_d) = (upload(&device, &x, &[len]), upload(&device, &y, &[len]));
        axpy(&device, -0.5, &x_d, &y_d);
        let want: Vec<f64> = x.iter().zip(&y).map(|(x, y)| y - 0.5 * x).collect();
        assert_close(&device, "axpy", &y_d, &want, FORWARD);
        let target = poisoned(&device, &[len]);
        copy(&device, &x_d, &target);
        assert_close(&device, "copy", &target, &x, 0.0);
        add(&device, &x_d, &target);
        assert_close(&device, "add", &target, &x.iter().map(|x| 2.0 * x).collect::<Vec<_>>(), 0.0);
        fill(&device, 0.25, &target);
        assert!(target.read(&device).iter().all(|v| v.to_bits() == 0.25f32.to_bits()));
    }
}

#[test]
fn a_view_touches_its_window_alone() {
    let device = device();
    let whole = device.zeros(&[256]);
    fill(&device, 1.0, &whole.view(64, &[70]));
    let values = whole.read(&device);
    assert!(values.iter().enumerate().all(|(i, v)| (*v > 0.5) == (64..134).contains(&i)), "{values:?}");
    assert_eq!(whole.view(64, &[70]).read(&device), vec![1.0; 70]);
}

#[test]
#[should_panic(expected = "is not a multiple of 64 elements")]
fn a_misaligned_view_is_refused() {
    let _ = device().zeros(&[256]).view(3, &[4]);
}
