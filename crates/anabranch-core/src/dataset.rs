//! Datasets: rows of tokens and fields, with a digest that names them.

use std::sync::Arc;

use crate::{Digest, Fields, Prompt, PromptId};

/// A dataset that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// The dataset has no rows.
    #[error("dataset `{0}`: expected at least one row, found none")]
    Empty(String),
    /// A row without tokens.
    #[error("dataset `{dataset}` row {row}: expected at least one token to continue, found none")]
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
    /// Creates a dataset. Each row has the token ids to continue, and the other fields.
    ///
    /// # Errors
    /// Returns an error if there are no rows, or if a row has no tokens.
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

    /// The number of rows.
    pub fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Always false: a dataset has at least one row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Digest of all rows.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The prompt of `row` in `epoch`, or `None` past the end.
    pub fn prompt(&self, epoch: u32, row: u64) -> Option<Prompt> {
        let (tokens, fields) = self.rows.get(usize::try_from(row).ok()?)?;
        let id = PromptId { dataset: self.name.clone(), epoch, row };
        Some(Prompt { id, tokens: tokens.clone(), fields: fields.clone() })
    }
}
