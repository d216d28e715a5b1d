use super::{Write, forward, grad_input, grad_weight};
use crate::testing::{FORWARD, GRADIENT, Random, assert_close, bits, device, poisoned, upload};

/// op(a)·op(b) with a [m, k], b [k, n] given by index functions.
fn product(m: usize, k: usize, n: usize, a: impl Fn(usize, usize) -> f64, b: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..m * n).map(|at| (0..k).map(|i| a(at / n, i) * b(i, at % n)).sum()).collect()
}

#[test]
fn all_three_products_agree_at_awkward_sizes() {
    let device = device();
    let mut random = Random::new();
    for (t, i, o) in
        [(1, 1, 1), (1, 64, 16), (2, 5, 1), (7, 33, 9), (65, 64, 192), (130, 160, 66), (3, 1, 5), (1, 7, 3)]
    {
        let (x, w, dy) = (random.normal(t * i, 1.0), random.normal(o * i, 1.0), random.normal(t * o, 1.0));
        let before = random.normal(t * o, 1.0);
        let (x_d, w_d, dy_d) =
            (upload(&device, &x, &[t, i]), upload(&device, &w, &[o, i]), upload(&device, &dy, &[t, o]));
        let (y, dx, dw) = (poisoned(&device, &[t, o]), poisoned(&device, &[t, i]), poisoned(&device, &[o, i]));
        forward(&device, &x_d, &w_d, &y, Write::Overwrite);
        grad_input(&device, &dy_d, &w_d, &dx, Write::Overwrite);
        grad_weight(&device, &dy_d, &x_d, &dw, Write::Overwrite);
        let want = product(t, i, o, |r, c| x[r * i + c], |r, c| w[c * i + r]);
        assert_close(&device, &format!("y {t} {i} {o}"), &y, &want, FORWARD);
        let want_dx = product(t, o, i, |r, c| dy[r * o + c], |r, c| w[r * i + c]);
        assert_close(&device, &format!("dx {t} {i} {o}"), &dx, &want_dx, GRADIENT);
        let want_dw = product(o, t, i, |r, c| dy[c * o + r], |r, c| x[r * i + c]);
        assert_close(&device, &format!("dw {t} {i} {o}"), &dw, &want_dw, GRADIENT);

        let sum = upload(&device, &before, &[t, o]);
        forward(&device, &x_d, &w_d, &sum, Write::Add);
        let want: Vec<f64> = want.iter().zip(&before).map(|(a, b)| a + b).collect();
        assert_close(&device, "added", &sum, &want, FORWARD);
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_batch() {
    let device = device();
    let mut random = Random::new();
    for (inner, columns) in [(64, 64), (128, 352), (64, 16), (37, 5)] {
        let x = random.normal(1024 * inner, 1.0);
        let w = upload(&device, &random.normal(columns * inner, 1.0), &[columns, inner]);
        let run = |first: usize, rows: usize| {
            let x = upload(&device, &x[first * inner..(first + rows) * inner], &[rows, inner]);
            let y = poisoned(&device, &[rows, columns]);
            forward(&device, &x, &w, &y, Write::Overwrite);
            y.read(&device)
        };
        let all = run(0, 1024);
        for rows in [1, 2, 3, 7, 8, 16, 17, 32, 64, 127, 128, 257, 512] {
            // Not only the first row: each stands at another place of another tile.
            let first = random.below(1024 - rows);
            assert_eq!(
                bits(&run(first, rows)),
                bits(&all[first * columns..(first + rows) * columns]),
                "rows {first}..{} of {inner} x {columns}",
                first + rows
            );
        }
    }
}

#[test]
fn a_column_has_the_same_bits_in_every_slice_of_the_weight() {
    let device = device();
    let mut random = Random::new();
    let (rows, inner, columns) = (9, 48, 200);
    let x = upload(&device, &random.normal(rows * inner, 1.0), &[rows, inner]);
    let w = upload(&device, &random.normal(columns * inner, 1.0), &[columns, inner]);
    let whole = poisoned(&device, &[rows, columns]);
    forward(&device, &x, &w, &whole, Write::Overwrite);
    let whole = whole.read(&device);
    for (first, size) in [(0, 64), (64, 128), (192, 8)] {
        let part = poisoned(&device, &[rows, size]);
        forward(&device, &x, &w.view(first * inner, &[size, inner]), &part, Write::Overwrite);
        let part = part.read(&device);
        for row in 0..rows {
            assert_eq!(
                bits(&part[row * size..(row + 1) * size]),
                bits(&whole[row * columns + first..][..size]),
                "columns {first}.. of row {row}"
            );
        }
    }
}

#[test]
fn nothing_to_add_up_is_zero() {
    let device = device();
    let grad = poisoned(&device, &[3, 2]);
    grad_weight(&device, &device.zeros(&[0, 3]), &device.zeros(&[0, 2]), &grad, Write::Overwrite);
    assert_eq!(grad.read(&device), [0.0; 6]);
}

#[test]
#[should_panic(expected = "linear::forward: `weight` must have shape [3, 4]")]
fn a_wrong_inner_dimension_is_refused() {
    let device = device();
    forward(&device, &device.zeros(&[2, 4]), &device.zeros(&[3, 5]), &device.zeros(&[2, 3]), Write::Overwrite);
}
