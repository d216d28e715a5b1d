//! One file of a segment while it is being written. It is called `.part` until it is complete and synced.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anabranch_core::Seq;
use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::SegmentError;
use crate::failpoint;
use crate::manifest::{SegmentFile, hex, sync_directory};
use crate::schema::TableSchema;

/// Rows per row group: a reader holds one row group and can skip the others.
const ROW_GROUP: usize = 1 << 16;
/// Rows per page: a reader decodes one page to read one row.
const PAGE: usize = 256;

/// A file that counts its bytes and computes their checksum.
struct Checked {
    file: File,
    bytes: u64,
    crc: u32,
}

impl Write for Checked {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buffer)?;
        self.bytes += written as u64;
        self.crc = crc32c::crc32c_append(self.crc, &buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

pub(crate) struct Output {
    table: &'static TableSchema,
    name: String,
    path: PathBuf,
    part: PathBuf,
    rows: u64,
    writer: ArrowWriter<Checked>,
}

/// The largest number of different groups in the Bloom filter of a row group.
const GROUPS: u64 = 1 << 10;

pub(crate) fn properties(table: &TableSchema) -> WriterProperties {
    let random = ColumnPath::from(vec!["logprobs".to_owned(), "list".to_owned(), "element".to_owned()]);
    let sorted = SortingColumn { column_idx: 0, descending: false, nulls_first: false };
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_sorting_columns(Some(vec![sorted]))
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_data_page_row_count_limit(PAGE)
        .set_write_batch_size(PAGE)
        // Log-probs hardly ever repeat, so a dictionary would be built and thrown away.
        .set_column_dictionary_enabled(random, false)
        .set_created_by(format!("anabranch {} ({})", env!("CARGO_PKG_VERSION"), table.name));
    // Groups are looked up by name, and names are not sorted. A filter tells which row groups do not contain a name; a
    // range of names does not.
    if table.columns.iter().any(|column| column.name == "group_id") {
        let name = ColumnPath::from("group_id");
        properties
            .set_column_bloom_filter_enabled(name.clone(), true)
            .set_column_bloom_filter_max_ndv(name, GROUPS)
            .build()
    } else {
        properties.build()
    }
}

impl Output {
    /// Begins the file of `table` for the events `first` to `last`.
    pub(crate) fn create(
        folder: &Path,
        table: &'static TableSchema,
        first: Seq,
        last: Seq,
    ) -> Result<Self, SegmentError> {
        let name = format!("{}/{:012}-{:012}.parquet", table.name, first.0, last.0);
        let path = folder.join(&name);
        let part = path.with_extension("part");
        let file = File::create(&part).map_err(SegmentError::io("create", &part))?;
        let checked = Checked { file, bytes: 0, crc: 0 };
        let writer = ArrowWriter::try_new(checked, table.arrow(), Some(properties(table)))
            .map_err(SegmentError::parquet(&part))?;
        Ok(Self { table, name, path, part, rows: 0, writer })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), SegmentError> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(SegmentError::parquet(&self.part))
    }

    /// Closes and syncs the file. It keeps its `.part` name.
    pub(crate) fn close(self) -> Result<Closed, SegmentError> {
        let Checked { file, bytes, crc } = self.writer.into_inner().map_err(SegmentError::parquet(&self.part))?;
        let synced = failpoint::at("segment-written").and_then(|()| file.sync_all());
        synced.map_err(SegmentError::io("sync", &self.part))?;
        let described = SegmentFile {
            table: self.table.name.to_owned(),
            path: self.name,
            rows: self.rows,
            bytes,
            crc32c: hex(crc),
        };
        Ok(Closed { path: self.path, part: self.part, described })
    }
}

/// A complete file that does not have its final name yet.
pub(crate) struct Closed {
    path: PathBuf,
    part: PathBuf,
    described: SegmentFile,
}

impl Closed {
    /// Gives the file its final name, durably.
    pub(crate) fn rename(self) -> Result<SegmentFile, SegmentError> {
        let renamed = failpoint::at("segment-rename").and_then(|()| fs::rename(&self.part, &self.path));
        let renamed = renamed.and_then(|()| failpoint::at("segment-renamed"));
        renamed.map_err(SegmentError::io("rename to", &self.path))?;
        if let Some(directory) = self.path.parent() {
            sync_directory(directory).map_err(SegmentError::io("sync", directory))?;
        }
        Ok(self.described)
    }
}
