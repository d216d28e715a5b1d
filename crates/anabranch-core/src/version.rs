//! The two clocks of a run, and digests.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A published version: it counts the installations of new weights on the engines. The initial installation is version
/// 0; the count never restarts over the life of a run.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

impl Version {
    /// The version after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number of publications between `older` and this version; 0 if `older` is not older.
    pub fn since(self, older: Self) -> u64 {
        self.0.saturating_sub(older.0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// A count of completed training steps: iterations of the training loop, each of one or more optimizer updates.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TrainingStep(pub u64);

impl TrainingStep {
    /// The step after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The number of steps between `older` and this one; 0 if `older` is not older.
    pub fn since(self, older: Self) -> u64 {
        self.0.saturating_sub(older.0)
    }
}

impl fmt::Display for TrainingStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A BLAKE3 digest of weights, a payload, a batch or a dataset.
#[derive(Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The digest of several parts. Each part is preceded by its length, so that different lists of parts have
    /// different inputs.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut all = Parts::default();
        parts.into_iter().for_each(|part| all.add(part));
        all.digest()
    }

    /// The first eight hexadecimal digits, which are enough to tell digests apart on a screen.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

/// Computes [`Digest::of_parts`] part by part.
#[derive(Default)]
pub(crate) struct Parts(blake3::Hasher);

impl Parts {
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart_by_their_lengths() {
        let split = Digest::of_parts([b"ab".as_slice(), b"c".as_slice()]);
        let other = Digest::of_parts([b"a".as_slice(), b"bc".as_slice()]);
        assert_ne!(split, other);
        assert_eq!(split, Digest::of_parts([b"ab".as_slice(), b"c".as_slice()]));
    }

    #[test]
    fn gaps_are_never_negative() {
        assert_eq!(Version(5).since(Version(3)), 2);
        assert_eq!(Version(3).since(Version(5)), 0);
        assert_eq!(TrainingStep(11).since(TrainingStep(9)), 2);
    }
}
