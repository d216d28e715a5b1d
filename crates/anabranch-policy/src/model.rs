//! The model on a device: packed forward and backward passes, and inference over KV slots.
//!
//! Every row's result is bitwise independent of the rows around it, in training and inference alike: the
//! log-probability that the engine recorded is the one that the learner recomputes under the same weights.

mod backward;
mod batch;
mod forward;
mod inference;
#[cfg(all(test, feature = "wgpu"))]
mod tests;

use std::sync::Arc;

use anabranch_kernels::attention::AttentionShape;
use anabranch_kernels::head::Head;
use anabranch_kernels::{Device, Tensor, rope};
use cubecl::Runtime;

use crate::config::Config;
use crate::layout::Layout;

pub use batch::DeviceBatch;
pub use forward::Activations;
pub use inference::{InferenceRows, KvSlots};

/// A configuration bound to a device; the parameters are handed to each call as one flat tensor.
pub struct Model<R: Runtime> {
    device: Device<R>,
    config: Arc<Config>,
    layout: Arc<Layout>,
    shape: AttentionShape,
    rope: rope::Table<R>,
    head: Head,
}

impl<R: Runtime> Model<R> {
    /// Prepares the model on a device.
    pub fn new(device: &Device<R>, config: &Arc<Config>) -> Self {
        Self {
            device: device.clone(),
            layout: Arc::new(Layout::new(config)),
            shape: AttentionShape { query_heads: config.heads, kv_heads: config.kv_heads, head_dim: config.head_dim },
            rope: rope::Table::new(device, config.rope_theta, config.head_dim, config.max_positions),
            head: Head::default(),
            config: config.clone(),
        }
    }

    /// Returns the device.
    pub fn device(&self) -> &Device<R> {
        &self.device
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Returns the place of each parameter in the flat tensor.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The matrices and norms of one layer, as windows onto a flat tensor of parameters or gradients.
    fn layer(&self, flat: &Tensor<R>, layer: usize) -> LayerTensors<R> {
        let blocks = self.layout.layers[layer];
        let (hidden, ffn, q) = (self.config.hidden, self.config.ffn, self.config.q_dim());
        LayerTensors {
            attention_norm: flat.view(blocks.attention_norm, &[hidden]),
            qkv: flat.view(blocks.qkv, &[self.shape.row(), hidden]),
            output: flat.view(blocks.output, &[hidden, q]),
            ffn_norm: flat.view(blocks.ffn_norm, &[hidden]),
            gate_up: flat.view(blocks.gate_up, &[2 * ffn, hidden]),
            down: flat.view(blocks.down, &[hidden, ffn]),
        }
    }

    fn embedding(&self, flat: &Tensor<R>) -> Tensor<R> {
        flat.view(self.layout.embedding, &[self.config.vocab, self.config.hidden])
    }

    fn final_norm(&self, flat: &Tensor<R>) -> Tensor<R> {
        flat.view(self.layout.final_norm, &[self.config.hidden])
    }

    fn head_weight(&self, flat: &Tensor<R>) -> Tensor<R> {
        flat.view(self.layout.head, &[self.config.vocab, self.config.hidden])
    }
}

/// Windows onto a flat tensor, one layer's worth; shapes as in [`LayerBlocks`](crate::layout::LayerBlocks).
struct LayerTensors<R: Runtime> {
    attention_norm: Tensor<R>,
    qkv: Tensor<R>,
    output: Tensor<R>,
    ffn_norm: Tensor<R>,
    gate_up: Tensor<R>,
    down: Tensor<R>,
}
