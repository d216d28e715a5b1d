//! Backward pass: the gradient of any function of the targets' log-probabilities.

use super::Real;
use super::forward::{LayerTrace, Trace};
use super::linear::{linear_backward, rms_norm_backward, rotate};
use crate::config::Config;
use crate::layout::Layout;
use crate::packed::Packed;

/// Gradient of `Σ d_log_probs[i] · log_probs[i]` in every parameter, laid out as the parameters are.
///
/// For a loss L, `d_log_probs` is ∂L/∂ℓ at each scored row; `temperature` is the forward pass's.
pub fn backward<T: Real>(
    config: &Config,
    layout: &Layout,
    parameters: &[T],
    packed: &Packed,
    trace: &Trace<T>,
    d_log_probs: &[T],
    temperature: f64,
) -> Vec<T> {
    let hidden = config.hidden;
    let mut gradient = vec![T::ZERO; layout.len()];
    let mut d_normed = vec![T::ZERO; packed.rows() * hidden];
    let head = layout.head..layout.head + config.vocab * hidden;
    for (index, row) in packed.scored.iter().enumerate() {
        let probabilities = &trace.probabilities[index * config.vocab..][..config.vocab];
        let scale = d_log_probs[index] / T::of(temperature);
        let mut d_logits: Vec<T> = probabilities.iter().map(|p| -*p * scale).collect();
        d_logits[packed.targets[index] as usize] += scale;
        let at = *row as usize * hidden..(*row as usize + 1) * hidden;
        let normed = &trace.final_normed[at.clone()];
        let dw = &mut gradient[head.clone()];
        let dx = linear_backward(normed, &parameters[head.clone()], &d_logits, dw, hidden);
        accumulate(&mut d_normed[at], &dx);
    }
    let norm = layout.final_norm..layout.final_norm + hidden;
    let mut d_stream = vec![T::ZERO; packed.rows() * hidden];
    rms_norm_backward(
        &trace.output,
        &parameters[norm.clone()],
        &trace.final_factor,
        &d_normed,
        &mut gradient[norm],
        &mut d_stream,
    );
    for layer in (0..config.layers).rev() {
        let pass = LayerBackward { config, layout, parameters, packed, layer, trace: &trace.layers[layer] };
        pass.feed_forward(&mut d_stream, &mut gradient);
        pass.attention(&mut d_stream, &mut gradient);
    }
    for (token, d_row) in packed.tokens.iter().zip(d_stream.chunks_exact(hidden)) {
        let at = layout.embedding + *token as usize * hidden;
        accumulate(&mut gradient[at..at + hidden], d_row);
    }
    gradient
}

struct LayerBackward<'a, T> {
    config: &'a Config,
    layout: &'a Layout,
    parameters: &'a [T],
    packed: &'a Packed,
    layer: usize,
    trace: &'a LayerTrace<T>,
}

impl<T: Real> LayerBackward<'_, T> {
    /// `d_stream` is the gradient after the layer on entry, and between its two halves on return.
    fn feed_forward(&self, d_stream: &mut [T], gradient: &mut [T]) {
        let (hidden, ffn) = (self.config.hidden, self.config.ffn);
        let (blocks, trace) = (self.layout.layers[self.layer], self.trace);
        let d_product = self.linear(&trace.product, d_stream, gradient, blocks.down, hidden);
        let mut d_gate = Vec::with_capacity(d_product.len());
        let mut d_up = Vec::with_capacity(d_product.len());
        for (i, d) in d_product.iter().enumerate() {
            let gate = trace.gate[i];
            let sigmoid = T::ONE / (T::ONE + (-gate).exp());
            d_up.push(*d * gate * sigmoid);
            d_gate.push(*d * trace.up[i] * sigmoid * (T::ONE + gate * (T::ONE - sigmoid)));
        }
        let up = blocks.gate_up + ffn * hidden;
        let mut d_input = self.linear(&trace.ffn_input, &d_gate, gradient, blocks.gate_up, ffn);
        accumulate(&mut d_input, &self.linear(&trace.ffn_input, &d_up, gradient, up, ffn));
        let norm = blocks.ffn_norm..blocks.ffn_norm + hidden;
        rms_norm_backward(
            &trace.middle,
            &self.parameters[norm.clone()],
            &trace.ffn_factor,
            &d_input,
            &mut gradient[norm],
            d_stream,
        );
    }

    /// `d_stream` is the gradient between the layer's halves on entry, and before the layer on return.
    fn attention(&self, d_stream: &mut [T], gradient: &mut [T]) {
        let (q, kv, hidden) = (self.config.q_dim(), self.config.kv_dim(), self.config.hidden);
        let (blocks, trace) = (self.layout.layers[self.layer], self.trace);
        let d_attended = self.linear(&trace.attended, d_stream, gradient, blocks.output, hidden);
        let (mut d_queries, mut d_keys, d_values) = self.attend(&d_attended);
        let (dim, theta) = (self.config.head_dim, self.config.rope_theta);
        rotate(&mut d_queries, &self.packed.positions, dim, theta, -1.0);
        rotate(&mut d_keys, &self.packed.positions, dim, theta, -1.0);
        let keys = blocks.qkv + q * hidden;
        let input = &trace.attention_input;
        let mut d_input = self.linear(input, &d_queries, gradient, blocks.qkv, q);
        accumulate(&mut d_input, &self.linear(input, &d_keys, gradient, keys, kv));
        let values = keys + kv * hidden;
        accumulate(&mut d_input, &self.linear(input, &d_values, gradient, values, kv));
        let norm = blocks.attention_norm..blocks.attention_norm + hidden;
        rms_norm_backward(
            &trace.input,
            &self.parameters[norm.clone()],
            &trace.attention_factor,
            &d_input,
            &mut gradient[norm],
            d_stream,
        );
    }

    /// Gradients in the rotated queries, the rotated keys and the values.
    fn attend(&self, d_attended: &[T]) -> (Vec<T>, Vec<T>, Vec<T>) {
        let config = self.config;
        let (dim, q, kv) = (config.head_dim, config.q_dim(), config.kv_dim());
        let scale = T::of(1.0 / (dim as f64).sqrt());
        let trace = self.trace;
        let mut d_queries = vec![T::ZERO; trace.queries.len()];
        let mut d_keys = vec![T::ZERO; trace.keys.len()];
        let mut d_values = vec![T::ZERO; trace.values.len()];
        for row in 0..self.packed.rows() {
            let first = self.packed.bounds[self.packed.row_sequences[row] as usize] as usize;
            for head in 0..config.heads {
                let shared = head / (config.heads / config.kv_heads) * dim;
                let weights = &trace.weights[row][head];
                let at = row * q + head * dim;
                let d_out = &d_attended[at..at + dim];
                let d_weights: Vec<T> = (0..weights.len())
                    .map(|offset| {
                        let value = &trace.values[(first + offset) * kv + shared..][..dim];
                        d_out.iter().zip(value).map(|(a, b)| *a * *b).sum::<T>()
                    })
                    .collect();
                let mean = weights.iter().zip(&d_weights).map(|(w, d)| *w * *d).sum::<T>();
                for (offset, weight) in weights.iter().enumerate() {
                    let other = (first + offset) * kv + shared;
                    let d_logit = *weight * (d_weights[offset] - mean) * scale;
                    for i in 0..dim {
                        d_values[other + i] += *weight * d_out[i];
                        d_queries[at + i] += d_logit * trace.keys[other + i];
                        d_keys[other + i] += d_logit * trace.queries[at + i];
                    }
                }
            }
        }
        (d_queries, d_keys, d_values)
    }

    /// Backward through the `[out, width]` matrix at `offset`.
    fn linear(&self, x: &[T], dy: &[T], gradient: &mut [T], offset: usize, out: usize) -> Vec<T> {
        let width = x.len() / self.packed.rows();
        let at = offset..offset + out * width;
        linear_backward(x, &self.parameters[at.clone()], dy, &mut gradient[at], width)
    }
}

fn accumulate<T: Real>(sum: &mut [T], terms: &[T]) {
    for (sum, term) in sum.iter_mut().zip(terms) {
        *sum += *term;
    }
}
