//! Sequences of different lengths, one after the other, without padding.

use cubecl::prelude::Runtime;

use crate::device::Device;
use crate::tensor::Ids;

/// The place of each token of a packed batch in its sequence.
#[derive(Clone, Debug)]
pub struct Packing<R: Runtime> {
    lengths: Vec<usize>,
    tokens: usize,
    /// For each token, the index of its sequence's first token. `[tokens]`
    pub starts: Ids<R>,
    /// For each token, one past the index of its sequence's last token. `[tokens]`
    pub ends: Ids<R>,
    /// For each token, its place in its sequence, from 0. `[tokens]`
    pub positions: Ids<R>,
}

impl<R: Runtime> Packing<R> {
    /// Describes sequences of `lengths` tokens, in this order. Empty sequences are allowed and hold no token.
    pub fn new(device: &Device<R>, lengths: &[usize]) -> Self {
        let tokens = lengths.iter().sum();
        let (mut starts, mut ends, mut positions) =
            (Vec::with_capacity(tokens), Vec::with_capacity(tokens), Vec::with_capacity(tokens));
        for &length in lengths {
            let start = starts.len() as u32;
            for position in 0..length as u32 {
                starts.push(start);
                ends.push(start + length as u32);
                positions.push(position);
            }
        }
        Self {
            lengths: lengths.to_vec(),
            tokens,
            starts: device.ids(&starts),
            ends: device.ids(&ends),
            positions: device.ids(&positions),
        }
    }

    /// The number of tokens of all sequences together.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The number of tokens of each sequence.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }
}
