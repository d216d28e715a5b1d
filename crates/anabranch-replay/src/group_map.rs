//! Maps by group id, with a fast hash.
//!
//! Verification looks up ids a dozen times for each group. The standard library's hash, which guards against chosen
//! keys, would take a fifth of the time. Ids come from a log that the library wrote, so no guard is needed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use anabranch_core::GroupId;

/// A map by group id.
pub(crate) type ById<T> = HashMap<GroupId, T, BuildHasherDefault<IdHasher>>;

/// Folds numbers by multiplication. Of a name it hashes only the length: nearly all ids of a run have the same name,
/// and reading its bytes would miss the cache. Keys have only names, `u32` and `u64` as parts.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct IdHasher(u64);

/// An odd number without a pattern: the fractional part of the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl IdHasher {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        self.0 = (product as u64) ^ ((product >> 64) as u64).rotate_left(32);
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.fold(bytes.len() as u64);
    }

    /// Ignores the byte that marks the end of a name.
    fn write_u8(&mut self, _: u8) {}

    fn write_u32(&mut self, value: u32) {
        self.fold(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.fold(value);
    }

    fn finish(&self) -> u64 {
        // The map takes an entry's place from the low bits and its tag from the high bits.
        let product = u128::from(self.0) * u128::from(MULTIPLIER);
        (product as u64) ^ ((product >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault};

    use anabranch_core::PromptId;

    use super::*;

    #[test]
    fn neighbouring_ids_fall_apart() {
        let build = BuildHasherDefault::<IdHasher>::default();
        let dataset: std::sync::Arc<str> = "letters".into();
        let mut whole = HashSet::new();
        let mut low = vec![0_u32; 1 << 12];
        for (row, attempt) in (0..1_u64 << 14).flat_map(|row| (0..2).map(move |attempt| (row, attempt))) {
            let prompt = PromptId { dataset: dataset.clone(), epoch: (row % 3) as u32, row };
            let hash = build.hash_one(GroupId { prompt, attempt });
            assert!(whole.insert(hash), "two ids with one hash");
            low[hash as usize & 0xfff] += 1;
        }
        // A place has eight ids on average. Random hashes would hardly ever put thirty in one place.
        assert!(low.iter().all(|count| *count < 30), "{:?}", low.iter().max());
        let tags: HashSet<u64> = whole.iter().map(|hash| hash >> 57).collect();
        assert_eq!(tags.len(), 128);
    }
}
