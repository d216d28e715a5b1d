//! Turns Arrow columns back into groups, bit for bit.

use std::path::Path;

use anabranch_core::{
    Fields, Group, GroupId, Prompt, PromptId, Sample, SampleTimes, SpanVersion, Version, VersionSpan,
};
use arrow::array::AsArray;
use arrow::array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow::datatypes::{Float32Type, Float64Type, UInt32Type, UInt64Type};

use crate::SegmentError;
use crate::payloads::status_of;

/// A batch of rows read from a file.
pub(crate) struct Rows<'a> {
    path: &'a Path,
    batch: &'a RecordBatch,
}

impl<'a> Rows<'a> {
    pub(crate) fn of(path: &'a Path, batch: &'a RecordBatch) -> Self {
        Self { path, batch }
    }

    fn column(&self, name: &str) -> Result<&'a ArrayRef, SegmentError> {
        let column = self.batch.column_by_name(name);
        column.ok_or_else(|| SegmentError::damaged(self.path, format!("it has no column `{name}`")))
    }

    fn wrong(&self, name: &str) -> SegmentError {
        SegmentError::damaged(
            self.path,
            format!(
                "column `{name}`: expected the type and the values of the schema, found another type or a missing value"
            ),
        )
    }

    pub(crate) fn u64(&self, name: &str, row: usize) -> Result<Option<u64>, SegmentError> {
        let array = self.column(name)?.as_primitive_opt::<UInt64Type>().ok_or_else(|| self.wrong(name))?;
        Ok(array.is_valid(row).then(|| array.value(row)))
    }

    fn u32(&self, name: &str, row: usize) -> Result<u32, SegmentError> {
        let array = self.column(name)?.as_primitive_opt::<UInt32Type>();
        array.filter(|array| array.is_valid(row)).map(|array| array.value(row)).ok_or_else(|| self.wrong(name))
    }

    fn f64(&self, name: &str, row: usize) -> Result<Option<f64>, SegmentError> {
        let array = self.column(name)?.as_primitive_opt::<Float64Type>().ok_or_else(|| self.wrong(name))?;
        Ok(array.is_valid(row).then(|| array.value(row)))
    }

    pub(crate) fn text(&self, name: &str, row: usize) -> Result<Option<&'a str>, SegmentError> {
        let array = self.column(name)?.as_string_opt::<i32>().ok_or_else(|| self.wrong(name))?;
        Ok(array.is_valid(row).then(|| array.value(row)))
    }

    /// A column of bytes, row by row.
    pub(crate) fn binary(
        &self,
        name: &str,
    ) -> Result<impl Iterator<Item = Result<&'a [u8], SegmentError>>, SegmentError> {
        let array = self.column(name)?.as_binary_opt::<i32>().ok_or_else(|| self.wrong(name))?;
        Ok(array.iter().map(move |bytes| bytes.ok_or_else(|| self.wrong(name))))
    }

    pub(crate) fn bytes(&self, name: &str, row: usize) -> Result<&'a [u8], SegmentError> {
        let array = self.column(name)?.as_binary_opt::<i32>();
        array.filter(|array| array.is_valid(row)).map(|array| array.value(row)).ok_or_else(|| self.wrong(name))
    }

    fn list(&self, name: &str, row: usize) -> Result<Option<ArrayRef>, SegmentError> {
        let array = self.column(name)?.as_list_opt::<i32>().ok_or_else(|| self.wrong(name))?;
        Ok(array.is_valid(row).then(|| array.value(row)))
    }

    fn tokens(&self, name: &str, row: usize) -> Result<Vec<u32>, SegmentError> {
        let items = self.list(name, row)?.ok_or_else(|| self.wrong(name))?;
        let items = items.as_primitive_opt::<UInt32Type>().ok_or_else(|| self.wrong(name))?;
        Ok(items.values().to_vec())
    }

    fn logprobs(&self, name: &str, row: usize) -> Result<Option<Vec<f32>>, SegmentError> {
        let Some(items) = self.list(name, row)? else { return Ok(None) };
        let items = items.as_primitive_opt::<Float32Type>().ok_or_else(|| self.wrong(name))?;
        Ok(Some(items.values().to_vec()))
    }

    pub(crate) fn group_id(&self, row: usize) -> Result<GroupId, SegmentError> {
        let dataset = self.text("dataset", row)?.ok_or_else(|| self.wrong("dataset"))?.into();
        let number = self.u64("prompt_row", row)?.ok_or_else(|| self.wrong("prompt_row"))?;
        let prompt = PromptId { dataset, epoch: self.u32("epoch", row)?, row: number };
        Ok(GroupId { prompt, attempt: self.u32("attempt", row)? })
    }

    /// Reads a row of `groups`, without the samples.
    pub(crate) fn group(&self, row: usize) -> Result<Group, SegmentError> {
        let id = self.group_id(row)?;
        let raw = self.bytes("raw", row)?;
        let (fields, extra): (Fields, Fields) = postcard::from_bytes(raw)
            .map_err(|source| SegmentError::Codec { what: format!("{}: group {id}", self.path.display()), source })?;
        let prompt = Prompt { id: id.prompt.clone(), tokens: self.tokens("prompt", row)?, fields };
        let expected = self.u32("expected", row)?;
        Ok(Group { id, prompt, expected, samples: Vec::new(), extra })
    }

    /// How many samples the group of a row of `groups` has.
    pub(crate) fn sample_count(&self, row: usize) -> Result<u32, SegmentError> {
        self.u32("samples", row)
    }

    /// A row of `samples`.
    pub(crate) fn sample(&self, row: usize) -> Result<Sample, SegmentError> {
        let mask = self.list("loss_mask", row)?.ok_or_else(|| self.wrong("loss_mask"))?;
        let mask = mask.as_boolean_opt().ok_or_else(|| self.wrong("loss_mask"))?;
        let spans = self.list("spans", row)?.ok_or_else(|| self.wrong("spans"))?;
        let spans = spans.as_struct_opt().and_then(read_spans).ok_or_else(|| self.wrong("spans"))?;
        let times = SampleTimes {
            submitted: self.u64("submitted_ns", row)?,
            first_token: self.u64("first_token_ns", row)?,
            ended: self.u64("ended_ns", row)?,
            scored: self.u64("scored_ns", row)?,
        };
        Ok(Sample {
            tokens: self.tokens("tokens", row)?,
            prompt_len: self.u32("prompt_len", row)?,
            loss_mask: mask.values().iter().collect(),
            logprobs: self.logprobs("logprobs", row)?.ok_or_else(|| self.wrong("logprobs"))?,
            truncated_logprobs: self.logprobs("truncated_logprobs", row)?,
            spans,
            reward: self.f64("reward", row)?,
            status: self.text("status", row)?.and_then(status_of).ok_or_else(|| self.wrong("status"))?,
            cause: self.text("cause", row)?.map(str::to_owned),
            times,
        })
    }
}

fn read_spans(spans: &StructArray) -> Option<Vec<VersionSpan>> {
    let u32s = |name| spans.column_by_name(name)?.as_primitive_opt::<UInt32Type>();
    let u64s = |name| spans.column_by_name(name)?.as_primitive_opt::<UInt64Type>();
    let (start, end) = (u32s("start")?, u32s("end")?);
    let (lo, hi) = (u64s("version_lo")?, u64s("version_hi")?);
    let certainty = spans.column_by_name("certainty")?.as_string_opt::<i32>()?;
    let carried = spans.column_by_name("kv_carried")?.as_boolean_opt()?;
    let version = |index| match certainty.value(index) {
        "exact" => Some(SpanVersion::Exact(Version(lo.value(index)))),
        "uncertain" => Some(SpanVersion::Uncertain { lo: Version(lo.value(index)), hi: Version(hi.value(index)) }),
        "unknown" => Some(SpanVersion::Unknown),
        _ => None,
    };
    (0..spans.len())
        .map(|index| {
            Some(VersionSpan {
                start: start.value(index),
                end: end.value(index),
                version: version(index)?,
                kv_carried: carried.value(index),
            })
        })
        .collect()
}
