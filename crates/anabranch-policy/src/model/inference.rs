//! Forward pass over KV slots: any mixture of prompt tokens and single next tokens in one pass.

use anabranch_kernels::cache::{self, KvCache};
use anabranch_kernels::linear::{self, Write};
use anabranch_kernels::sample::{self, RowSettings, SampleOutput, Sampled};
use anabranch_kernels::{Device, Ids, Tensor, attention, embedding, head, rope, swiglu};
use cubecl::Runtime;

use super::Model;

/// Keys and values of every layer for a fixed number of slots.
pub struct KvSlots<R: Runtime> {
    layers: Vec<KvCache<R>>,
}

impl<R: Runtime> KvSlots<R> {
    /// Room for `slots` sequences of at most `max_len` tokens.
    pub fn new(model: &Model<R>, slots: usize, max_len: usize) -> Self {
        let layer = |_| KvCache::new(&model.device, &model.shape, slots, max_len);
        Self { layers: (0..model.config.layers).map(layer).collect() }
    }
}

/// Tokens to run through the model: one row each, rows of a slot in order of position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferenceRows {
    /// Token of each row.
    pub tokens: Vec<u32>,
    /// KV slot of each row.
    pub slots: Vec<u32>,
    /// Position of each row within its sequence; all earlier positions are in the slot or in this pass.
    pub positions: Vec<u32>,
    /// Rows copied into further slots: `(row, slot)`. A prompt that several samples share is computed once.
    pub copies: Vec<(u32, u32)>,
    /// Rows whose next token is wanted, in the order of the returned logits. A row may be named more than once.
    pub wanted: Vec<u32>,
}

struct RowIds<R: Runtime> {
    tokens: Ids<R>,
    slots: Ids<R>,
    positions: Ids<R>,
    lengths: Ids<R>,
    wanted: Ids<R>,
    copies: Option<CopyIds<R>>,
}

struct CopyIds<R: Runtime> {
    rows: Ids<R>,
    slots: Ids<R>,
    positions: Ids<R>,
    len: usize,
}

impl<R: Runtime> RowIds<R> {
    fn new(device: &Device<R>, rows: &InferenceRows) -> Self {
        let lengths: Vec<u32> = rows.positions.iter().map(|position| position + 1).collect();
        let copies = (!rows.copies.is_empty()).then(|| {
            let (from, to): (Vec<u32>, Vec<u32>) = rows.copies.iter().copied().unzip();
            let positions: Vec<u32> = from.iter().map(|row| rows.positions[*row as usize]).collect();
            CopyIds {
                rows: device.ids(&from),
                slots: device.ids(&to),
                positions: device.ids(&positions),
                len: from.len(),
            }
        });
        Self {
            tokens: device.ids(&rows.tokens),
            slots: device.ids(&rows.slots),
            positions: device.ids(&rows.positions),
            lengths: device.ids(&lengths),
            wanted: device.ids(&rows.wanted),
            copies,
        }
    }
}

impl<R: Runtime> Model<R> {
    /// Runs rows through the model, writes their keys and values into their slots, and returns the logits after the
    /// wanted rows, `[wanted, vocab]`, or `None` if no row is wanted. Only queues work.
    pub fn infer(&self, parameters: &Tensor<R>, rows: &InferenceRows, slots: &KvSlots<R>) -> Option<Tensor<R>> {
        let device = &self.device;
        let count = rows.tokens.len();
        let ids = RowIds::new(device, rows);
        let stream = device.empty(&[count, self.config.hidden]);
        embedding::gather(device, &self.embedding(parameters), &ids.tokens, &stream);
        for (layer, cache) in slots.layers.iter().enumerate() {
            self.layer_infer(parameters, layer, &ids, cache, &stream);
        }
        let wanted = rows.wanted.len();
        if wanted == 0 {
            return None;
        }
        let selected = device.empty(&[wanted, self.config.hidden]);
        embedding::gather(device, &stream, &ids.wanted, &selected);
        let (normed, _) = self.normed(&selected, &self.final_norm(parameters));
        let logits = device.empty(&[wanted, self.config.vocab]);
        head::logits(device, &normed, &self.head_weight(parameters), &logits);
        Some(logits)
    }

    /// Samples one token after each row of logits, `[rows, vocab]`, as that row's settings say. Waits for the device.
    pub fn sample(&self, logits: &Tensor<R>, settings: &[RowSettings]) -> Vec<Sampled> {
        let output = SampleOutput::new(&self.device, settings.len());
        sample::sample(&self.device, &self.head, logits, settings, &output);
        output.read(&self.device)
    }

    fn layer_infer(
        &self,
        parameters: &Tensor<R>,
        layer: usize,
        ids: &RowIds<R>,
        cache: &KvCache<R>,
        stream: &Tensor<R>,
    ) {
        let (device, shape) = (&self.device, &self.shape);
        let count = stream.shape()[0];
        let weights = self.layer(parameters, layer);
        let (normed, _) = self.normed(stream, &weights.attention_norm);
        let qkv = device.empty(&[count, shape.row()]);
        linear::forward(device, &normed, &weights.qkv, &qkv, Write::Overwrite);
        rope::apply(device, &self.rope, &ids.positions, shape, &qkv);
        cache::append(device, shape, &qkv, &ids.slots, &ids.positions, cache);
        if let Some(copies) = &ids.copies {
            let copied = device.empty(&[copies.len, shape.row()]);
            embedding::gather(device, &qkv, &copies.rows, &copied);
            cache::append(device, shape, &copied, &copies.slots, &copies.positions, cache);
        }
        let attended = device.empty(&[count, self.config.q_dim()]);
        attention::decode(device, shape, &qkv, &ids.slots, &ids.lengths, cache, &attended);
        linear::forward(device, &attended, &weights.output, stream, Write::Add);

        let (normed, _) = self.normed(stream, &weights.ffn_norm);
        let gate_up = device.empty(&[count, 2 * self.config.ffn]);
        linear::forward(device, &normed, &weights.gate_up, &gate_up, Write::Overwrite);
        let product = device.empty(&[count, self.config.ffn]);
        swiglu::forward(device, &gate_up, &product);
        linear::forward(device, &product, &weights.down, stream, Write::Add);
    }
}
