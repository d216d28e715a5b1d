//! Prompts and their stable names.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Fields;

mod shared;

/// The name of one task of a dataset in one epoch. It stays the same after restarts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PromptId {
    /// The dataset's name.
    #[serde(deserialize_with = "shared::text")]
    pub dataset: Arc<str>,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The row in the dataset, from 0, before any shuffling.
    pub row: u64,
}

impl fmt::Display for PromptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.dataset, self.epoch, self.row)
    }
}

/// One task: the tokens that an engine continues, and the fields that rewards need to judge the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// The name of the prompt.
    pub id: PromptId,
    /// The token ids to continue.
    pub tokens: Vec<u32>,
    /// The other fields of the dataset row, such as the answer.
    pub fields: Fields,
}
