//! Forward pass that keeps what the backward pass needs.

use super::Real;
use super::linear::{linear, rms_norm, rotate};
use crate::config::Config;
use crate::layout::Layout;
use crate::packed::Packed;

/// Activations of one layer. Matrices are row-major, one row a token.
#[derive(Clone, Debug)]
pub struct LayerTrace<T> {
    /// Residual stream on entry, `[rows, hidden]`.
    pub input: Vec<T>,
    /// Reciprocal root mean square of each row of `input`.
    pub attention_factor: Vec<T>,
    /// Normed input of attention, `[rows, hidden]`.
    pub attention_input: Vec<T>,
    /// Rotated queries, `[rows, q]`.
    pub queries: Vec<T>,
    /// Rotated keys, `[rows, kv]`.
    pub keys: Vec<T>,
    /// Values, `[rows, kv]`.
    pub values: Vec<T>,
    /// Attention weights, for each row and head the weights over its sequence up to the row.
    pub weights: Vec<Vec<Vec<T>>>,
    /// Attention output before its projection, `[rows, q]`.
    pub attended: Vec<T>,
    /// Residual stream after attention, `[rows, hidden]`.
    pub middle: Vec<T>,
    /// Reciprocal root mean square of each row of `middle`.
    pub ffn_factor: Vec<T>,
    /// Normed input of the feed-forward layer, `[rows, hidden]`.
    pub ffn_input: Vec<T>,
    /// Gate before its activation, `[rows, ffn]`.
    pub gate: Vec<T>,
    /// Up projection, `[rows, ffn]`.
    pub up: Vec<T>,
    /// `silu(gate) · up`, `[rows, ffn]`.
    pub product: Vec<T>,
}

/// The results of a forward pass.
#[derive(Clone, Debug)]
pub struct Trace<T> {
    /// Activations of each layer.
    pub layers: Vec<LayerTrace<T>>,
    /// Residual stream after the last layer, `[rows, hidden]`.
    pub output: Vec<T>,
    /// Reciprocal root mean square of each row of `output`.
    pub final_factor: Vec<T>,
    /// Normed output, `[rows, hidden]`.
    pub final_normed: Vec<T>,
    /// Probabilities at each scored row, `[scored, vocab]`.
    pub probabilities: Vec<T>,
    /// Log-probability of each target, natural logarithm, `[scored]`.
    pub log_probs: Vec<T>,
    /// Entropy of the distribution at each scored row, in nats, `[scored]`.
    pub entropies: Vec<T>,
}

/// Runs the model over packed sequences; `parameters` is the flat buffer of `layout`. Logits are divided by
/// `temperature` before the softmax.
pub fn forward<T: Real>(
    config: &Config,
    layout: &Layout,
    parameters: &[T],
    packed: &Packed,
    temperature: f64,
) -> Trace<T> {
    let hidden = config.hidden;
    let mut stream: Vec<T> = Vec::with_capacity(packed.rows() * hidden);
    for token in &packed.tokens {
        let at = layout.embedding + *token as usize * hidden;
        stream.extend_from_slice(&parameters[at..at + hidden]);
    }
    let mut layers = Vec::with_capacity(config.layers);
    for layer in 0..config.layers {
        let trace = layer_forward(config, layout, parameters, packed, layer, stream);
        let down = layout.layers[layer].down;
        let down = &parameters[down..down + hidden * config.ffn];
        stream = add(&trace.middle, &linear(&trace.product, down, config.ffn));
        layers.push(trace);
    }
    let norm = &parameters[layout.final_norm..layout.final_norm + hidden];
    let (final_normed, final_factor) = rms_norm(&stream, norm, config.rms_eps);
    let mut trace = Trace {
        layers,
        output: stream,
        final_factor,
        final_normed,
        probabilities: Vec::new(),
        log_probs: Vec::new(),
        entropies: Vec::new(),
    };
    let head = &parameters[layout.head..layout.head + config.vocab * hidden];
    for (row, target) in packed.scored.iter().zip(&packed.targets) {
        let at = *row as usize * hidden;
        let mut logits = linear(&trace.final_normed[at..at + hidden], head, hidden);
        for logit in &mut logits {
            *logit = *logit / T::of(temperature);
        }
        score(&logits, *target as usize, &mut trace);
    }
    trace
}

fn score<T: Real>(logits: &[T], target: usize, trace: &mut Trace<T>) {
    let probabilities = softmax(logits);
    let largest = logits.iter().copied().fold(logits[0], max);
    let sum = logits.iter().map(|l| (*l - largest).exp()).sum::<T>();
    let log_sum = largest + sum.ln();
    trace.log_probs.push(logits[target] - log_sum);
    let expected = logits.iter().zip(&probabilities).map(|(l, p)| *l * *p).sum::<T>();
    trace.entropies.push(log_sum - expected);
    trace.probabilities.extend(probabilities);
}

fn layer_forward<T: Real>(
    config: &Config,
    layout: &Layout,
    parameters: &[T],
    packed: &Packed,
    layer: usize,
    input: Vec<T>,
) -> LayerTrace<T> {
    let (hidden, ffn) = (config.hidden, config.ffn);
    let (q, kv) = (config.q_dim(), config.kv_dim());
    let blocks = layout.layers[layer];
    let weight = |at: usize, rows: usize, width: usize| &parameters[at..at + rows * width];

    let norm = weight(blocks.attention_norm, 1, hidden);
    let (attention_input, attention_factor) = rms_norm(&input, norm, config.rms_eps);
    let mut queries = linear(&attention_input, weight(blocks.qkv, q, hidden), hidden);
    let keys_at = blocks.qkv + q * hidden;
    let mut keys = linear(&attention_input, weight(keys_at, kv, hidden), hidden);
    let values = linear(&attention_input, weight(keys_at + kv * hidden, kv, hidden), hidden);
    rotate(&mut queries, &packed.positions, config.head_dim, config.rope_theta, 1.0);
    rotate(&mut keys, &packed.positions, config.head_dim, config.rope_theta, 1.0);
    let (weights, attended) = attend(config, packed, &queries, &keys, &values);
    let projected = linear(&attended, weight(blocks.output, hidden, q), q);
    let middle = add(&input, &projected);

    let norm = weight(blocks.ffn_norm, 1, hidden);
    let (ffn_input, ffn_factor) = rms_norm(&middle, norm, config.rms_eps);
    let gate = linear(&ffn_input, weight(blocks.gate_up, ffn, hidden), hidden);
    let up = linear(&ffn_input, weight(blocks.gate_up + ffn * hidden, ffn, hidden), hidden);
    let silu = |x: T| x / (T::ONE + (-x).exp());
    let product = gate.iter().zip(&up).map(|(gate, up)| silu(*gate) * *up).collect();
    LayerTrace {
        input,
        attention_factor,
        attention_input,
        queries,
        keys,
        values,
        weights,
        attended,
        middle,
        ffn_factor,
        ffn_input,
        gate,
        up,
        product,
    }
}

/// Causal grouped-query attention within each sequence; also the weights of each row and head.
fn attend<T: Real>(
    config: &Config,
    packed: &Packed,
    queries: &[T],
    keys: &[T],
    values: &[T],
) -> (Vec<Vec<Vec<T>>>, Vec<T>) {
    let (dim, q, kv) = (config.head_dim, config.q_dim(), config.kv_dim());
    let scale = T::of(1.0 / (dim as f64).sqrt());
    let mut attended = vec![T::ZERO; packed.rows() * q];
    let mut weights = Vec::with_capacity(packed.rows());
    for row in 0..packed.rows() {
        let first = packed.bounds[packed.row_sequences[row] as usize] as usize;
        let mut row_weights = Vec::with_capacity(config.heads);
        for head in 0..config.heads {
            let shared = head / (config.heads / config.kv_heads) * dim;
            let query = &queries[row * q + head * dim..][..dim];
            let logits: Vec<T> = (first..=row)
                .map(|other| {
                    let key = &keys[other * kv + shared..][..dim];
                    query.iter().zip(key).map(|(a, b)| *a * *b).sum::<T>() * scale
                })
                .collect();
            let probabilities = softmax(&logits);
            for (offset, weight) in probabilities.iter().enumerate() {
                let value = &values[(first + offset) * kv + shared..][..dim];
                for (i, value) in value.iter().enumerate() {
                    attended[row * q + head * dim + i] += *weight * *value;
                }
            }
            row_weights.push(probabilities);
        }
        weights.push(row_weights);
    }
    (weights, attended)
}

fn softmax<T: Real>(logits: &[T]) -> Vec<T> {
    let largest = logits.iter().copied().fold(logits[0], max);
    let powers: Vec<T> = logits.iter().map(|l| (*l - largest).exp()).collect();
    let sum = powers.iter().copied().sum::<T>();
    powers.into_iter().map(|power| power / sum).collect()
}

fn max<T: Real>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

fn add<T: Real>(a: &[T], b: &[T]) -> Vec<T> {
    a.iter().zip(b).map(|(a, b)| *a + *b).collect()
}
