use super::*;
use crate::testing::device;

const KINDS: [Kind; 3] = [Kind::Grpo { eps: 1e-6 }, Kind::MeanOnly, Kind::Rloo];

/// Runs the kernel over groups laid end to end, into an output full of NaN.
fn run(kind: Kind, groups: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let device = device();
    let rewards = groups.concat();
    let mut offsets = vec![0u32];
    offsets.extend(groups.iter().scan(0, |end, group| {
        *end += group.len() as u32;
        Some(*end)
    }));
    let out = device.tensor(&vec![f32::NAN; rewards.len()], &[rewards.len()]);
    group(&device, kind, &device.tensor(&rewards, &[rewards.len()]), &device.ids(&offsets), &out);
    let out = out.read(&device);
    offsets.windows(2).map(|w| out[w[0] as usize..w[1] as usize].to_vec()).collect()
}

fn exact(kind: Kind, group: &[f32]) -> Vec<f64> {
    reference(kind, &group.iter().map(|r| f64::from(*r)).collect::<Vec<_>>())
}

fn assert_close(found: &[f32], exact: &[f64], tolerance: f64) {
    assert_eq!(found.len(), exact.len());
    let error = found.iter().zip(exact).map(|(f, e)| (f64::from(*f) - e).powi(2)).sum::<f64>().sqrt();
    let norm = exact.iter().map(|e| e * e).sum::<f64>().sqrt();
    assert!(error <= tolerance * norm, "error {error} of norm {norm}: {found:?}, reference {exact:?}");
}

#[test]
fn one_two_three() {
    // formulas.md: R = 1, 2, 3.
    let expected = [[-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0], [-1.5, 0.0, 1.5]];
    for (kind, expected) in KINDS.into_iter().zip(expected) {
        let found = run(kind, &[vec![1.0, 2.0, 3.0]]).remove(0);
        let exact = exact(kind, &[1.0, 2.0, 3.0]);
        for i in 0..3 {
            assert!((exact[i] - expected[i]).abs() < 2e-6, "{kind:?} reference {exact:?}");
            assert!((f64::from(found[i]) - expected[i]).abs() < 2e-6, "{kind:?} {found:?}");
        }
    }
    let with_large_eps = exact(Kind::Grpo { eps: 1.0 }, &[1.0, 2.0, 3.0]);
    assert!((with_large_eps[2] - 0.5).abs() < 1e-12, "ε is added to the deviation");
}

#[test]
fn groups_of_every_size_match_the_reference() {
    let groups: Vec<Vec<f32>> =
        (0..131usize).map(|g| (0..g % 17).map(|i| ((g * 31 + i * i * 7) % 23) as f32 * 0.37 - 3.0).collect()).collect();
    for kind in KINDS {
        for (found, group) in run(kind, &groups).iter().zip(&groups) {
            assert_close(found, &exact(kind, group), 1e-5);
        }
    }
}

#[test]
fn a_small_spread_on_a_large_mean_keeps_its_digits() {
    let group = vec![1000.0, 1000.25, 999.5, 1000.125];
    for kind in KINDS {
        assert_close(&run(kind, std::slice::from_ref(&group))[0], &exact(kind, &group), 1e-5);
    }
}

#[test]
fn equal_rewards_give_exactly_zero() {
    // 0.1 · n / n is not 0.1 in floating point for many n.
    let groups: Vec<Vec<f32>> = (1..40).map(|n| vec![0.1 * n as f32; n]).collect();
    for kind in KINDS.into_iter().chain([Kind::Grpo { eps: 0.0 }]) {
        for (found, group) in run(kind, &groups).iter().zip(&groups) {
            assert!(found.iter().all(|a| *a == 0.0), "{kind:?} {found:?}");
            assert!(exact(kind, group).iter().all(|a| *a == 0.0), "{kind:?}");
        }
    }
}

#[test]
fn a_group_does_not_depend_on_its_neighbours() {
    let group = vec![0.3, -1.7, 2.2, 0.9, 0.3];
    for kind in KINDS {
        let alone = run(kind, std::slice::from_ref(&group)).remove(0);
        let among = run(kind, &[vec![5.0; 7], vec![], group.clone(), vec![1.0, 9.0]]);
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&alone), bits(&among[2]), "{kind:?}");
    }
}

#[test]
fn a_reward_that_is_not_finite_spoils_its_group_only() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let groups = [vec![1.0, 2.0], vec![0.5, bad, 1.0], vec![bad], vec![3.0, 1.0]];
        for kind in KINDS {
            let found = run(kind, &groups);
            assert!(found[1].iter().chain(&found[2]).all(|a| !a.is_finite()), "{kind:?} {bad}: {found:?}");
            assert!(found[0].iter().chain(&found[3]).all(|a| a.is_finite()), "{kind:?} {bad}: {found:?}");
        }
    }
}

#[test]
#[should_panic(expected = "advantage::group: `out`")]
fn a_short_output_is_refused() {
    let device = device();
    let rewards = device.tensor(&[1.0, 2.0, 3.0], &[3]);
    group(&device, Kind::Rloo, &rewards, &device.ids(&[0, 3]), &device.empty(&[2]));
}
