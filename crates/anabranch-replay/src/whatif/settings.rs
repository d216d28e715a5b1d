//! The settings of a schedule: those of a log, and those asked about.

use std::collections::BTreeMap;

use anabranch_core::{Fields, Order, Value, WeightSync};
use serde::Serialize;

use super::WhatIfError;
use crate::configuration::Staleness;

/// What decides a schedule, beside how long things take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Groups that may be generated at once.
    pub in_flight: usize,
    /// Samples of a group.
    pub samples: usize,
    /// Whether a slot is for a sample; else it is for a group.
    pub slot_per_sample: bool,
    /// Groups that the buffer holds; nothing for the synchronous schedule.
    pub capacity: Option<usize>,
    /// In which order they leave it.
    pub order: Order,
    /// The largest version gap that may be trained on.
    pub max_staleness: Option<u64>,
    /// Whether a group of unknown version may pass a limit.
    pub allow_unknown: bool,
    /// Groups of a batch.
    pub batch: usize,
    /// Whether the last batch is emitted where it is not full.
    pub emit_partial: bool,
    /// Training steps between publications; nothing where they follow the steps that they followed in the log.
    pub update_interval: Option<u64>,
    /// What becomes of the samples in flight when weights are published; nothing where it is as in each session of the log.
    #[serde(serialize_with = "mode_name")]
    pub mode: Option<WeightSync>,
    /// Leases of a prompt whose groups are aborted or stale, the first among them; nothing where they are dropped.
    pub max_attempts: Option<u32>,
    /// Training steps after which the run is over; nothing if the run continues until no prompt is left.
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
    /// Reads the settings of a log's operators. `mode` is that of all its publications, where there is one.
    pub(crate) fn read(known: &BTreeMap<String, Fields>, mode: Option<WeightSync>) -> Result<Self, WhatIfError> {
        let fields = |operator: &str| known.get(operator);
        let needed = |operator: &'static str, field: &str| {
            count(fields(operator), field).ok_or_else(|| {
                WhatIfError::Unsupported(format!("the log tells no `{field}` of .{operator}: nothing can be replayed"))
            })
        };
        if count(fields("buffer"), "bytes").is_some() {
            let message = "the buffer is bounded in bytes, which the events do not tell of a group";
            return Err(WhatIfError::Unsupported(message.to_owned()));
        }
        let text = |operator: &str, field: &str| fields(operator).and_then(|fields| fields.get(field)?.as_text());
        let is = |operator: &str, field: &str| {
            fields(operator).is_some_and(|fields| fields.get(field) == Some(&Value::Bool(true)))
        };
        let mut staleness = Staleness::default();
        known.iter().for_each(|(operator, settings)| staleness.apply(operator, settings));
        Ok(Self {
            in_flight: needed("generate", "in_flight")? as usize,
            samples: needed("generate", "samples")? as usize,
            slot_per_sample: text("generate", "granularity") != Some("group"),
            capacity: count(fields("buffer"), "groups").map(|groups| groups as usize),
            order: text("buffer", "order")
                .map_or(Ok(Order::Fifo), str::parse)
                .map_err(|error| WhatIfError::Argument { argument: "order", message: error.to_string() })?,
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

    /// Refuses what no pipeline can have.
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
            Err(WhatIfError::Argument { argument, message: "must be at least 1".to_owned() })
        })
    }

    /// Generation slots.
    pub(crate) fn slots(&self) -> usize {
        self.in_flight * self.slots_of_group()
    }

    /// Slots that a group takes.
    pub(crate) fn slots_of_group(&self) -> usize {
        if self.slot_per_sample { self.samples } else { 1 }
    }

    /// The most groups that operators may work on at once.
    pub(crate) fn working_bound(&self) -> usize {
        if self.slot_per_sample { (self.in_flight - 1) * self.samples + 1 } else { self.in_flight }
    }
}
