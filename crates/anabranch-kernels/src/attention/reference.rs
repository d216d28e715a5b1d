//! Attention in plain f64.

use super::AttentionShape;

/// Softmax weights of one query over its `count` keys, and the log of the sum of exponentiated scores.
fn weights(shape: &AttentionShape, qkv: &[f64], start: usize, token: usize, head: usize) -> (Vec<f64>, f64) {
    let d = shape.head_dim;
    let query = &qkv[token * shape.row() + head * d..][..d];
    let kv_head = head / (shape.query_heads / shape.kv_heads);
    let scores: Vec<f64> = (start..=token)
        .map(|s| {
            let key = &qkv[s * shape.row() + (shape.query_heads + kv_head) * d..][..d];
            query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt()
        })
        .collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|s| (s - largest).exp()).sum();
    let weights = scores.iter().map(|s| (s - largest).exp() / sum).collect();
    (weights, largest + sum.ln())
}

/// For each token, the index of its sequence's first.
fn starts(lengths: &[usize]) -> Vec<usize> {
    let mut starts = Vec::new();
    for &length in lengths {
        starts.extend(std::iter::repeat_n(starts.len(), length));
    }
    starts
}

/// (output [T, Hq·D], log sums [T, Hq]) for packed sequences of `lengths`.
pub fn forward(shape: &AttentionShape, qkv: &[f64], lengths: &[usize]) -> (Vec<f64>, Vec<f64>) {
    let d = shape.head_dim;
    let (mut out, mut log_sums) = (Vec::new(), Vec::new());
    for (token, start) in starts(lengths).into_iter().enumerate() {
        for head in 0..shape.query_heads {
            let (weights, log_sum) = weights(shape, qkv, start, token, head);
            let kv_head = head / (shape.query_heads / shape.kv_heads);
            let value_at = (shape.query_heads + shape.kv_heads + kv_head) * d;
            for i in 0..d {
                let sum = (start..=token).zip(&weights).map(|(s, w)| w * qkv[s * shape.row() + value_at + i]);
                out.push(sum.sum());
            }
            log_sums.push(log_sum);
        }
    }
    (out, log_sums)
}

/// The gradient in `qkv`, given the gradient in the output.
pub fn backward(shape: &AttentionShape, qkv: &[f64], lengths: &[usize], grad_out: &[f64]) -> Vec<f64> {
    let (d, row) = (shape.head_dim, shape.row());
    let scale = 1.0 / (d as f64).sqrt();
    let mut grad = vec![0.0; qkv.len()];
    for (token, start) in starts(lengths).into_iter().enumerate() {
        for head in 0..shape.query_heads {
            let (weights, _) = weights(shape, qkv, start, token, head);
            let kv_head = head / (shape.query_heads / shape.kv_heads);
            let query_at = token * row + head * d;
            let key_at = (shape.query_heads + kv_head) * d;
            let value_at = key_at + shape.kv_heads * d;
            let grad_out = &grad_out[(token * shape.query_heads + head) * d..][..d];
            let grad_weights: Vec<f64> =
                (start..=token).map(|s| (0..d).map(|i| grad_out[i] * qkv[s * row + value_at + i]).sum()).collect();
            let mean: f64 = weights.iter().zip(&grad_weights).map(|(w, g)| w * g).sum();
            for (j, s) in (start..=token).enumerate() {
                let grad_score = weights[j] * (grad_weights[j] - mean) * scale;
                for i in 0..d {
                    grad[query_at + i] += grad_score * qkv[s * row + key_at + i];
                    grad[s * row + key_at + i] += grad_score * qkv[query_at + i];
                    grad[s * row + value_at + i] += weights[j] * grad_out[i];
                }
            }
        }
    }
    grad
}
