//! Philox 4x32-10 (Salmon 2011): random bits as a pure function of a key and a counter.
//!
//! With the run's seed as key and (lease, sample, position) as counter, a token's draw does not depend on which other
//! sequences shared its batch, nor on a restart.

use cubecl::prelude::*;

const M0: u32 = 0xD251_1F53;
const M1: u32 = 0xCD9E_8D57;
const W0: u32 = 0x9E37_79B9;
const W1: u32 = 0xBB67_AE85;

/// The first word of Philox 4x32-10.
#[cube]
#[allow(clippy::cast_lossless, reason = "the kernel language has no `From` for its constants")]
pub(crate) fn first_word(k0: u32, k1: u32, c0: u32, c1: u32, c2: u32, c3: u32) -> u32 {
    let mut k0 = k0;
    let mut k1 = k1;
    let mut c0 = c0;
    let mut c1 = c1;
    let mut c2 = c2;
    let mut c3 = c3;
    for _ in 0..10u32 {
        let high0 = u32::mul_hi(c0, u32::new(M0 as i64));
        let low0 = c0 * M0;
        let high1 = u32::mul_hi(c2, u32::new(M1 as i64));
        let low1 = c2 * M1;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += W0;
        k1 += W1;
    }
    c0
}

/// A number in [0, 1) with 24 random bits.
#[cube]
pub(crate) fn uniform(word: u32) -> f32 {
    f32::cast_from(word >> 8u32) * 5.960_464_5e-8f32
}

/// The same generator on the host.
pub mod reference {
    use super::{M0, M1, W0, W1};

    /// All four words of Philox 4x32-10.
    pub fn words(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
        let ([mut k0, mut k1], [mut c0, mut c1, mut c2, mut c3]) = (key, counter);
        for _ in 0..10 {
            let (p0, p1) = (u64::from(c0) * u64::from(M0), u64::from(c2) * u64::from(M1));
            (c0, c1, c2, c3) = ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
            k0 = k0.wrapping_add(W0);
            k1 = k1.wrapping_add(W1);
        }
        [c0, c1, c2, c3]
    }

    /// The number in [0, 1) that the sampler draws for this key and counter.
    pub fn uniform(key: [u32; 2], counter: [u32; 4]) -> f32 {
        (words(key, counter)[0] >> 8) as f32 / 16_777_216.0
    }
}

#[cfg(test)]
mod tests {
    use super::reference::words;

    /// Known answers published with the authors' Random123 library.
    #[test]
    fn agrees_with_the_published_vectors() {
        assert_eq!(words([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(words([u32::MAX; 2], [u32::MAX; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            words([0xa409_3822, 0x299f_31d0], [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
