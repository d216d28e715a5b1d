//! The five tables, by name.

use std::fmt;

use crate::schema::{EVENTS, GROUPS, PUBLICATIONS, SAMPLES, STEPS, TableSchema};

/// One of the five tables of a run. `docs/schema.md` lists their columns.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// One row per event of the log.
    Events,
    /// One row per completed group.
    Groups,
    /// One row per sample of a completed group.
    Samples,
    /// One row per installation of weights on the engines.
    Publications,
    /// One row per training step, with its batch.
    Steps,
}

impl Table {
    /// All tables, in the order of [`TABLES`](crate::TABLES).
    pub const ALL: [Self; 5] = [Self::Events, Self::Groups, Self::Samples, Self::Publications, Self::Steps];

    /// The columns and their meanings.
    pub fn schema(self) -> &'static TableSchema {
        match self {
            Self::Events => &EVENTS,
            Self::Groups => &GROUPS,
            Self::Samples => &SAMPLES,
            Self::Publications => &PUBLICATIONS,
            Self::Steps => &STEPS,
        }
    }

    /// The name of the table and of its directory.
    pub fn name(self) -> &'static str {
        self.schema().name
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
