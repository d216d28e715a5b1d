//! The learner: it trains a table on the CPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anabranch::prelude::*;
use anabranch::{Batch, Digest, LearnerError, StepReport};

use crate::table::{DIGITS, Table};

/// How far a step moves the logits.
const LEARNING_RATE: f64 = 4.0;

/// The files of a checkpoint.
const TABLE: &str = "table";
const PUBLISHED: &str = "published";

/// Trains a [`Table`] with REINFORCE. The baseline of a sample is the mean reward of its group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reinforce {
    table: Table,
    /// What the engines got last.
    published: Option<Table>,
}

impl Learner for Reinforce {
    type Weights = Table;

    fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError> {
        let (mut gradient, mut loss, mut tokens) = (Table::default(), 0.0, 0.0);
        for group in &batch.groups {
            let baseline = group.reward_mean().unwrap_or_default();
            for sample in &group.samples {
                let advantage = sample.reward.unwrap_or(baseline) - baseline;
                // Each token with the token before it; the mask leaves out tokens that the policy did not write.
                let pairs = sample.tokens[sample.prompt_len as usize - 1..].windows(2);
                for (pair, _) in pairs.zip(&sample.loss_mask).filter(|(_, generated)| **generated) {
                    let (last, next) = (pair[0] as usize, pair[1] as usize);
                    let probabilities = self.table.probabilities(last, 1.0);
                    for (digit, slope) in gradient.0[last].iter_mut().enumerate() {
                        *slope += advantage * (f64::from(digit == next) - probabilities[digit]);
                    }
                    loss -= advantage * probabilities[next].ln();
                    tokens += 1.0;
                }
            }
        }
        let scale = LEARNING_RATE / f64::max(tokens, 1.0) * DIGITS as f64;
        for (logit, slope) in self.table.0.as_flattened_mut().iter_mut().zip(gradient.0.as_flattened()) {
            *logit += scale * slope;
        }
        let loss = loss / f64::max(tokens, 1.0);
        Ok(StepReport { updates: 1, loss, metrics: BTreeMap::new(), weights: self.table.digest() })
    }

    fn weights(&mut self) -> Result<Table, LearnerError> {
        self.published = Some(self.table.clone());
        Ok(self.table.clone())
    }

    fn published(&mut self) -> Result<Option<Table>, LearnerError> {
        Ok(self.published.clone())
    }

    fn digest(&mut self) -> Result<Digest, LearnerError> {
        Ok(self.table.digest())
    }

    fn save(&mut self, dir: &Path) -> Result<(), LearnerError> {
        write(&dir.join(TABLE), &self.table)?;
        self.published.iter().try_for_each(|table| write(&dir.join(PUBLISHED), table))
    }

    fn load(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.table = read(&dir.join(TABLE))?;
        let published = dir.join(PUBLISHED);
        self.published = if published.exists() { Some(read(&published)?) } else { None };
        Ok(())
    }
}

fn write(path: &Path, table: &Table) -> Result<(), LearnerError> {
    let failed = |error| LearnerError::caused(format!("cannot write {}", path.display()), error);
    fs::write(path, table.bytes()).map_err(failed)
}

fn read(path: &Path) -> Result<Table, LearnerError> {
    let failed = |error| LearnerError::caused(format!("cannot read {}", path.display()), error);
    let bytes = fs::read(path).map_err(failed)?;
    let mut table = Table::default();
    let (logits, rest) = bytes.as_chunks::<8>();
    if logits.len() != DIGITS * DIGITS || !rest.is_empty() {
        let (expected, found) = (8 * DIGITS * DIGITS, bytes.len());
        let message = format!("{}: expected a table of {expected} bytes, found {found}", path.display());
        return Err(LearnerError::new(message));
    }
    for (logit, bytes) in table.0.as_flattened_mut().iter_mut().zip(logits) {
        *logit = f64::from_le_bytes(*bytes);
    }
    Ok(table)
}
