//! The place of each parameter in the one flat buffer that holds them all.
//!
//! One buffer for all parameters makes a publication one copy, the optimizer one launch, and the gradient norm one
//! reduction. Matrices that read the same input are next to each other, so that one GEMM serves them together: queries,
//! keys and values as one `[q+2kv, hidden]` matrix, gate and up as one `[2·ffn, hidden]`. Matrices come first and norms
//! last, so that weight decay ends at one offset.

use std::ops::Range;

use crate::config::Config;

/// Blocks begin at a multiple of this many floats: 256 bytes, the strictest buffer-offset rule of any WebGPU device.
pub const BLOCK_ALIGNMENT: usize = 64;

/// The purpose of a tensor, which decides how it is initialised and whether it decays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A matrix drawn from N(0, 0.02).
    Matrix,
    /// A matrix that writes to the residual stream: N(0, 0.02 / √(2·layers)).
    Residual,
    /// An `RMSNorm` weight: ones, without weight decay.
    Norm,
}

/// One named tensor within the flat buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Hugging Face name.
    pub name: String,
    /// Shape, `[out, in]` for matrices, row-major.
    pub shape: Vec<usize>,
    /// First float within the buffer.
    pub offset: usize,
    /// The purpose of the tensor.
    pub role: Role,
}

impl Slot {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the tensor has no element (never, in a valid configuration).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The floats of this tensor.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// Offsets, in floats, of the blocks of one decoder layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerBlocks {
    /// Norm before attention, `[hidden]`.
    pub attention_norm: usize,
    /// Query, key and value projections stacked, `[q+2kv, hidden]`.
    pub qkv: usize,
    /// Output projection, `[hidden, q]`.
    pub output: usize,
    /// Norm before the feed-forward layer, `[hidden]`.
    pub ffn_norm: usize,
    /// Gate and up projections stacked, `[2·ffn, hidden]`.
    pub gate_up: usize,
    /// Down projection, `[hidden, ffn]`.
    pub down: usize,
}

/// The place of every parameter of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    slots: Vec<Slot>,
    len: usize,
    /// Weight decay applies below this offset: matrices come first, norms last.
    pub decayed: usize,
    /// The embedding matrix, `[vocab, hidden]`.
    pub embedding: usize,
    /// Blocks of each decoder layer.
    pub layers: Vec<LayerBlocks>,
    /// The last norm, `[hidden]`.
    pub final_norm: usize,
    /// The output head, `[vocab, hidden]`: the embedding's own offset if the head is tied.
    pub head: usize,
}

impl Layout {
    /// The layout of a configuration.
    pub fn new(config: &Config) -> Self {
        let mut place = Placement::default();
        let (hidden, ffn) = (config.hidden, config.ffn);
        let matrix = |name: &str, rows| (name.to_string(), vec![rows, hidden], Role::Matrix);
        let norm = |name: &str| (name.to_string(), vec![hidden], Role::Norm);

        let embedding = place.block([matrix("model.embed_tokens.weight", config.vocab)]);
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let at = |name: &str| format!("model.layers.{layer}.{name}.weight");
            let residual = |name: &str, width| (at(name), vec![hidden, width], Role::Residual);
            layers.push(LayerBlocks {
                qkv: place.block([
                    matrix(&at("self_attn.q_proj"), config.q_dim()),
                    matrix(&at("self_attn.k_proj"), config.kv_dim()),
                    matrix(&at("self_attn.v_proj"), config.kv_dim()),
                ]),
                output: place.block([residual("self_attn.o_proj", config.q_dim())]),
                gate_up: place.block([matrix(&at("mlp.gate_proj"), ffn), matrix(&at("mlp.up_proj"), ffn)]),
                down: place.block([residual("mlp.down_proj", ffn)]),
                ..LayerBlocks::default()
            });
        }
        let head = if config.tied { embedding } else { place.block([matrix("lm_head.weight", config.vocab)]) };
        let decayed = place.len.next_multiple_of(BLOCK_ALIGNMENT);
        for (layer, blocks) in layers.iter_mut().enumerate() {
            let at = |name: &str| norm(&format!("model.layers.{layer}.{name}.weight"));
            blocks.attention_norm = place.block([at("input_layernorm")]);
            blocks.ffn_norm = place.block([at("post_attention_layernorm")]);
        }
        let final_norm = place.block([norm("model.norm.weight")]);
        Self {
            slots: place.slots,
            len: place.len.next_multiple_of(BLOCK_ALIGNMENT),
            decayed,
            embedding,
            layers,
            final_norm,
            head,
        }
    }

    /// All tensors, in the order of the buffer.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Floats in the buffer, gaps between blocks included (they stay zero).
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no float (never, in a valid configuration).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tensor of this Hugging Face name.
    pub fn slot(&self, name: &str) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.name == name)
    }
}

#[derive(Default)]
struct Placement {
    slots: Vec<Slot>,
    len: usize,
}

impl Placement {
    /// Appends tensors as one block without gaps and returns where it begins.
    fn block<const N: usize>(&mut self, tensors: [(String, Vec<usize>, Role); N]) -> usize {
        let start = self.len.next_multiple_of(BLOCK_ALIGNMENT);
        self.len = start;
        for (name, shape, role) in tensors {
            let slot = Slot { name, shape, offset: self.len, role };
            self.len += slot.len();
            self.slots.push(slot);
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_one_place() {
        for tied in [false, true] {
            let mut config = Config::tiny(17);
            config.kv_heads = 2;
            config.tied = tied;
            let layout = Layout::new(&config);
            let total: usize = layout.slots().iter().map(Slot::len).sum();
            assert_eq!(total, config.parameters());
            let mut end = 0;
            for slot in layout.slots() {
                assert!(slot.offset >= end, "{} overlaps", slot.name);
                end = slot.range().end;
                let decays = slot.range().end <= layout.decayed;
                assert_eq!(decays, slot.role != Role::Norm, "{}", slot.name);
            }
            assert!(layout.len() >= end);
            assert_eq!(layout.slot("lm_head.weight").is_none(), tied);
            assert_eq!(layout.head == layout.embedding, tied);
        }
    }

    #[test]
    fn blocks_are_aligned_and_stacked_matrices_touch() {
        let mut config = Config::tiny(16);
        config.hidden = 16;
        config.head_dim = 4;
        config.ffn = 24;
        let layout = Layout::new(&config);
        let offset = |name: &str| layout.slot(name).unwrap().offset;
        for (index, layer) in layout.layers.iter().enumerate() {
            for block in [layer.attention_norm, layer.qkv, layer.output, layer.gate_up] {
                assert_eq!(block % BLOCK_ALIGNMENT, 0);
            }
            let at = |name: &str| offset(&format!("model.layers.{index}.{name}.weight"));
            assert_eq!(at("self_attn.q_proj"), layer.qkv);
            assert_eq!(at("self_attn.k_proj"), layer.qkv + 16 * 16);
            assert_eq!(at("self_attn.v_proj"), layer.qkv + 2 * 16 * 16);
            assert_eq!(at("mlp.up_proj"), layer.gate_up + 24 * 16);
        }
    }
}
