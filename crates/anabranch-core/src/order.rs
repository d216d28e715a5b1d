//! The order in which groups leave a buffer.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::OldestVersion;

/// The order in which groups leave a buffer. The age of a group is the age of the oldest version in any of its spans.
/// If two groups are equally old, the one admitted first leaves first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// First in, first out, in the order of admission, which is the order of completion.
    #[default]
    Fifo,
    /// The youngest group first. A group of unknown version counts as the oldest.
    Freshest,
    /// The oldest group first. A group of unknown version leaves before all others.
    Stalest,
}

impl Order {
    /// The name of the order in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Freshest => "freshest",
            Self::Stalest => "stalest",
        }
    }

    /// The rank of a group. The lowest rank leaves first; of equal ranks, the group admitted first.
    pub fn rank(self, oldest: Option<OldestVersion>) -> u64 {
        let age = match oldest {
            Some(OldestVersion::Known(version)) => version.0.saturating_add(1),
            Some(OldestVersion::Unknown) | None => 0,
        };
        match self {
            Self::Fifo => 0,
            Self::Freshest => u64::MAX - age,
            Self::Stalest => age,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text does not name an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected fifo, freshest or stalest, found `{0}`")]
pub struct ParseOrderError(String);

impl FromStr for Order {
    type Err = ParseOrderError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let orders = [Self::Fifo, Self::Freshest, Self::Stalest];
        orders.into_iter().find(|order| order.name() == text).ok_or_else(|| ParseOrderError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    #[test]
    fn what_nobody_can_bound_counts_as_the_oldest_there_can_be() {
        let ages = [
            Some(OldestVersion::Unknown),
            Some(OldestVersion::Known(Version(0))),
            Some(OldestVersion::Known(Version(7))),
        ];
        let ranks = |order: Order| ages.map(|age| order.rank(age));
        assert!(ranks(Order::Stalest).is_sorted_by(|a, b| a < b));
        assert!(ranks(Order::Freshest).is_sorted_by(|a, b| a > b));
        assert_eq!(ranks(Order::Fifo), [0; 3]);
    }

    #[test]
    fn names_are_read_back() {
        for order in [Order::Fifo, Order::Freshest, Order::Stalest] {
            assert_eq!(order.name().parse(), Ok(order));
        }
        let error = "lifo".parse::<Order>().unwrap_err();
        assert_eq!(error.to_string(), "expected fifo, freshest or stalest, found `lifo`");
    }
}
