//! The names of leases and of their groups.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::PromptId;

/// The name of a lease and of its group: a prompt and an attempt. The first attempt is 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId {
    /// The prompt.
    pub prompt: PromptId,
    /// The attempt at the prompt, from 0.
    pub attempt: u32,
}

/// The name of a lease, which is the name of its group.
pub type LeaseId = GroupId;

impl GroupId {
    /// The lease of the next attempt at the same prompt.
    #[must_use]
    pub fn retry(&self) -> Self {
        Self { prompt: self.prompt.clone(), attempt: self.attempt + 1 }
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.prompt, self.attempt)
    }
}

/// A text that does not name a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a group id such as sort4/0/17#0 (dataset/epoch/row#attempt), found `{0}`")]
pub struct ParseGroupIdError(String);

impl FromStr for GroupId {
    type Err = ParseGroupIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (prompt, attempt) = text.rsplit_once('#').unwrap_or((text, "0"));
            let (rest, row) = prompt.rsplit_once('/')?;
            let (dataset, epoch) = rest.rsplit_once('/')?;
            let prompt = PromptId { dataset: dataset.into(), epoch: epoch.parse().ok()?, row: row.parse().ok()? };
            Some(Self { prompt, attempt: attempt.parse().ok()? })
        };
        parse().ok_or_else(|| ParseGroupIdError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_and_parse() {
        let id: GroupId = "math/hard/2/17#1".parse().unwrap();
        assert_eq!((&*id.prompt.dataset, id.prompt.epoch, id.prompt.row, id.attempt), ("math/hard", 2, 17, 1));
        assert_eq!(id.to_string(), "math/hard/2/17#1");
        assert_eq!("sort4/0/3".parse::<GroupId>().unwrap().attempt, 0);
        let error = "sort4".parse::<GroupId>().unwrap_err();
        assert!(error.to_string().contains("sort4/0/17#0"), "{error}");
    }
}
