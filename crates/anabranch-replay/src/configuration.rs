//! The settings of a pipeline's operators on which the laws of a log depend.

use std::collections::BTreeMap;

use anabranch_core::{Event, EventKind, Fields, Order, Value};
use serde::Serialize;

/// The limits in force at some place of the log. `None` means not configured, or not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Limits {
    /// The largest version gap that `.fresh` lets pass.
    pub max_staleness: Option<u64>,
    /// How many groups a batch has.
    pub batch: Option<u64>,
    /// Whether `.batch` emits a last batch that is not full.
    pub partial: bool,
    /// How many groups the buffer holds.
    pub capacity: Option<u64>,
    /// The order in which groups leave the buffer; `None` also for an order that this version does not know. Without a
    /// known order, no departure is judged.
    pub order: Option<Order>,
    /// How many leases a prompt can have, including the first.
    pub max_attempts: Option<u32>,
    /// Whether leases come from a source that retries.
    pub source: bool,
    #[serde(skip)]
    staleness: Staleness,
}

/// The settings of each `.fresh` of a chain, by its recorded name: `fresh`, then `fresh/2` and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Staleness(BTreeMap<String, (Option<u64>, bool)>);

impl Staleness {
    /// Adds the settings of an operator if it is a `.fresh`.
    pub(crate) fn apply(&mut self, operator: &str, settings: &Fields) {
        if operator == "fresh" || operator.starts_with("fresh/") {
            let allow_unknown = settings.get("allow_unknown") == Some(&Value::Bool(true));
            self.0.insert(operator.to_owned(), (count(settings, "max_staleness"), allow_unknown));
        }
    }

    /// Returns the strictest limit.
    pub(crate) fn max_staleness(&self) -> Option<u64> {
        self.0.values().filter_map(|(limit, _)| *limit).min()
    }

    /// Returns whether groups of unknown version pass every `.fresh`.
    pub(crate) fn allows_unknown(&self) -> bool {
        !self.0.is_empty() && self.0.values().all(|(_, allow_unknown)| *allow_unknown)
    }
}

fn count(settings: &Fields, field: &str) -> Option<u64> {
    settings.get(field).and_then(Value::as_int).and_then(|count| u64::try_from(count).ok())
}

impl Limits {
    /// Adds the settings that `event` records.
    pub fn apply(&mut self, event: &Event) {
        let EventKind::Configured { operator, settings } = &event.kind else { return };
        match operator.as_str() {
            "prompts" => {
                self.source = true;
                self.max_attempts = count(settings, "max_attempts").and_then(|count| u32::try_from(count).ok());
            }
            "buffer" => {
                self.capacity = count(settings, "groups");
                self.order =
                    settings.get("order").and_then(Value::as_text).map_or(Some(Order::Fifo), |name| name.parse().ok());
            }
            "batch" => {
                self.batch = count(settings, "groups");
                self.partial = settings.get("emit_partial") == Some(&Value::Bool(true));
            }
            _ => {
                self.staleness.apply(operator, settings);
                self.max_staleness = self.staleness.max_staleness();
            }
        }
    }

    /// Returns whether groups of unknown version pass the exit check.
    pub(crate) fn allows_unknown(&self) -> bool {
        self.staleness.allows_unknown()
    }
}
