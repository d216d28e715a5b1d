//! Packed forward pass that keeps what the backward pass needs.

use anabranch_kernels::head::{self, HeadOutput};
use anabranch_kernels::linear::{self, Write};
use anabranch_kernels::{Ids, Tensor, attention, elementwise, embedding, rms_norm, rope, swiglu};
use cubecl::Runtime;

use super::{DeviceBatch, LayerTensors, Model};

/// Activations of one layer, row-major, one row a token.
pub(super) struct LayerActivations<R: Runtime> {
    /// Residual stream on entry, `[rows, hidden]`.
    pub input: Tensor<R>,
    pub attention_inverse: Tensor<R>,
    pub attention_normed: Tensor<R>,
    /// Rotated queries and keys, and values, `[rows, q+2kv]`.
    pub qkv: Tensor<R>,
    pub attended: Tensor<R>,
    pub log_sum: Tensor<R>,
    /// `attended` at the rows that continue, `[continuing, q]`: all rows, or in the last layer the scored rows.
    pub going_on: Tensor<R>,
    /// Residual stream between the halves, `[continuing, hidden]`, as are the following tensors.
    pub middle: Tensor<R>,
    pub ffn_inverse: Tensor<R>,
    pub ffn_normed: Tensor<R>,
    pub gate_up: Tensor<R>,
    pub product: Tensor<R>,
}

/// The results of a forward pass on the device.
pub struct Activations<R: Runtime> {
    pub(super) layers: Vec<LayerActivations<R>>,
    /// Residual stream after the last layer at the scored rows, `[scored, hidden]`.
    pub(super) output: Tensor<R>,
    pub(super) final_inverse: Tensor<R>,
    pub(super) final_normed: Tensor<R>,
    pub(super) head: HeadOutput<R>,
    pub(super) temperature: f32,
}

impl<R: Runtime> Activations<R> {
    /// Log-probability of each target at the batch's temperature, natural logarithm, `[scored]`.
    pub fn log_probs(&self) -> &Tensor<R> {
        &self.head.log_prob
    }

    /// Entropy of the distribution at each scored row, in nats, `[scored]`.
    pub fn entropies(&self) -> &Tensor<R> {
        &self.head.entropy
    }
}

impl<R: Runtime> Model<R> {
    /// Runs the model over a batch; `parameters` is the flat tensor of the layout. Logits are divided by `temperature`
    /// before the softmax. Only queues work: nothing waits for the device.
    pub fn forward(&self, parameters: &Tensor<R>, batch: &DeviceBatch<R>, temperature: f32) -> Activations<R> {
        let device = &self.device;
        let hidden = self.config.hidden;
        let mut stream = device.empty(&[batch.rows(), hidden]);
        embedding::gather(device, &self.embedding(parameters), &batch.tokens, &stream);
        let mut layers = Vec::with_capacity(self.config.layers);
        for layer in 0..self.config.layers {
            let weights = self.layer(parameters, layer);
            // Nothing reads the last layer's other rows: they serve as keys and values only.
            let select = (layer + 1 == self.config.layers).then_some(&batch.scored);
            let activations = self.layer_forward(&weights, batch, stream, select);
            stream = self.rows(&activations.middle, None);
            linear::forward(device, &activations.product, &weights.down, &stream, Write::Add);
            layers.push(activations);
        }
        let (final_normed, final_inverse) = self.normed(&stream, &self.final_norm(parameters));
        let head = HeadOutput::new(device, batch.scored_rows());
        head::forward(
            device,
            &self.head,
            &final_normed,
            &self.head_weight(parameters),
            &batch.targets,
            temperature,
            &head,
        );
        Activations { layers, output: stream, final_inverse, final_normed, head, temperature }
    }

    fn layer_forward(
        &self,
        weights: &LayerTensors<R>,
        batch: &DeviceBatch<R>,
        input: Tensor<R>,
        select: Option<&Ids<R>>,
    ) -> LayerActivations<R> {
        let (device, shape, rows) = (&self.device, &self.shape, batch.rows());
        let (attention_normed, attention_inverse) = self.normed(&input, &weights.attention_norm);
        let qkv = device.empty(&[rows, shape.row()]);
        linear::forward(device, &attention_normed, &weights.qkv, &qkv, Write::Overwrite);
        rope::apply(device, &self.rope, &batch.packing.positions, shape, &qkv);
        let attended = device.empty(&[rows, self.config.q_dim()]);
        let log_sum = device.empty(&[rows, self.config.heads]);
        attention::forward(device, shape, &qkv, &batch.packing, &attended, &log_sum);
        let going_on = if select.is_some() { self.rows(&attended, select) } else { attended.clone() };
        let middle = self.rows(&input, select);
        linear::forward(device, &going_on, &weights.output, &middle, Write::Add);

        let (ffn_normed, ffn_inverse) = self.normed(&middle, &weights.ffn_norm);
        let rows = middle.shape()[0];
        let gate_up = device.empty(&[rows, 2 * self.config.ffn]);
        linear::forward(device, &ffn_normed, &weights.gate_up, &gate_up, Write::Overwrite);
        let product = device.empty(&[rows, self.config.ffn]);
        swiglu::forward(device, &gate_up, &product);
        LayerActivations {
            input,
            attention_inverse,
            attention_normed,
            qkv,
            attended,
            log_sum,
            going_on,
            middle,
            ffn_inverse,
            ffn_normed,
            gate_up,
            product,
        }
    }

    /// `RMSNorm` of each row, and the reciprocal root mean squares.
    pub(super) fn normed(&self, x: &Tensor<R>, weight: &Tensor<R>) -> (Tensor<R>, Tensor<R>) {
        let normed = self.device.empty(x.shape());
        let inverse = self.device.empty(&[x.shape()[0]]);
        let eps = self.config.rms_eps as f32;
        rms_norm::forward(&self.device, x, weight, eps, &normed, &inverse);
        (normed, inverse)
    }

    /// A copy of these rows of `x`, or of all.
    fn rows(&self, x: &Tensor<R>, select: Option<&Ids<R>>) -> Tensor<R> {
        let count = select.map_or(x.shape()[0], Tensor::len);
        let rows = self.device.empty(&[count, x.shape()[1]]);
        match select {
            Some(ids) => embedding::gather(&self.device, x, ids, &rows),
            None => elementwise::copy(&self.device, x, &rows),
        }
        rows
    }
}
