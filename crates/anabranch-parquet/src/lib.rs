//! The public side of an anabranch run: Parquet segments with a documented, versioned schema, which `DuckDB`, pandas
//! and Polars read with no code of ours.
//!
//! A segment is a range of the log: five files (`events`, `groups`, `samples`, `publications`, `steps`) and the numbered
//! manifest that names them. [`Segments`] seals, [`SegmentReader`] reads back: events exactly, payloads bit for bit.
//! [`TableRows`] gives the rows of a table as a stream of Arrow record batches.
//!
//! Order of a seal: each file is written as `.part`, closed and synced; then each is renamed and its directory synced;
//! then the manifest is created new. What no manifest names does not exist, so that a segment is never partial and never
//! there twice, whatever kills the process.

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

/// The version of Arrow whose record batches and schemas stand in the signatures here.
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
