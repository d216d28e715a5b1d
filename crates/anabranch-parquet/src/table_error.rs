//! The errors of reading the rows of a table. Each says what failed, where, and what to do.

use anabranch_core::{BoxError, Seq};

use crate::{SegmentError, Table};

/// Rows of a table could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The table has no column of that name.
    #[error("table `{table}`, column `{found}`: expected one of {}, found `{found}`", names(*table))]
    UnknownColumn {
        /// The table.
        table: Table,
        /// The requested name.
        found: String,
    },
    /// A column was asked for twice.
    #[error("table `{table}`, column `{column}`: expected once, found twice: name each column once")]
    RepeatedColumn {
        /// The table.
        table: Table,
        /// The column.
        column: String,
    },
    /// No column was asked for.
    #[error("table `{0}`: expected at least one column, found none: name one, or leave `columns` out to get all")]
    NoColumns(Table),
    /// A sealed segment could not be read. The message names its file.
    #[error("table `{table}`: {source}")]
    Segment {
        /// The table.
        table: Table,
        /// The cause, with the file.
        source: SegmentError,
    },
    /// The part of the log that is not sealed could not be read.
    #[error("cannot read the rows of table `{table}` from event {next} on, which are only in the log: {source}")]
    Log {
        /// The table.
        table: Table,
        /// The first event whose rows are missing.
        next: Seq,
        /// The cause.
        source: BoxError,
    },
    /// The tokio runtime ended while rows were read.
    #[error("table `{0}`: the tokio runtime is shutting down: read the rows before it ends")]
    RuntimeEnded(Table),
}

impl TableError {
    pub(crate) fn segment(table: Table) -> impl FnOnce(SegmentError) -> Self {
        move |source| Self::Segment { table, source }
    }
}

fn names(table: Table) -> String {
    let names: Vec<String> = table.schema().columns.iter().map(|column| format!("`{}`", column.name)).collect();
    names.join(", ")
}
