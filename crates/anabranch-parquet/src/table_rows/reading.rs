//! Reading a table step by step: sealed segments first, then the log behind them. Blocks.

use std::ops::Range;

use anabranch_core::{BoxError, Event, Seq};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;

use crate::encode::{self, CompletedGroups, EVENTS_AT_ONCE, GROUPS_AT_ONCE, Joined};
use crate::sealed_rows::SealedRows;
use crate::{SegmentError, SegmentReader, Table, TableError, Unsealed};

/// Where the rows of a run come from.
#[derive(Debug)]
pub(super) struct Source {
    /// The segments; nothing for a run that lives in memory.
    pub(super) sealed: Option<SegmentReader>,
    /// The log behind them; nothing where only segments are read.
    pub(super) unsealed: Option<Unsealed>,
}

/// A table that is being read. Every row belongs to an event, and `seqs.start` is the first event whose rows were not
/// given yet: so no row is given twice and none is left out, whatever is sealed in the meantime.
pub(super) struct Reading {
    table: Table,
    /// The columns to be given, by their places in the schema.
    columns: Vec<usize>,
    seqs: Range<Seq>,
    source: Source,
    /// The segment that is being read.
    segment: Option<SealedRows>,
    /// Events of the log that were read, but whose rows were not made yet.
    pending: Vec<Event>,
    /// For a table that joins two events: how far the log was read, and the last event before that which begins something.
    joined: Option<(Seq, Option<Event>)>,
}

impl Reading {
    pub(super) fn new(table: Table, columns: Vec<usize>, seqs: Range<Seq>, source: Source) -> Self {
        Self { table, columns, seqs, source, segment: None, pending: Vec::new(), joined: None }
    }

    /// The next rows; nothing at the end. What a call does is bounded: it decodes a batch of a segment, or encodes a part
    /// of the log.
    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>, TableError> {
        loop {
            if let Some(segment) = &mut self.segment {
                match segment.next_batch().map_err(TableError::segment(self.table))? {
                    Some(rows) if rows.num_rows() == 0 => {}
                    Some(rows) => return Ok(Some(rows)),
                    None => {
                        self.seqs.start = segment.end();
                        self.segment = None;
                    }
                }
                continue;
            }
            if self.seqs.is_empty() {
                return Ok(None);
            }
            if self.pending.is_empty() && self.open_segment().map_err(TableError::segment(self.table))? {
                continue;
            }
            let next = self.seqs.start;
            match self.read_log() {
                Ok(Some(rows)) if rows.num_rows() == 0 => {}
                Ok(end_or_rows) => return Ok(end_or_rows),
                // Whoever closes a log seals it first, and a payload that the log has dropped is sealed.
                Err(source) => {
                    self.pending.clear();
                    if !self.open_segment().map_err(TableError::segment(self.table))? {
                        return Err(TableError::Log { table: self.table, next, source });
                    }
                }
            }
        }
    }

    /// Opens the segment that has the next event, if that is sealed by now.
    fn open_segment(&mut self) -> Result<bool, SegmentError> {
        let Source { sealed: Some(reader), unsealed } = &mut self.source else { return Ok(false) };
        let next = self.seqs.start;
        if unsealed.is_some() && reader.sealed_through().is_none_or(|last| last < next) {
            reader.refresh()?;
        }
        let segment = reader.manifests().partition_point(|manifest| manifest.last < next);
        if segment == reader.manifests().len() {
            return Ok(false);
        }
        self.segment = Some(SealedRows::open(reader, segment, self.table, &self.columns, &self.seqs)?);
        self.joined = None;
        Ok(true)
    }

    /// Makes rows of a part of the log; nothing where it ends.
    fn read_log(&mut self) -> Result<Option<RecordBatch>, BoxError> {
        let rows = match self.table {
            Table::Events => {
                let events = self.read_events(self.seqs.start)?;
                let Some(last) = events.last() else { return Ok(None) };
                self.seqs.start = after(last);
                encode::events(&events)?
            }
            Table::Groups | Table::Samples => return self.read_groups(),
            Table::Publications => return self.read_joined(Joined::Publications),
            Table::Steps => return self.read_joined(Joined::Steps),
        };
        Ok(Some(rows.project(&self.columns)?))
    }

    fn read_groups(&mut self) -> Result<Option<RecordBatch>, BoxError> {
        if self.pending.is_empty() {
            self.pending = self.read_events(self.seqs.start)?;
        }
        // Their payloads are large: no more of them at a time than sealing takes.
        let completing = self.pending.iter().enumerate().filter(|(_, event)| encode::completes(event));
        let part = completing.map(|(place, _)| place + 1).nth(GROUPS_AT_ONCE - 1).unwrap_or(self.pending.len());
        let Some(last) = self.pending[..part].last() else { return Ok(None) };
        let Some(log) = &self.source.unsealed else { return Ok(None) };
        let completing = self.pending[..part].iter().filter(|event| encode::completes(event));
        let completed = CompletedGroups::read(completing, |id| log.payload(id))?;
        let rows = if self.table == Table::Groups { completed.groups() } else { completed.samples() }?;
        self.seqs.start = after(last);
        self.pending.drain(..part);
        Ok(Some(rows.project(&self.columns)?))
    }

    /// The log is read from the end of what is sealed, though rows may be asked for from later on: what they end may begin
    /// there.
    fn read_joined(&mut self, joined: Joined) -> Result<Option<RecordBatch>, BoxError> {
        let (from, earlier) = match self.joined.take() {
            Some(read) => read,
            None => match &self.source.sealed {
                Some(reader) => {
                    let sealed = reader.sealed_through().map_or(Seq(0), |last| Seq(last.0 + 1));
                    (sealed, reader.last_begun(joined)?)
                }
                None => (Seq(0), None),
            },
        };
        let events = self.read_events(from)?;
        let Some(last) = events.last() else { return Ok(None) };
        let rows = joined.rows(&events, earlier.as_ref())?;
        let rows = from_seq(&rows, self.seqs.start).project(&self.columns)?;
        let read = after(last);
        self.seqs.start = self.seqs.start.max(read);
        self.joined = Some((read, joined.last_begun(events).or(earlier)));
        Ok(Some(rows))
    }

    fn read_events(&self, first: Seq) -> Result<Vec<Event>, BoxError> {
        let Some(log) = &self.source.unsealed else { return Ok(Vec::new()) };
        let left = usize::try_from(self.seqs.end.0 - first.0).unwrap_or(usize::MAX);
        let mut events = log.events(first, left.min(EVENTS_AT_ONCE))?;
        match events.iter().zip(first.0..).find(|(event, expected)| event.seq.0 != *expected) {
            None => {
                events.truncate(left);
                Ok(events)
            }
            Some((event, expected)) => Err(format!("expected event {}, found {}", Seq(expected), event.seq).into()),
        }
    }
}

fn after(event: &Event) -> Seq {
    Seq(event.seq.0 + 1)
}

/// The rows of the events from `first` on. Rows are sorted by their first column, `seq`.
fn from_seq(rows: &RecordBatch, first: Seq) -> RecordBatch {
    let seqs = rows.column(0).as_primitive::<UInt64Type>();
    let place = seqs.values().partition_point(|&seq| seq < first.0);
    rows.slice(place, rows.num_rows() - place)
}
