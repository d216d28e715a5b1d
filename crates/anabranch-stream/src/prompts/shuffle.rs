//! A permutation computed from a counter: the order of an epoch without a stored list, so that a cursor is enough to
//! resume it.

/// `SplitMix64`'s finaliser (Steele, Lea and Flood 2014): a bijection of 64 bits that mixes them well.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A seeded permutation of `0..len`: a four-round Feistel network on the next even power of two, applied until the
/// result is below `len` (Black and Rogaway 2002).
#[derive(Copy, Clone, Debug)]
pub(crate) struct Permutation {
    len: u64,
    half_bits: u32,
    key: u64,
}

impl Permutation {
    pub(crate) fn new(len: u64, seed: u64, epoch: u32) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Self { len, half_bits: bits.div_ceil(2).max(1), key: mix(seed ^ mix(u64::from(epoch) + 1)) }
    }

    pub(crate) fn at(self, index: u64) -> u64 {
        debug_assert!(index < self.len);
        let mut value = index;
        loop {
            value = self.rounds(value);
            if value < self.len {
                return value;
            }
        }
    }

    fn rounds(self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..4 {
            let mixed = mix(right ^ self.key.wrapping_add(round << 56)) & mask;
            (left, right) = (right, left ^ mixed);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_is_a_permutation_of_its_own() {
        for len in [1, 2, 3, 7, 64, 1000] {
            let order = |seed, epoch| (0..len).map(|i| Permutation::new(len, seed, epoch).at(i)).collect::<Vec<_>>();
            let mut sorted = order(7, 0);
            sorted.sort_unstable();
            assert_eq!(sorted, (0..len).collect::<Vec<_>>());
            assert_eq!(order(7, 0), order(7, 0));
            if len > 7 {
                assert_ne!(order(7, 0), order(7, 1));
                assert_ne!(order(7, 0), order(8, 0));
                assert_ne!(order(7, 0), (0..len).collect::<Vec<_>>());
            }
        }
    }
}
