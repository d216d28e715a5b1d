//! The groups that settled already, kept as one bit each.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use anabranch_core::GroupId;

use crate::group_map::IdHasher;

/// The names of groups as sets of rows. Sixty-four rows of one dataset, epoch and attempt share a word. If an epoch has
/// most of its rows, in any order, a name takes about a byte. A name alone in its word takes up to 75 bytes.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    datasets: HashMap<Arc<str>, u32, BuildHasherDefault<IdHasher>>,
    words: HashMap<Word, u64, BuildHasherDefault<IdHasher>>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct Word {
    dataset: u32,
    epoch: u32,
    attempt: u32,
    /// The first row of the word, divided by sixty-four.
    rows: u64,
}

impl Settled {
    pub(crate) fn insert(&mut self, id: &GroupId) {
        let dataset = self.datasets.get(&id.prompt.dataset).copied().unwrap_or_else(|| {
            let next = self.datasets.len() as u32;
            self.datasets.insert(id.prompt.dataset.clone(), next);
            next
        });
        *self.words.entry(word(id, dataset)).or_default() |= bit(id);
    }

    pub(crate) fn contains(&self, id: &GroupId) -> bool {
        let dataset = self.datasets.get(&id.prompt.dataset);
        let word = dataset.and_then(|dataset| self.words.get(&word(id, *dataset)));
        word.is_some_and(|word| word & bit(id) != 0)
    }
}

fn word(id: &GroupId, dataset: u32) -> Word {
    Word { dataset, epoch: id.prompt.epoch, attempt: id.attempt, rows: id.prompt.row / 64 }
}

fn bit(id: &GroupId) -> u64 {
    1 << (id.prompt.row % 64)
}

#[cfg(test)]
mod tests {
    use anabranch_core::PromptId;

    use super::*;

    #[test]
    fn every_name_is_told_from_its_neighbours() {
        let id = |dataset: &str, epoch, row, attempt| {
            let prompt = PromptId { dataset: dataset.into(), epoch, row };
            GroupId { prompt, attempt }
        };
        let mut settled = Settled::default();
        let inserted = [id("a", 0, 0, 0), id("a", 0, 63, 1), id("a", 1, 64, 0), id("b", 0, u64::MAX, 0)];
        for id in &inserted {
            settled.insert(id);
        }
        for dataset in ["a", "b", "c"] {
            for epoch in 0..3 {
                for row in [0, 1, 62, 63, 64, 65, u64::MAX - 1, u64::MAX] {
                    for attempt in 0..3 {
                        let id = id(dataset, epoch, row, attempt);
                        assert_eq!(settled.contains(&id), inserted.contains(&id), "{id}");
                    }
                }
            }
        }
    }
}
