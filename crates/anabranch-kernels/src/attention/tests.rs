use super::{AttentionShape, backward, decode, forward, reference};
use crate::Packing;
use crate::cache::{KvCache, append};
use crate::testing::{
    FORWARD, GRADIENT, Random, TestRuntime, assert_close, assert_gradient, bits, device, dot, poisoned, upload,
};
use crate::{Device, Tensor};

const SHAPES: [AttentionShape; 5] = [
    // The demo's, grouped heads, one key head, several segments a head (two of 24, four of 32), the smallest head.
    AttentionShape { query_heads: 4, kv_heads: 4, head_dim: 16 },
    AttentionShape { query_heads: 6, kv_heads: 2, head_dim: 48 },
    AttentionShape { query_heads: 2, kv_heads: 1, head_dim: 128 },
    AttentionShape { query_heads: 3, kv_heads: 3, head_dim: 20 },
    AttentionShape { query_heads: 1, kv_heads: 1, head_dim: 4 },
];

fn run(
    device: &Device<TestRuntime>,
    shape: &AttentionShape,
    qkv: &[f64],
    lengths: &[usize],
) -> (Tensor<TestRuntime>, Tensor<TestRuntime>, Tensor<TestRuntime>, Packing<TestRuntime>) {
    let packing = Packing::new(device, lengths);
    let tokens = packing.tokens();
    let qkv = upload(device, qkv, &[tokens, shape.row()]);
    let out = poisoned(device, &[tokens, shape.out_row()]);
    let log_sums = poisoned(device, &[tokens, shape.query_heads]);
    forward(device, shape, &qkv, &packing, &out, &log_sums);
    (qkv, out, log_sums, packing)
}

#[test]
fn forward_and_backward_agree_over_packed_sequences() {
    let device = device();
    let mut random = Random::new();
    for shape in SHAPES {
        let lengths = [1, 10, 0, 37, 3];
        let tokens: usize = lengths.iter().sum();
        let qkv = random.normal(tokens * shape.row(), 1.5);
        let grad = random.normal(tokens * shape.out_row(), 1.0);
        let (qkv_d, out, log_sums, packing) = run(&device, &shape, &qkv, &lengths);
        let (want_out, want_sums) = reference::forward(&shape, &qkv, &lengths);
        assert_close(&device, &format!("out {shape:?}"), &out, &want_out, FORWARD);
        assert_close(&device, &format!("log sums {shape:?}"), &log_sums, &want_sums, FORWARD);
        let grad_d = upload(&device, &grad, &[tokens, shape.out_row()]);
        let grad_qkv = poisoned(&device, &[tokens, shape.row()]);
        backward(&device, &shape, &qkv_d, &out, &log_sums, &grad_d, &packing, &grad_qkv);
        let want = reference::backward(&shape, &qkv, &lengths, &grad);
        assert_close(&device, &format!("grad {shape:?}"), &grad_qkv, &want, GRADIENT);
    }
}

#[test]
fn scores_far_from_zero_do_not_overflow() {
    let device = device();
    let mut random = Random::new();
    let shape = SHAPES[0];
    let qkv = random.normal(12 * shape.row(), 40.0);
    let (_, out, log_sums, _) = run(&device, &shape, &qkv, &[12]);
    let (want_out, want_sums) = reference::forward(&shape, &qkv, &[12]);
    // Scores near 1600 lose four of f32's seven digits before the exponential: 1e-5 of a score is 1e-2 of a weight.
    assert_close(&device, "log sums", &log_sums, &want_sums, FORWARD);
    assert_close(&device, "out", &out, &want_out, 1e-3);
}

#[test]
fn the_reference_gradient_is_the_derivative() {
    let mut random = Random::new();
    let shape = AttentionShape { query_heads: 4, kv_heads: 2, head_dim: 4 };
    let lengths = [2, 3];
    let qkv = random.normal(5 * shape.row(), 1.0);
    let grad = random.normal(5 * shape.out_row(), 1.0);
    let want = reference::backward(&shape, &qkv, &lengths, &grad);
    assert_gradient("qkv", &qkv, &want, |qkv| dot(&reference::forward(&shape, qkv, &lengths).0, &grad));
}

#[test]
fn a_sequence_has_the_same_bits_alone_and_packed() {
    let device = device();
    let mut random = Random::new();
    for shape in SHAPES {
        let qkv = random.normal(30 * shape.row(), 1.0);
        let (_, packed, ..) = run(&device, &shape, &qkv, &[5, 11, 14]);
        let (_, alone, ..) = run(&device, &shape, &qkv[5 * shape.row()..16 * shape.row()], &[11]);
        let packed = packed.read(&device);
        assert_eq!(bits(&alone.read(&device)), bits(&packed[5 * shape.out_row()..16 * shape.out_row()]), "{shape:?}");
    }
}

/// Prompts enter the cache together, then each sequence grows by a token at a time beside others: all the same bits.
#[test]
fn decode_has_the_bits_of_prefill() {
    let device = device();
    let mut random = Random::new();
    for shape in SHAPES {
        let (prompt, total, slots) = (4, 9, [2u32, 0, 3]);
        let sequences: Vec<Vec<f64>> = slots.iter().map(|_| random.normal(total * shape.row(), 1.0)).collect();
        let want: Vec<Vec<f32>> = sequences.iter().map(|s| run(&device, &shape, s, &[total]).1.read(&device)).collect();
        let cache = KvCache::new(&device, &shape, 4, total + 3);
        crate::elementwise::fill(&device, f32::NAN, &cache.keys);
        crate::elementwise::fill(&device, f32::NAN, &cache.values);

        let rows_of = |from: usize, to: usize| -> Vec<f64> {
            sequences.iter().flat_map(|s| &s[from * shape.row()..to * shape.row()]).copied().collect()
        };
        let steps = std::iter::once((0, prompt)).chain((prompt..total).map(|p| (p, p + 1)));
        for (from, to) in steps {
            let count = slots.len() * (to - from);
            let qkv = upload(&device, &rows_of(from, to), &[count, shape.row()]);
            let row_slots: Vec<u32> = slots.iter().flat_map(|s| vec![*s; to - from]).collect();
            let positions: Vec<u32> = slots.iter().flat_map(|_| from as u32..to as u32).collect();
            let lengths: Vec<u32> = positions.iter().map(|p| p + 1).collect();
            append(&device, &shape, &qkv, &device.ids(&row_slots), &device.ids(&positions), &cache);
            let out = poisoned(&device, &[count, shape.out_row()]);
            decode(&device, &shape, &qkv, &device.ids(&row_slots), &device.ids(&lengths), &cache, &out);
            let out = out.read(&device);
            for (i, want) in want.iter().enumerate() {
                let width = (to - from) * shape.out_row();
                assert_eq!(
                    bits(&out[i * width..(i + 1) * width]),
                    bits(&want[from * shape.out_row()..to * shape.out_row()]),
                    "{shape:?} sequence {i} positions {from}..{to}"
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "must be a positive multiple of `shape.kv_heads`")]
fn heads_that_do_not_divide_are_refused() {
    let device = device();
    let shape = AttentionShape { query_heads: 3, kv_heads: 2, head_dim: 4 };
    run(&device, &shape, &vec![0.0; shape.row()], &[1]);
}
