//! Turns rows into Arrow columns, with one closure per column.

use std::sync::Arc;

use anabranch_core::{GroupId, OldestVersion, Seq, TakenGroup};
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMillisecondArray, UInt32Array, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::error::ArrowError;

use crate::schema::{Column, Kind, TableSchema, fields};

/// The rows of an unfinished record batch, and its columns so far.
pub(crate) struct Columns<'a, T> {
    table: &'static TableSchema,
    rows: &'a [T],
    done: Vec<ArrayRef>,
}

impl<'a, T> Columns<'a, T> {
    pub(crate) fn new(table: &'static TableSchema, rows: &'a [T]) -> Self {
        Self { table, rows, done: Vec::with_capacity(table.columns.len()) }
    }

    pub(crate) fn u32(&mut self, get: impl Fn(&'a T) -> Option<u32>) -> &mut Self {
        let array: UInt32Array = self.rows.iter().map(get).collect();
        self.push(Arc::new(array))
    }

    pub(crate) fn u64(&mut self, get: impl Fn(&'a T) -> Option<u64>) -> &mut Self {
        let array: UInt64Array = self.rows.iter().map(get).collect();
        self.push(Arc::new(array))
    }

    pub(crate) fn f64(&mut self, get: impl Fn(&'a T) -> Option<f64>) -> &mut Self {
        let array: Float64Array = self.rows.iter().map(get).collect();
        self.push(Arc::new(array))
    }

    pub(crate) fn bool(&mut self, get: impl Fn(&'a T) -> Option<bool>) -> &mut Self {
        let array: BooleanArray = self.rows.iter().map(get).collect();
        self.push(Arc::new(array))
    }

    pub(crate) fn text<S: AsRef<str>>(&mut self, get: impl Fn(&'a T) -> Option<S>) -> &mut Self {
        let array: StringArray = self.rows.iter().map(get).collect();
        self.push(Arc::new(array))
    }

    pub(crate) fn bytes<B: AsRef<[u8]>>(&mut self, get: impl Fn(&'a T) -> B) -> &mut Self {
        let array: BinaryArray = self.rows.iter().map(|row| Some(get(row))).collect();
        self.push(Arc::new(array))
    }

    pub(crate) fn wall(&mut self, get: impl Fn(&'a T) -> u64) -> &mut Self {
        let array = TimestampMillisecondArray::from_iter_values(self.rows.iter().map(|row| get(row) as i64));
        self.push(Arc::new(array.with_timezone("UTC")))
    }

    /// The five columns that name a group.
    pub(crate) fn group(&mut self, get: impl Fn(&'a T) -> Option<&'a GroupId>) -> &mut Self {
        self.text(|row| get(row).map(ToString::to_string));
        self.text(|row| get(row).map(|id| &*id.prompt.dataset));
        self.u32(|row| get(row).map(|id| id.prompt.epoch));
        self.u64(|row| get(row).map(|id| id.prompt.row));
        self.u32(|row| get(row).map(|id| id.attempt))
    }

    /// A list column whose items come from `get` and become an array in `make`.
    pub(crate) fn list<I: 'a>(
        &mut self,
        get: impl Fn(&'a T) -> Option<&'a [I]>,
        make: impl Fn(&mut dyn Iterator<Item = &'a I>) -> ArrayRef,
    ) -> &mut Self {
        let lists: Vec<Option<&'a [I]>> = self.rows.iter().map(get).collect();
        let items = make(&mut lists.iter().flatten().flat_map(|items| items.iter()));
        let kind = &self.table.columns[self.done.len()].kind;
        let offsets = OffsetBuffer::from_lengths(lists.iter().map(|items| items.map_or(0, <[I]>::len)));
        let nulls: NullBuffer = lists.iter().map(Option::is_some).collect();
        self.push(Arc::new(ListArray::new(Arc::new(kind.item()), offsets, items, Some(nulls))))
    }

    /// A list-of-structs column, whose fields `make` turns into columns.
    pub(crate) fn structs<I: 'a>(
        &mut self,
        get: impl Fn(&'a T) -> Option<Vec<I>>,
        make: impl Fn(&[I]) -> Vec<ArrayRef>,
    ) -> &mut Self {
        let lists: Vec<Option<Vec<I>>> = self.rows.iter().map(get).collect();
        let lengths: Vec<usize> = lists.iter().map(|items| items.as_ref().map_or(0, Vec::len)).collect();
        let nulls: NullBuffer = lists.iter().map(Option::is_some).collect();
        let items: Vec<I> = lists.into_iter().flatten().flatten().collect();
        let kind = &self.table.columns[self.done.len()].kind;
        let columns: &[Column] = if let Kind::Rows(columns) = kind { columns } else { &[] };
        let items = StructArray::new(fields(columns), make(&items), None);
        let list =
            ListArray::new(Arc::new(kind.item()), OffsetBuffer::from_lengths(lengths), Arc::new(items), Some(nulls));
        self.push(Arc::new(list))
    }

    fn push(&mut self, array: ArrayRef) -> &mut Self {
        self.done.push(array);
        self
    }

    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        RecordBatch::try_new(self.table.arrow(), std::mem::take(&mut self.done))
    }
}

/// Items of a list of token ids.
pub(crate) fn tokens(items: &mut dyn Iterator<Item = &u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(items.copied()))
}

/// Items of a list of log-probs, bit for bit.
pub(crate) fn logprobs(items: &mut dyn Iterator<Item = &f32>) -> ArrayRef {
    Arc::new(Float32Array::from_iter_values(items.copied()))
}

/// Items of a loss mask.
pub(crate) fn mask(items: &mut dyn Iterator<Item = &bool>) -> ArrayRef {
    Arc::new(BooleanArray::from(items.copied().collect::<Vec<bool>>()))
}

/// The columns of the groups of a batch.
pub(crate) fn taken(groups: &[&TakenGroup]) -> Vec<ArrayRef> {
    vec![
        Arc::new(StringArray::from_iter_values(groups.iter().map(|group| group.id.to_string()))),
        Arc::new(groups.iter().map(|group| group.dequeued).collect::<UInt64Array>()),
        Arc::new(groups.iter().map(|group| group.gap).collect::<UInt64Array>()),
        Arc::new(groups.iter().map(|group| group.step_lag).collect::<UInt64Array>()),
    ]
}

/// The columns of a learner's measures.
pub(crate) fn metrics(metrics: &[(&String, &f64)]) -> Vec<ArrayRef> {
    vec![
        Arc::new(StringArray::from_iter_values(metrics.iter().map(|(name, _)| name))),
        Arc::new(Float64Array::from_iter_values(metrics.iter().map(|(_, value)| **value))),
    ]
}

/// The version, if known.
pub(crate) fn known(oldest: Option<OldestVersion>) -> Option<u64> {
    match oldest {
        Some(OldestVersion::Known(version)) => Some(version.0),
        Some(OldestVersion::Unknown) | None => None,
    }
}

pub(crate) fn seq(seq: Option<Seq>) -> Option<u64> {
    seq.map(|seq| seq.0)
}
