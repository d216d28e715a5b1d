//! A scripted learner whose weights depend on exactly the groups that it consumed.

use std::fs;
use std::path::Path;

use anabranch_core::{Batch, Digest, GroupId, Learner, LearnerError, StepReport};

/// The only file of a checkpoint. Its three lines are the chain, the chain last handed out (or `-`), and the updates.
const FILE: &str = "chain.txt";

/// A learner whose weights are a hash chain over the ids of the groups that it consumed. Two learners are equal exactly
/// if they consumed the same groups in the same order and batches. A publication hands the first eight bytes of the
/// chain to the engines.
///
/// ```
/// use anabranch_core::{GroupId, Learner};
/// use anabranch_sim::HashChain;
///
/// let mut learner = HashChain::new(1);
/// let ids: Vec<GroupId> = ["d/0/0", "d/0/1"].iter().map(|id| id.parse().unwrap()).collect();
/// assert_ne!(HashChain::over(1, [ids.as_slice()]).digest().unwrap(), learner.digest().unwrap());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashChain {
    chain: Digest,
    published: Option<Digest>,
    updates: u64,
}

impl HashChain {
    /// Creates a chain that begins with `seed`.
    pub fn new(seed: u64) -> Self {
        Self { chain: Digest::of(&seed.to_le_bytes()), published: None, updates: 0 }
    }

    /// Creates the chain after `batches`, each a list of group ids.
    pub fn over<'a>(seed: u64, batches: impl IntoIterator<Item = &'a [GroupId]>) -> Self {
        let mut chain = Self::new(seed);
        batches.into_iter().for_each(|batch| chain.extend(batch));
        chain
    }

    fn extend<'a>(&mut self, ids: impl IntoIterator<Item = &'a GroupId>) {
        let ids: Vec<String> = ids.into_iter().map(GroupId::to_string).collect();
        let parts = ids.iter().map(String::as_bytes);
        self.chain = Digest::of_parts(std::iter::once(self.chain.0.as_slice()).chain(parts));
        self.updates += 1;
    }
}

/// Returns the weights of a chain for the engines.
fn weights(chain: Digest) -> u64 {
    chain.0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

impl Learner for HashChain {
    type Weights = u64;

    fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError> {
        self.extend(batch.groups.iter().map(|group| &group.id));
        let loss = 1.0 / (1.0 + self.updates as f64);
        Ok(StepReport { updates: 1, loss, metrics: [].into(), weights: self.chain })
    }

    fn weights(&mut self) -> Result<u64, LearnerError> {
        self.published = Some(self.chain);
        Ok(weights(self.chain))
    }

    fn published(&mut self) -> Result<Option<u64>, LearnerError> {
        Ok(self.published.map(weights))
    }

    fn digest(&mut self) -> Result<Digest, LearnerError> {
        Ok(self.chain)
    }

    fn save(&mut self, dir: &Path) -> Result<(), LearnerError> {
        let path = dir.join(FILE);
        let published = self.published.map_or_else(|| "-".to_owned(), |digest| digest.to_string());
        let text = format!("{}\n{published}\n{}\n", self.chain, self.updates);
        fs::write(&path, text)
            .map_err(|error| LearnerError::caused(format!("cannot write {}: {error}", path.display()), error))
    }

    fn load(&mut self, dir: &Path) -> Result<(), LearnerError> {
        let path = dir.join(FILE);
        let text = fs::read_to_string(&path)
            .map_err(|error| LearnerError::caused(format!("cannot read {}: {error}", path.display()), error))?;
        let damaged = || LearnerError::new(format!("{} is not a saved chain", path.display()));
        *self = parse(&text).ok_or_else(damaged)?;
        Ok(())
    }
}

fn parse(text: &str) -> Option<HashChain> {
    let mut lines = text.lines();
    let chain = digest(lines.next()?)?;
    let published = match lines.next()? {
        "-" => None,
        text => Some(digest(text)?),
    };
    Some(HashChain { chain, published, updates: lines.next()?.parse().ok()? })
}

fn digest(text: &str) -> Option<Digest> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(Digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<GroupId> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn order_and_batches_matter() {
        let chain = |batches: &[&[&str]]| {
            let batches: Vec<Vec<GroupId>> = batches.iter().map(|batch| ids(batch)).collect();
            HashChain::over(0, batches.iter().map(Vec::as_slice)).digest().unwrap()
        };
        let digests = [
            chain(&[&["d/0/0", "d/0/1"]]),
            chain(&[&["d/0/1", "d/0/0"]]),
            chain(&[&["d/0/0"], &["d/0/1"]]),
            chain(&[&["d/0/0", "d/0/1"], &[]]),
        ];
        for (index, digest) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(digest));
        }
    }

    #[test]
    fn a_saved_chain_comes_back_with_what_it_published() {
        let dir = std::env::temp_dir().join(format!("anabranch-chain-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut saved = HashChain::over(3, [ids(&["d/0/0"]).as_slice()]);
        let published = saved.weights().unwrap();
        saved.extend(&ids(&["d/0/1"]));
        saved.save(&dir).unwrap();
        let mut loaded = HashChain::new(9);
        loaded.load(&dir).unwrap();
        assert_eq!(loaded, saved);
        assert_eq!(loaded.published().unwrap(), Some(published));
        fs::write(dir.join(FILE), "nonsense").unwrap();
        assert!(loaded.load(&dir).unwrap_err().to_string().ends_with("is not a saved chain"));
        fs::remove_dir_all(&dir).unwrap();
        assert!(loaded.load(&dir).unwrap_err().to_string().contains("cannot read"));
    }
}
