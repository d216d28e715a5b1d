//! The tables `groups` and `samples`: completed groups, written and read back bit for bit.

use std::sync::Arc;

use anabranch_core::{Event, EventKind, Fields, Group, Sample, SpanVersion, Status, Value, VersionSpan};
use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow::error::ArrowError;

use crate::columns::{self, Columns, known};
use crate::schema::{GROUPS, SAMPLES};

/// The parts of a group that the typed columns of `groups` cannot store bit for bit.
pub(crate) fn raw(group: &Group) -> Result<Vec<u8>, postcard::Error> {
    postcard::to_stdvec(&(&group.prompt.fields, &group.extra))
}

fn json(fields: &Fields) -> String {
    Value::Map(fields.clone()).to_string()
}

/// Rows of `groups`: the `Completed` event, its payload, and the payload's [`raw`].
pub(crate) fn groups(rows: &[(&Event, Group, Vec<u8>)]) -> Result<RecordBatch, ArrowError> {
    let mut columns = Columns::new(&GROUPS, rows);
    columns.u64(|(event, ..)| Some(event.seq.0));
    columns.u32(|(event, ..)| Some(event.session));
    columns.u64(|(event, ..)| Some(event.at));
    columns.wall(|(event, ..)| event.wall_ms);
    columns.group(|(_, group, _)| Some(&group.id));
    columns.u32(|(_, group, _)| Some(group.expected));
    columns.u32(|(_, group, _)| Some(group.samples.len() as u32));
    columns.u64(|(_, group, _)| Some(group.generated()));
    let rewards = |group: &Group| group.samples.iter().filter_map(|sample| sample.reward).collect::<Vec<f64>>();
    columns.f64(|(_, group, _)| group.reward_mean());
    columns.f64(|(_, group, _)| rewards(group).into_iter().reduce(f64::min));
    columns.f64(|(_, group, _)| rewards(group).into_iter().reduce(f64::max));
    columns.u64(|(_, group, _)| known(group.oldest()));
    columns.u64(|(_, group, _)| group.samples.iter().filter_map(newest).max());
    columns.list(|(_, group, _)| Some(&group.prompt.tokens), columns::tokens);
    columns.text(|(_, group, _)| Some(json(&group.prompt.fields)));
    columns.text(|(_, group, _)| Some(json(&group.extra)));
    columns.text(|(event, group, _)| match &event.kind {
        EventKind::Completed { payload, .. } => Some(payload.to_string()),
        _ => Some(group.digest().to_string()),
    });
    columns.bytes(|(.., raw)| raw);
    columns.finish()
}

fn newest(sample: &Sample) -> Option<u64> {
    sample.spans.last()?.version.highest().map(|version| version.0)
}

/// A row of `samples`: the group's `Completed` event, the group, which sample.
pub(crate) type SampleRow<'a> = (u64, &'a Group, u32, &'a Sample);

/// Rows of `samples`.
pub(crate) fn samples(rows: &[SampleRow<'_>]) -> Result<RecordBatch, ArrowError> {
    let mut columns = Columns::new(&SAMPLES, rows);
    columns.u64(|(seq, ..)| Some(*seq));
    columns.group(|(_, group, ..)| Some(&group.id));
    columns.u32(|(_, _, index, _)| Some(*index));
    columns.text(|(.., sample)| Some(status_name(sample.status)));
    columns.text(|(.., sample)| sample.cause.as_ref());
    columns.f64(|(.., sample)| sample.reward);
    columns.u32(|(.., sample)| Some(sample.prompt_len));
    columns.u32(|(.., sample)| Some(sample.generated()));
    columns.list(|(.., sample)| Some(&sample.tokens), columns::tokens);
    columns.list(|(.., sample)| Some(&sample.loss_mask), columns::mask);
    columns.list(|(.., sample)| Some(&sample.logprobs), columns::logprobs);
    columns.list(|(.., sample)| sample.truncated_logprobs.as_deref(), columns::logprobs);
    columns.structs(|(.., sample)| Some(sample.spans.clone()), spans);
    columns.u64(|(.., sample)| known(sample.oldest()));
    columns.u64(|(.., sample)| newest(sample));
    columns.u64(|(.., sample)| sample.times.submitted);
    columns.u64(|(.., sample)| sample.times.first_token);
    columns.u64(|(.., sample)| sample.times.ended);
    columns.u64(|(.., sample)| sample.times.scored);
    columns.finish()
}

fn spans(spans: &[VersionSpan]) -> Vec<ArrayRef> {
    let certainty = |span: &VersionSpan| match span.version {
        SpanVersion::Exact(_) => "exact",
        SpanVersion::Uncertain { .. } => "uncertain",
        SpanVersion::Unknown => "unknown",
    };
    let version = |version: Option<anabranch_core::Version>| version.map(|version| version.0);
    vec![
        Arc::new(UInt32Array::from_iter_values(spans.iter().map(|span| span.start))),
        Arc::new(UInt32Array::from_iter_values(spans.iter().map(|span| span.end))),
        Arc::new(spans.iter().map(|span| version(span.version.lowest())).collect::<UInt64Array>()),
        Arc::new(spans.iter().map(|span| version(span.version.highest())).collect::<UInt64Array>()),
        Arc::new(StringArray::from_iter_values(spans.iter().map(certainty))),
        Arc::new(BooleanArray::from(spans.iter().map(|span| span.kv_carried).collect::<Vec<bool>>())),
    ]
}

const STATUSES: [(Status, &str); 4] = [
    (Status::Completed, "completed"),
    (Status::Truncated, "truncated"),
    (Status::Aborted, "aborted"),
    (Status::Failed, "failed"),
];

fn status_name(status: Status) -> &'static str {
    STATUSES.iter().find(|(known, _)| *known == status).map_or("", |(_, name)| name)
}

/// The status of that name.
pub(crate) fn status_of(name: &str) -> Option<Status> {
    STATUSES.iter().find(|(_, known)| *known == name).map(|(status, _)| *status)
}
