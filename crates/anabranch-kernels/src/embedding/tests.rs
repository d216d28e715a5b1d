use super::{Occurrences, gather, gradient, reference, scatter};
use crate::testing::{GRADIENT, Random, assert_close, assert_gradient, bits, device, dot, poisoned, upload};

#[test]
fn gathers_and_scatters_exactly() {
    let device = device();
    let mut random = Random::new();
    let (vocab, width) = (37, 19);
    let table = random.normal(vocab * width, 1.0);
    let ids = random.ids(101, vocab);
    let table_d = upload(&device, &table, &[vocab, width]);
    let out = poisoned(&device, &[ids.len(), width]);
    gather(&device, &table_d, &device.ids(&ids), &out);
    assert_close(&device, "gather", &out, &reference::gather(&table, width, &ids), 0.0);

    let order: Vec<u32> = (0..vocab as u32).rev().collect();
    let back = poisoned(&device, &[vocab, width]);
    let rows = poisoned(&device, &[vocab, width]);
    gather(&device, &table_d, &device.ids(&order), &rows);
    scatter(&device, &rows, &device.ids(&order), &back);
    assert_close(&device, "scatter", &back, &table, 0.0);
}

#[test]
fn scatter_leaves_other_rows() {
    let device = device();
    let out = device.tensor(&[1.0, 2.0, 3.0], &[3, 1]);
    scatter(&device, &device.tensor(&[9.0], &[1, 1]), &device.ids(&[1]), &out);
    assert_eq!(out.read(&device), [1.0, 9.0, 3.0]);
}

#[test]
fn gradient_agrees_and_repeats_to_the_bit() {
    let device = device();
    let mut random = Random::new();
    for (tokens, vocab, width) in [(1, 3, 1), (1500, 16, 64), (90, 1000, 7)] {
        let ids = random.ids(tokens, vocab);
        let grad = random.normal(tokens * width, 1.0);
        let before = random.normal(vocab * width, 1.0);
        let grad_d = upload(&device, &grad, &[tokens, width]);
        let occurrences = Occurrences::new(&device, &ids);
        let run = || {
            let table = upload(&device, &before, &[vocab, width]);
            gradient(&device, &occurrences, &grad_d, &table);
            table
        };
        let want: Vec<f64> =
            reference::gradient(vocab, width, &ids, &grad).iter().zip(&before).map(|(g, b)| g + b).collect();
        let first = run();
        assert_close(&device, "gradient", &first, &want, GRADIENT);
        assert_eq!(bits(&first.read(&device)), bits(&run().read(&device)));
    }
}

#[test]
fn the_reference_gradient_is_the_derivative() {
    let mut random = Random::new();
    let ids = [2, 0, 2, 1];
    let table = random.normal(4 * 3, 1.0);
    let grad = random.normal(4 * 3, 1.0);
    let want = reference::gradient(4, 3, &ids, &grad);
    assert_gradient("table", &table, &want, |t| dot(&reference::gather(t, 3, &ids), &grad));
}
