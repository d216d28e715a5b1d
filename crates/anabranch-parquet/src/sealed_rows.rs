//! Reads the rows of one sealed file, with the requested columns and seqs, batch by batch.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

use anabranch_core::Seq;
use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowPredicateFn, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowFilter,
};
use parquet::file::metadata::{ParquetStatisticsPolicy, RowGroupMetaData};
use parquet::file::statistics::Statistics;

use crate::{SegmentError, SegmentReader, Table};

/// How many rows are decoded at a time.
const BATCH: usize = 1024;
/// The place of the column `seq` in every table.
const SEQ: usize = 0;

/// The rows of a table in one segment.
pub(crate) struct SealedRows {
    path: PathBuf,
    batches: ParquetRecordBatchReader,
    /// For each requested column, its place among the columns read, which are in the order of the schema.
    order: Vec<usize>,
    /// One past the last event of the segment.
    end: Seq,
}

impl SealedRows {
    /// Opens the file of `table` in a segment of `reader`, for the `columns` by their places and the events in `seqs`. Row
    /// groups whose statistics show that they have none of these are not read.
    pub(crate) fn open(
        reader: &SegmentReader,
        segment: usize,
        table: Table,
        columns: &[usize],
        seqs: &Range<Seq>,
    ) -> Result<Self, SegmentError> {
        let manifest = &reader.manifests()[segment];
        let Some(file) = manifest.file(table.name()) else {
            let what = format!("segment {} has no file of table `{table}`", manifest.number);
            return Err(SegmentError::damaged(reader.folder(), what));
        };
        let path = reader.folder().join(&file.path);
        let opened = File::open(&path).map_err(SegmentError::io("open", &path))?;
        let whole = seqs.start <= manifest.first && manifest.last < seqs.end;
        // Statistics take as long to decode as the rows of a short segment, so only those of `seq` are decoded, and
        // only if needed.
        let statistics =
            if whole { ParquetStatisticsPolicy::SkipAll } else { ParquetStatisticsPolicy::skip_except(&[SEQ]) };
        // The schema is given, not read. A file with other columns is refused, so all rows have the same schema.
        let options = ArrowReaderOptions::new()
            .with_schema(table.schema().arrow())
            .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
            .with_column_stats_policy(statistics);
        let mut builder = ParquetRecordBatchReaderBuilder::try_new_with_options(opened, options)
            .map_err(SegmentError::parquet(&path))?;
        if !whole {
            let groups = builder.metadata().row_groups().iter().enumerate();
            let kept = groups.filter(|(_, group)| may_hold(group, seqs)).map(|(place, _)| place).collect();
            let (seq, seqs) = (ProjectionMask::roots(builder.parquet_schema(), [SEQ]), seqs.clone());
            let is_within = move |batch: RecordBatch| {
                let found = batch.column(0).as_primitive::<UInt64Type>().values();
                Ok(found.iter().map(|&seq| Some(seqs.contains(&Seq(seq)))).collect::<BooleanArray>())
            };
            let filter = RowFilter::new(vec![Box::new(ArrowPredicateFn::new(seq, is_within))]);
            builder = builder.with_row_groups(kept).with_row_filter(filter);
        }
        let mask = ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied());
        let batches = builder.with_batch_size(BATCH).with_projection(mask).build();
        let batches = batches.map_err(SegmentError::parquet(&path))?;
        let place = |column: &usize| columns.iter().filter(|other| *other < column).count();
        Ok(Self { batches, path, order: columns.iter().map(place).collect(), end: Seq(manifest.last.0 + 1) })
    }

    /// One past the last event of the segment.
    pub(crate) fn end(&self) -> Seq {
        self.end
    }

    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, SegmentError> {
        let Some(batch) = self.batches.next().transpose().map_err(SegmentError::parquet(&self.path))? else {
            return Ok(None);
        };
        batch.project(&self.order).map(Some).map_err(SegmentError::parquet(&self.path))
    }
}

/// Whether the row group may have rows of these events; it may if its statistics do not say.
fn may_hold(group: &RowGroupMetaData, seqs: &Range<Seq>) -> bool {
    let Some(Statistics::Int64(seq)) = group.column(SEQ).statistics() else { return true };
    let bound = |bound: Option<&i64>| bound.map(|&seq| Seq(seq as u64));
    bound(seq.min_opt()).is_none_or(|min| min < seqs.end) && bound(seq.max_opt()).is_none_or(|max| max >= seqs.start)
}
