//! Reads a run from its Parquet folder alone.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anabranch_core::{Event, Group, GroupId, Seq};
use arrow::array::AsArray;
use arrow::array::{BooleanArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowPredicateFn, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowFilter,
};
use parquet::file::metadata::ParquetStatisticsPolicy;

use crate::decode::Rows;
use crate::encode::Joined;
use crate::manifest::{self, Manifest, hex};
use crate::schema::{EVENTS, GROUPS, SAMPLES, TableSchema};
use crate::{SegmentError, Table, TableRows};

/// How many rows are decoded at a time.
const BATCH: usize = 1024;

/// The sealed segments of a run. Reading needs no database and no lock, and changes nothing. The sealed part of a live
/// run can be read too.
#[derive(Debug)]
pub struct SegmentReader {
    folder: PathBuf,
    manifests: Vec<Manifest>,
    /// Where each group was completed. Filled segment by segment when it is first needed.
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    segments: usize,
    completed: HashMap<GroupId, Seq>,
}

impl SegmentReader {
    /// Opens a Parquet folder.
    ///
    /// # Errors
    /// Returns [`SegmentError::NoSegments`] if the folder has no segments, and [`SegmentError::Damaged`] or
    /// [`SegmentError::Newer`] with the name of the file.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, SegmentError> {
        let folder = folder.into();
        let manifests = manifest::read_all(&folder)?;
        if manifests.is_empty() { Err(SegmentError::NoSegments(folder)) } else { Ok(Self::of(folder, manifests)) }
    }

    pub(crate) fn of(folder: PathBuf, manifests: Vec<Manifest>) -> Self {
        Self { folder, manifests, index: Mutex::default() }
    }

    /// Adds the segments that were sealed since the folder was opened.
    ///
    /// # Errors
    /// The same as for [`open`](Self::open). The segments known before stay.
    pub fn refresh(&mut self) -> Result<(), SegmentError> {
        manifest::read_new(&self.folder, &mut self.manifests)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The manifests, in order.
    pub fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    /// The last event that is sealed.
    pub fn sealed_through(&self) -> Option<Seq> {
        self.manifests.last().map(|manifest| manifest.last)
    }

    /// Wall time of that event, in milliseconds since the Unix epoch.
    pub fn sealed_at_ms(&self) -> Option<u64> {
        self.manifests.last().map(|manifest| manifest.wall_ms)
    }

    /// Returns the rows of a table, from all segments that existed when the reader was opened or refreshed.
    pub fn table(&self, table: Table) -> TableRows {
        TableRows::of_segments(table, Self::of(self.folder.clone(), self.manifests.clone()))
    }

    /// All events, in order. After an error the iterator ends.
    pub fn events(&self) -> Events<'_> {
        self.events_from(Seq(0))
    }

    /// The events from `first` on, like [`events`](Self::events). Earlier segments are not read.
    pub fn events_from(&self, first: Seq) -> Events<'_> {
        let segment = self.manifests.partition_point(|manifest| manifest.last < first);
        Events { reader: self, segment, first, batches: None, current: Vec::new().into_iter() }
    }

    /// The completed groups, in order of completion, with their `Completed` events.
    ///
    /// # Errors
    /// An item is an error that names the file if the file cannot be read.
    pub fn groups(&self) -> impl Iterator<Item = Result<(Seq, Group), SegmentError>> {
        (0..self.manifests.len()).flat_map(|segment| match self.segment_groups(segment, None) {
            Ok(groups) => groups.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        })
    }

    /// Reads the payload of a completed group, bit for bit as it was logged. Returns `None` if it is not sealed.
    ///
    /// # Errors
    /// Returns an error that names the file if a file cannot be read or differs from the sealed one.
    pub fn payload(&self, id: &GroupId) -> Result<Option<Group>, SegmentError> {
        let Some(seq) = self.completed(id)? else { return Ok(None) };
        let segment = self.manifests.partition_point(|manifest| manifest.last < seq);
        let Some((_, group)) = self.segment_groups(segment, Some(seq))?.pop() else { return Ok(None) };
        let (scan, mut sealed) = (self.scan(segment, &GROUPS, &["seq", "payload"], Some(seq))?, None);
        for batch in scan.batches {
            let batch = batch.map_err(SegmentError::parquet(&scan.path))?;
            let rows = Rows::of(&scan.path, &batch);
            sealed = (batch.num_rows() > 0).then(|| rows.text("payload", 0)).transpose()?.flatten().map(str::to_owned);
        }
        let (found, sealed) = (group.digest().to_string(), sealed.unwrap_or_default());
        if found == sealed {
            return Ok(Some(group));
        }
        Err(SegmentError::damaged(
            &scan.path,
            format!("expected the payload of {id} with digest {sealed}, found {found}"),
        ))
    }

    /// Reads every sealed file to its end and compares its bytes with its manifest.
    ///
    /// # Errors
    /// Returns [`SegmentError::Damaged`] with the name of the first file that differs.
    pub fn check_files(&self) -> Result<(), SegmentError> {
        let mut buffer = vec![0; 1 << 16];
        for file in self.manifests.iter().flat_map(|manifest| &manifest.files) {
            let path = self.folder.join(&file.path);
            let mut opened = File::open(&path).map_err(SegmentError::io("open", &path))?;
            let mut crc = 0;
            loop {
                let read = opened.read(&mut buffer).map_err(SegmentError::io("read", &path))?;
                if read == 0 {
                    break;
                }
                crc = crc32c::crc32c_append(crc, &buffer[..read]);
            }
            if hex(crc) != file.crc32c {
                return Err(SegmentError::damaged(
                    &path,
                    format!("expected crc {1}, found {0}", hex(crc), file.crc32c),
                ));
            }
        }
        Ok(())
    }

    fn completed(&self, id: &GroupId) -> Result<Option<Seq>, SegmentError> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        while index.segments < self.manifests.len() {
            let scan =
                self.scan(index.segments, &GROUPS, &["seq", "dataset", "epoch", "prompt_row", "attempt"], None)?;
            let path = scan.path.clone();
            for batch in scan.batches {
                let batch = batch.map_err(SegmentError::parquet(&path))?;
                let rows = Rows::of(&path, &batch);
                for row in 0..batch.num_rows() {
                    if let Some(seq) = rows.u64("seq", row)? {
                        index.completed.insert(rows.group_id(row)?, Seq(seq));
                    }
                }
            }
            index.segments += 1;
        }
        Ok(index.completed.get(id).copied())
    }

    /// The groups of a segment with their samples: all, or the one completed at `only`.
    fn segment_groups(&self, segment: usize, only: Option<Seq>) -> Result<Vec<(Seq, Group)>, SegmentError> {
        let mut groups: Vec<(Seq, Group)> = Vec::new();
        let mut counts = Vec::new();
        let scan = self.scan(segment, &GROUPS, &[], only)?;
        let path = scan.path;
        for batch in scan.batches {
            let batch = batch.map_err(SegmentError::parquet(&path))?;
            let rows = Rows::of(&path, &batch);
            for row in 0..batch.num_rows() {
                groups.push((Seq(rows.u64("seq", row)?.unwrap_or_default()), rows.group(row)?));
                counts.push(rows.sample_count(row)?);
            }
        }
        let scan = self.scan(segment, &SAMPLES, &[], only)?;
        let samples_path = scan.path;
        let mut place = 0;
        for batch in scan.batches {
            let batch = batch.map_err(SegmentError::parquet(&samples_path))?;
            let rows = Rows::of(&samples_path, &batch);
            for row in 0..batch.num_rows() {
                let seq = rows.u64("seq", row)?.map(Seq);
                while groups.get(place).is_some_and(|(group, _)| Some(*group) < seq) {
                    place += 1;
                }
                match groups.get_mut(place) {
                    Some((group, into)) if Some(*group) == seq => into.samples.push(rows.sample(row)?),
                    _ => {
                        return Err(SegmentError::damaged(
                            &samples_path,
                            "a sample belongs to no group of the segment",
                        ));
                    }
                }
            }
        }
        for ((_, group), count) in groups.iter().zip(counts) {
            if group.samples.len() as u64 != u64::from(count) {
                let what = format!("{} samples of group {}, which has {count}", group.samples.len(), group.id);
                return Err(SegmentError::damaged(&samples_path, what));
            }
        }
        Ok(groups)
    }

    /// The events of the segment of `manifests()[segment]`, in order, about a thousand at a time. After an error the
    /// iterator ends.
    ///
    /// # Errors
    /// An item is an error that names the file if the file cannot be read.
    pub fn segment_events(
        &self,
        segment: usize,
    ) -> Result<impl Iterator<Item = Result<Vec<Event>, SegmentError>> + use<>, SegmentError> {
        let Scan { path, batches } = self.scan(segment, &EVENTS, &["raw"], None)?;
        let mut failed = false;
        let decoded = batches.flat_map(move |batch| match batch {
            Ok(batch) => decode(&path, &batch),
            Err(error) => [None, Some(Err(SegmentError::parquet(&path)(error)))],
        });
        Ok(decoded.flatten().take_while(move |decoded| !std::mem::replace(&mut failed, decoded.is_err())))
    }

    /// The last sealed event that begins something that a later event ends. The search goes backwards from the end.
    pub(crate) fn last_begun(&self, joined: Joined) -> Result<Option<Event>, SegmentError> {
        for segment in (0..self.manifests.len()).rev() {
            let mut found = None;
            for events in self.segment_events(segment)? {
                found = joined.last_begun(events?).or(found);
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Reads a table of a segment: the named columns (all columns if no name is given), and only the rows of event
    /// `only` if it is given.
    fn scan(
        &self,
        segment: usize,
        table: &TableSchema,
        columns: &[&str],
        only: Option<Seq>,
    ) -> Result<Scan, SegmentError> {
        let named = self.manifests.get(segment).and_then(|manifest| manifest.file(table.name));
        let path = self.folder.join(named.map_or(table.name, |file| &file.path));
        let file = File::open(&path).map_err(SegmentError::io("open", &path))?;
        let mut builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, footer())
            .map_err(SegmentError::parquet(&path))?;
        let schema = builder.parquet_schema();
        let (all, seq) = (ProjectionMask::all(), ProjectionMask::columns(schema, ["seq"]));
        let mask = if columns.is_empty() { all } else { ProjectionMask::columns(schema, columns.iter().copied()) };
        if let Some(only) = only {
            let is = move |batch: RecordBatch| {
                let seqs = batch.column(0).as_primitive::<UInt64Type>();
                Ok(seqs.iter().map(|seq| Some(seq == Some(only.0))).collect::<BooleanArray>())
            };
            builder = builder.with_row_filter(RowFilter::new(vec![Box::new(ArrowPredicateFn::new(seq, is))]));
        }
        let batches = builder.with_batch_size(BATCH).with_projection(mask).build();
        Ok(Scan { batches: batches.map_err(SegmentError::parquet(&path))?, path })
    }
}

/// How the footer of a file is read: only the positions of its columns. A long run has thousands of files. Decoding
/// statistics that no scan needs, or types that follow from the columns, would take as long as decoding the rows of a
/// short file.
fn footer() -> ArrowReaderOptions {
    ArrowReaderOptions::new()
        .with_skip_arrow_metadata(true)
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
}

struct Scan {
    path: PathBuf,
    batches: ParquetRecordBatchReader,
}

/// The events of a batch of rows, up to the first row that cannot be decoded, and the error of that row.
fn decode(path: &Path, batch: &RecordBatch) -> [Option<Result<Vec<Event>, SegmentError>>; 2] {
    let codec = |source| SegmentError::Codec { what: format!("{}: an event", path.display()), source };
    let mut events = Vec::with_capacity(batch.num_rows());
    let mut read = || {
        for raw in Rows::of(path, batch).binary("raw")? {
            events.push(postcard::from_bytes(raw?).map_err(codec)?);
        }
        Ok(())
    };
    let failed = read().err().map(Err);
    [Some(Ok(events)), failed]
}

type Batches = Box<dyn Iterator<Item = Result<Vec<Event>, SegmentError>> + Send>;

/// The events of all segments: see [`SegmentReader::events`].
#[must_use = "iterators do nothing unless advanced"]
pub struct Events<'a> {
    reader: &'a SegmentReader,
    segment: usize,
    first: Seq,
    batches: Option<Batches>,
    current: std::vec::IntoIter<Event>,
}

impl Events<'_> {
    /// Reads the next events, if there are any.
    fn read(&mut self) -> Result<bool, SegmentError> {
        if let Some(batch) = self.batches.as_mut().and_then(Iterator::next) {
            self.current = batch?.into_iter();
            return Ok(true);
        }
        if self.segment >= self.reader.manifests.len() {
            return Ok(false);
        }
        self.batches = Some(Box::new(self.reader.segment_events(self.segment)?));
        self.segment += 1;
        Ok(true)
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let first = self.first;
            if let Some(event) = self.current.find(|event| event.seq >= first) {
                return Some(Ok(event));
            }
            match self.read() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    (self.segment, self.batches) = (self.reader.manifests.len(), None);
                    return Some(Err(error));
                }
            }
        }
    }
}
