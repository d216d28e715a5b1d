//! The rows of a table as a stream of Arrow record batches.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anabranch_core::Seq;
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_stream::try_stream;
use futures::Stream;
use futures::stream::BoxStream;
use tokio::runtime::Handle;

use self::reading::{Reading, Source};
use crate::{SegmentReader, Table, TableError, Unsealed};

mod reading;

/// The rows of a table of a run, in the order of their events, as a stream of Arrow record batches: first from the
/// sealed segments, then from the rest of the log, encoded by the code that seals. A row is the same, bit for bit,
/// whether it is sealed or not. Rows that are sealed while the stream is read are neither repeated nor left out.
///
/// All rows have the same [schema](Self::schema). The boundaries of batches have no meaning. The stream ends when it
/// reaches the end of the log; a live run may grow further afterwards.
///
/// Nothing is opened before the first poll. If a requested column does not exist, the first item is an error. Segments
/// without requested events are not opened, and only the requested row groups and columns are read. Checksums are not
/// compared; use [`SegmentReader::check_files`] for that.
///
/// # Back-pressure
/// A batch is read when the stream is polled: at most 1024 rows of a segment, or 4096 events or 64 groups of a log.
/// Reading blocks, so it runs on tokio's threads for blocking work, or in place outside a tokio runtime.
///
/// # Cancel safety
/// Dropping a pending `next()` loses nothing: the next call returns the batch that is being read.
///
/// # Errors
/// Yields a [`TableError`] that names the table and the column or file. The stream then ends.
///
/// ```no_run
/// use anabranch_core::Seq;
/// use anabranch_parquet::{SegmentReader, Table};
/// use futures::TryStreamExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segments = SegmentReader::open("runs/sort4/parquet")?;
/// let mut rows = segments.table(Table::Samples).columns(["group_id", "reward"]).seqs(Seq(1000)..);
/// while let Some(batch) = rows.try_next().await? {
///     println!("{} samples", batch.num_rows());
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct TableRows {
    table: Table,
    /// The names of the columns; `None` for all columns.
    columns: Option<Vec<String>>,
    seqs: Range<Seq>,
    state: State,
}

enum State {
    /// Not polled yet.
    Asked(Source),
    Reading(BoxStream<'static, Result<RecordBatch, TableError>>),
    Ended,
}

impl TableRows {
    pub(crate) fn of_segments(table: Table, reader: SegmentReader) -> Self {
        Self::new(table, Source { sealed: Some(reader), unsealed: None })
    }

    /// The rows of a run whose log is read by `log`, and whose Parquet folder, which need not be there yet, is `folder`:
    /// nothing for a run that is never sealed.
    pub fn of_log(table: Table, folder: Option<PathBuf>, log: Unsealed) -> Self {
        let sealed = folder.map(|folder| SegmentReader::of(folder, Vec::new()));
        Self::new(table, Source { sealed, unsealed: Some(log) })
    }

    fn new(table: Table, source: Source) -> Self {
        Self { table, columns: None, seqs: Seq(0)..Seq(u64::MAX), state: State::Asked(source) }
    }

    /// Gives these columns alone, in this order. Without it, all of the table's.
    pub fn columns<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.columns = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Gives the rows of these events alone: those whose `seq` is in the range.
    pub fn seqs(mut self, range: impl RangeBounds<Seq>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => Seq(before.0.saturating_add(1)),
            Bound::Unbounded => Seq(0),
        };
        let end = match range.end_bound() {
            Bound::Included(last) => Seq(last.0.saturating_add(1)),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => Seq(u64::MAX),
        };
        self.seqs = start..end;
        self
    }

    /// The schema of all its batches.
    ///
    /// # Errors
    /// If the table lacks one of the columns asked for, or one is asked for twice.
    pub fn schema(&self) -> Result<SchemaRef, TableError> {
        let all = self.table.schema().arrow();
        let fields: Vec<_> = self.places()?.into_iter().map(|place| all.field(place).clone()).collect();
        Ok(Arc::new(Schema::new(fields)))
    }

    /// The places of the columns asked for in the table's schema.
    fn places(&self) -> Result<Vec<usize>, TableError> {
        let (table, known) = (self.table, self.table.schema().columns);
        let Some(names) = &self.columns else { return Ok((0..known.len()).collect()) };
        let mut places = Vec::with_capacity(names.len());
        for name in names {
            let place = known.iter().position(|column| column.name == name);
            let place = place.ok_or_else(|| TableError::UnknownColumn { table, found: name.clone() })?;
            if places.contains(&place) {
                return Err(TableError::RepeatedColumn { table, column: name.clone() });
            }
            places.push(place);
        }
        if places.is_empty() { Err(TableError::NoColumns(table)) } else { Ok(places) }
    }
}

fn rows(table: Table, mut reading: Reading) -> impl Stream<Item = Result<RecordBatch, TableError>> + Send + 'static {
    try_stream! {
        loop {
            let (read, batch) = off_thread(table, reading).await?;
            reading = read;
            match batch? {
                Some(batch) => yield batch,
                None => break,
            }
        }
    }
}

type Read = (Reading, Result<Option<RecordBatch>, TableError>);

/// Reads a batch where blocking is allowed.
async fn off_thread(table: Table, mut reading: Reading) -> Result<Read, TableError> {
    let read = move || {
        let batch = reading.next_batch();
        (reading, batch)
    };
    let Ok(runtime) = Handle::try_current() else { return Ok(read()) };
    runtime.spawn_blocking(read).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => TableError::RuntimeEnded(table),
    })
}

impl Stream for TableRows {
    type Item = Result<RecordBatch, TableError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Reading(rows) => return rows.as_mut().poll_next(cx),
                State::Ended => return Poll::Ready(None),
                State::Asked(_) => {
                    let places = this.places();
                    let State::Asked(source) = std::mem::replace(&mut this.state, State::Ended) else { continue };
                    let places = match places {
                        Ok(places) => places,
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    };
                    let reading = Reading::new(this.table, places, this.seqs.clone(), source);
                    this.state = State::Reading(Box::pin(rows(this.table, reading)));
                }
            }
        }
    }
}

impl fmt::Debug for TableRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableRows")
            .field("table", &self.table)
            .field("columns", &self.columns)
            .field("seqs", &self.seqs)
            .finish_non_exhaustive()
    }
}
