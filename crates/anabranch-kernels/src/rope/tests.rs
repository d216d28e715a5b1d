use super::{Table, apply, apply_inverse, frequencies, reference};
use crate::attention::AttentionShape;
use crate::testing::{FORWARD, Random, assert_close, assert_gradient, device, dot, upload};

const SHAPE: AttentionShape = AttentionShape { query_heads: 4, kv_heads: 2, head_dim: 12 };

#[test]
fn agrees_with_the_reference_far_from_the_origin() {
    let device = device();
    let mut random = Random::new();
    let table = Table::new(&device, 1e4, SHAPE.head_dim, 5000);
    let positions: Vec<u32> = vec![0, 1, 2, 17, 999, 4999, 3];
    let rows = random.normal(positions.len() * SHAPE.row(), 1.0);
    let rows_d = upload(&device, &rows, &[positions.len(), SHAPE.row()]);
    apply(&device, &table, &device.ids(&positions), &SHAPE, &rows_d);
    let mut want = rows.clone();
    reference::rotate(&mut want, &SHAPE, &frequencies(1e4, SHAPE.head_dim), &positions, 1.0);
    assert_close(&device, "turned", &rows_d, &want, FORWARD);
    apply_inverse(&device, &table, &device.ids(&positions), &SHAPE, &rows_d);
    assert_close(&device, "turned back", &rows_d, &rows, FORWARD);
}

/// q = (1, 0), angle 1: the pair (i, i + D/2) turns to (cos 1, sin 1), as `rotate_half` of Hugging Face does.
#[test]
fn pairs_the_halves_of_a_head() {
    let device = device();
    let shape = AttentionShape { query_heads: 1, kv_heads: 1, head_dim: 4 };
    let table = Table::from_frequencies(&device, &[1.0, 0.0], 2);
    let mut row = vec![0.0; shape.row()];
    row[0] = 1.0;
    row[9] = 5.0;
    let rows = upload(&device, &row, &[1, shape.row()]);
    apply(&device, &table, &device.ids(&[1]), &shape, &rows);
    let got = rows.read(&device);
    assert!((f64::from(got[0]) - 1f64.cos()).abs() < 1e-7 && (f64::from(got[2]) - 1f64.sin()).abs() < 1e-7, "{got:?}");
    assert_eq!(got[9].to_bits(), 5f32.to_bits(), "value heads stay");
}

#[test]
fn turning_back_is_the_derivative() {
    let mut random = Random::new();
    let freqs = frequencies(1e4, SHAPE.head_dim);
    let rows = random.normal(2 * SHAPE.row(), 1.0);
    let grad = random.normal(2 * SHAPE.row(), 1.0);
    let mut want = grad.clone();
    reference::rotate(&mut want, &SHAPE, &freqs, &[3, 8], -1.0);
    assert_gradient("rows", &rows, &want, |rows| {
        let mut turned = rows.to_vec();
        reference::rotate(&mut turned, &SHAPE, &freqs, &[3, 8], 1.0);
        dot(&turned, &grad)
    });
}
