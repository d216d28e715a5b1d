//! Datasets: rows of tokens and fields, with a digest that names them.

use std::sync::Arc;

use crate::{Digest, Fields, Prompt, PromptId};

/// A dataset that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// It has no rows.
    #[error("dataset `{0}` has no rows: a run needs at least one prompt")]
    Empty(String),
    /// A row without tokens.
    #[error("dataset `{dataset}` row {row} has no tokens: every prompt needs at least one token to continue")]
    NoTokens {
        /// The dataset.
        dataset: String,
        /// The row, from 0.
        row: usize,
    },
}

/// Prompts in memory. Clones share the rows.
#[derive(Clone, Debug)]
pub struct Dataset {
    name: Arc<str>,
    rows: Arc<[(Vec<u32>, Fields)]>,
    digest: Digest,
}

impl Dataset {
    /// A dataset of `rows`: token ids to continue, and the other fields.
    ///
    /// # Errors
    /// Where there are no rows, or one has no tokens.
    pub fn new(name: impl Into<Arc<str>>, rows: Vec<(Vec<u32>, Fields)>) -> Result<Self, DatasetError> {
        let name = name.into();
        if rows.is_empty() {
            return Err(DatasetError::Empty(name.to_string()));
        }
        if let Some(row) = rows.iter().position(|(tokens, _)| tokens.is_empty()) {
            return Err(DatasetError::NoTokens { dataset: name.to_string(), row });
        }
        let encoded: Vec<String> = rows.iter().map(|row| serde_json::to_string(row).unwrap_or_default()).collect();
        let digest = Digest::of_parts(encoded.iter().map(String::as_bytes));
        Ok(Self { name, rows: rows.into(), digest })
    }

    /// Its name, the first part of every [`PromptId`].
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How many rows it has.
    pub fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Never: a dataset has at least one row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Digest of all rows.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The prompt of `row` in `epoch`; nothing past the end.
    pub fn prompt(&self, epoch: u32, row: u64) -> Option<Prompt> {
        let (tokens, fields) = self.rows.get(usize::try_from(row).ok()?)?;
        let id = PromptId { dataset: self.name.clone(), epoch, row };
        Some(Prompt { id, tokens: tokens.clone(), fields: fields.clone() })
    }
}
