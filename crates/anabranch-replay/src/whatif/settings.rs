//! The settings of a schedule, recorded or asked about.

use std::collections::BTreeMap;

use anabranch_core::{Fields, Order, Value, WeightSync};
use serde::Serialize;

use super::WhatIfError;
use crate::configuration::Staleness;

/// What decides a schedule, beside how long things take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// How many groups may be generated at once.
    pub in_flight: usize,
    /// How many samples a group has.
    pub samples: usize,
    /// Whether a slot is for a sample. If not, it is for a group.
    pub slot_per_sample: bool,
    /// How many groups the buffer holds; `None` for the synchronous schedule.
    pub capacity: Option<usize>,
    /// The order in which groups leave the buffer.
    pub order: Order,
    /// The largest version gap that may be trained on.
    pub max_staleness: Option<u64>,
    /// Whether a group of unknown version may pass a limit.
    pub allow_unknown: bool,
    /// How many groups a batch has.
    pub batch: usize,
    /// Whether the last batch is emitted even if it is not full.
    pub emit_partial: bool,
    /// How many training steps lie between publications; `None` to publish after the same steps as in the log.
    pub update_interval: Option<u64>,
    /// How a publication treats samples in flight; `None` to do as each session of the log did.
    #[serde(serialize_with = "mode_name")]
    pub mode: Option<WeightSync>,
    /// How many leases a prompt can have, including the first, if its groups are aborted or stale; `None` to drop the
    /// prompt.
    pub max_attempts: Option<u32>,
    /// How many training steps the run makes; `None` to continue until no prompt is left.
    pub steps: Option<u64>,
}

#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn mode_name<S: serde::Serializer>(mode: &Option<WeightSync>, serializer: S) -> Result<S::Ok, S::Error> {
    mode.map(WeightSync::log_name).serialize(serializer)
}

fn count(fields: Option<&Fields>, field: &str) -> Option<u64> {
    fields?.get(field).and_then(Value::as_int).and_then(|count| u64::try_from(count).ok())
}

impl Settings {
    /// Reads the settings of a log's operators. `mode` is the mode of all its publications, if they have the same.
    pub(crate) fn read(known: &BTreeMap<String, Fields>, mode: Option<WeightSync>) -> Result<Self, WhatIfError> {
        let fields = |operator: &str| known.get(operator);
        let needed = |operator: &'static str, field: &str| {
            count(fields(operator), field).ok_or_else(|| {
                WhatIfError::Unsupported(format!(
                    "expected the setting `{field}` of .{operator} in the log, found none"
                ))
            })
        };
        if count(fields("buffer"), "bytes").is_some() {
            let message = "cannot replay a buffer bounded in bytes: the log does not have the bytes of each group";
            return Err(WhatIfError::Unsupported(message.to_owned()));
        }
        let text = |operator: &str, field: &str| fields(operator).and_then(|fields| fields.get(field)?.as_text());
        let is = |operator: &str, field: &str| {
            fields(operator).is_some_and(|fields| fields.get(field) == Some(&Value::Bool(true)))
        };
        let mut staleness = Staleness::default();
        for (operator, settings) in known {
            staleness.apply(operator, settings);
        }
        Ok(Self {
            in_flight: needed("generate", "in_flight")? as usize,
            samples: needed("generate", "samples")? as usize,
            slot_per_sample: text("generate", "granularity") != Some("group"),
            capacity: count(fields("buffer"), "groups").map(|groups| groups as usize),
            order: text("buffer", "order").map_or(Ok(Order::Fifo), str::parse).map_err(WhatIfError::Order)?,
            max_staleness: staleness.max_staleness(),
            allow_unknown: staleness.allows_unknown(),
            batch: needed("batch", "groups")? as usize,
            emit_partial: is("batch", "emit_partial"),
            update_interval: count(fields("publish"), "every"),
            mode,
            max_attempts: count(fields("prompts"), "max_attempts").and_then(|count| u32::try_from(count).ok()),
            steps: None,
        })
    }

    /// Returns an error if no pipeline can have these settings.
    pub(crate) fn check(&self) -> Result<(), WhatIfError> {
        let zero = [
            ("in_flight", self.in_flight == 0),
            ("samples", self.samples == 0),
            ("capacity", self.capacity == Some(0)),
            ("batch", self.batch == 0),
            ("update_interval", self.update_interval == Some(0)),
            ("max_attempts", self.max_attempts == Some(0)),
            ("steps", self.steps == Some(0)),
        ];
        zero.into_iter().find(|(_, zero)| *zero).map_or(Ok(()), |(argument, _)| {
            Err(WhatIfError::Argument { argument, message: "expected at least 1, found 0".to_owned() })
        })
    }

    /// Returns the number of generation slots.
    pub(crate) fn slots(&self) -> usize {
        self.in_flight * self.slots_of_group()
    }

    /// Returns the number of slots that a group takes.
    pub(crate) fn slots_of_group(&self) -> usize {
        if self.slot_per_sample { self.samples } else { 1 }
    }

    /// Returns the largest number of groups that operators may work on at once.
    pub(crate) fn working_bound(&self) -> usize {
        if self.slot_per_sample { (self.in_flight - 1) * self.samples + 1 } else { self.in_flight }
    }
}
