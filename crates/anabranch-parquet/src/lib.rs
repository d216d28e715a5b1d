//! The public form of an anabranch run: Parquet segments with a documented, versioned schema. `DuckDB`, pandas and
//! Polars can read them without any code of this project.
//!
//! A segment is a range of the log: five files (`events`, `groups`, `samples`, `publications`, `steps`) and the numbered
//! manifest that names them. [`Segments`] seals, [`SegmentReader`] reads back: events exactly, payloads bit for bit.
//! [`TableRows`] gives the rows of a table as a stream of Arrow record batches.
//!
//! A seal has three steps: it writes each file as `.part`, closes and syncs it; it renames each file and syncs its
//! directory; then it creates the manifest. Only files that a manifest names belong to the run. So a segment is never
//! partial and never exists twice, even if the process is killed.

mod columns;
mod decode;
mod encode;
mod error;
mod events;
mod failpoint;
mod follow;
mod lookup;
mod manifest;
mod output;
mod payloads;
mod reader;
mod schema;
mod sealed_rows;
mod table;
mod table_error;
mod table_rows;
mod unsealed;
mod writer;

/// The version of Arrow in the signatures of this crate.
pub use arrow;

pub use error::SegmentError;
pub use follow::{Follow, follow};
pub use lookup::SealedPayloads;
pub use manifest::{Manifest, SegmentFile};
pub use reader::{Events, SegmentReader};
pub use schema::{Column, Kind, SCHEMA, TABLES, TableSchema};
pub use table::Table;
pub use table_error::TableError;
pub use table_rows::TableRows;
pub use unsealed::Unsealed;
pub use writer::Segments;
