//! Packed backward pass: adds the gradient in every parameter to a flat tensor.

use anabranch_kernels::head::{self, HeadGradient};
use anabranch_kernels::linear::{self, Write};
use anabranch_kernels::{Tensor, attention, embedding, rms_norm, rope, swiglu};
use cubecl::Runtime;

use super::forward::LayerActivations;
use super::{Activations, DeviceBatch, LayerTensors, Model};

impl<R: Runtime> Model<R> {
    /// Adds the gradient of a loss to `gradients` (flat, laid out as the parameters), given its derivative in the
    /// log-probability of each scored row, `[scored]`. Only queues work.
    pub fn backward(
        &self,
        parameters: &Tensor<R>,
        batch: &DeviceBatch<R>,
        activations: &Activations<R>,
        d_log_probs: &Tensor<R>,
        gradients: &Tensor<R>,
    ) {
        let device = &self.device;
        let d_normed = device.empty(activations.final_normed.shape());
        head::backward(
            device,
            &self.head,
            &activations.final_normed,
            &self.head_weight(parameters),
            &batch.targets,
            activations.temperature,
            &activations.head,
            HeadGradient { log_prob: d_log_probs, entropy: None },
            &d_normed,
            &self.head_weight(gradients),
        );
        let mut d_stream = device.zeros(activations.output.shape());
        rms_norm::backward(
            device,
            &activations.output,
            &self.final_norm(parameters),
            &activations.final_inverse,
            &d_normed,
            &d_stream,
            &self.final_norm(gradients),
        );
        for (layer, activations) in activations.layers.iter().enumerate().rev() {
            let pass = LayerBackward {
                model: self,
                batch,
                activations,
                weights: self.layer(parameters, layer),
                gradients: self.layer(gradients, layer),
            };
            pass.feed_forward(&d_stream);
            d_stream = pass.attention(d_stream);
        }
        embedding::gradient(device, &batch.occurrences, &d_stream, &self.embedding(gradients));
    }
}

struct LayerBackward<'a, R: Runtime> {
    model: &'a Model<R>,
    batch: &'a DeviceBatch<R>,
    activations: &'a LayerActivations<R>,
    weights: LayerTensors<R>,
    gradients: LayerTensors<R>,
}

impl<R: Runtime> LayerBackward<'_, R> {
    /// `d_stream`: the gradient after the layer on entry, between its halves on return.
    fn feed_forward(&self, d_stream: &Tensor<R>) {
        let (device, saved) = (&self.model.device, self.activations);
        let d_product = self.through(&saved.product, &self.weights.down, d_stream, &self.gradients.down);
        let d_gate_up = device.empty(saved.gate_up.shape());
        swiglu::backward(device, &saved.gate_up, &d_product, &d_gate_up);
        let d_normed = self.through(&saved.ffn_normed, &self.weights.gate_up, &d_gate_up, &self.gradients.gate_up);
        rms_norm::backward(
            device,
            &saved.middle,
            &self.weights.ffn_norm,
            &saved.ffn_inverse,
            &d_normed,
            d_stream,
            &self.gradients.ffn_norm,
        );
    }

    /// Takes the gradient between the layer's halves, returns the one before the layer.
    fn attention(&self, d_stream: Tensor<R>) -> Tensor<R> {
        let (device, shape, saved) = (&self.model.device, &self.model.shape, self.activations);
        let d_attended = self.through(&saved.going_on, &self.weights.output, &d_stream, &self.gradients.output);
        let all_went_on = saved.going_on.shape() == saved.attended.shape();
        let (d_attended, d_stream) =
            if all_went_on { (d_attended, d_stream) } else { (self.spread(&d_attended), self.spread(&d_stream)) };
        let d_qkv = device.empty(saved.qkv.shape());
        attention::backward(
            device,
            shape,
            &saved.qkv,
            &saved.attended,
            &saved.log_sum,
            &d_attended,
            &self.batch.packing,
            &d_qkv,
        );
        rope::apply_inverse(device, &self.model.rope, &self.batch.packing.positions, shape, &d_qkv);
        let d_normed = self.through(&saved.attention_normed, &self.weights.qkv, &d_qkv, &self.gradients.qkv);
        rms_norm::backward(
            device,
            &saved.input,
            &self.weights.attention_norm,
            &saved.attention_inverse,
            &d_normed,
            &d_stream,
            &self.gradients.attention_norm,
        );
        d_stream
    }

    /// The scored rows put back among all, which are zero elsewhere.
    fn spread(&self, rows: &Tensor<R>) -> Tensor<R> {
        let device = &self.model.device;
        let all = device.zeros(&[self.batch.rows(), rows.shape()[1]]);
        embedding::scatter(device, rows, &self.batch.scored, &all);
        all
    }

    /// Backward through `y = x Wᵀ`: returns the gradient in `x` and adds the one in `W`.
    fn through(&self, x: &Tensor<R>, weight: &Tensor<R>, d_y: &Tensor<R>, d_weight: &Tensor<R>) -> Tensor<R> {
        let device = &self.model.device;
        linear::grad_weight(device, d_y, x, d_weight, Write::Add);
        let d_x = device.empty(x.shape());
        linear::grad_input(device, d_y, weight, &d_x, Write::Overwrite);
        d_x
    }
}
