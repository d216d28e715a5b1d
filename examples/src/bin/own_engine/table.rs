//! The model: a table that tells which digit follows which.

use anabranch::Digest;

/// The number of tokens.
pub const DIGITS: usize = 10;

/// For each last digit, the logits of the next digit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(pub [[f64; DIGITS]; DIGITS]);

impl Table {
    /// Returns the probabilities of the digit after `last`. At temperature 0 the most likely digit is certain.
    pub fn probabilities(&self, last: usize, temperature: f64) -> [f64; DIGITS] {
        let logits = &self.0[last];
        let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let odds = if temperature == 0.0 {
            let best = logits.iter().position(|logit| *logit >= greatest);
            std::array::from_fn(|digit| f64::from(Some(digit) == best))
        } else {
            logits.map(|logit| ((logit - greatest) / temperature).exp())
        };
        let total: f64 = odds.iter().sum();
        odds.map(|odds| odds / total)
    }

    /// Returns the logits as bytes, in a fixed order.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.as_flattened().iter().flat_map(|logit| logit.to_le_bytes()).collect()
    }

    /// Returns the digest of the logits.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.bytes())
    }
}
