//! The public schema: the columns of the tables with their units and meanings. A test keeps `docs/schema.md` equal to
//! it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use parquet::file::properties::WriterProperties;

use crate::output::properties;

/// The version of the schema that this library writes. It rises with every change that a reader could notice.
pub const SCHEMA: u32 = 1;

/// The type of a column.
#[derive(Copy, Clone, Debug)]
pub enum Kind {
    /// 32-bit unsigned.
    U32,
    /// 64-bit unsigned.
    U64,
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// Truth value.
    Bool,
    /// UTF-8 text.
    Text,
    /// Bytes.
    Bytes,
    /// Milliseconds since the Unix epoch, UTC.
    Wall,
    /// List of values.
    List(&'static Kind),
    /// List of structs.
    Rows(&'static [Column]),
}

/// A column of a table, or a field of a list of structs.
#[derive(Copy, Clone, Debug)]
pub struct Column {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// Whether the value can be absent.
    pub optional: bool,
    /// The meaning, with the unit.
    pub meaning: &'static str,
}

/// The description of a table: its name, its columns and their meanings.
#[derive(Copy, Clone, Debug)]
pub struct TableSchema {
    /// The name of the table and of its directory.
    pub name: &'static str,
    /// The meaning of a row.
    pub meaning: &'static str,
    /// The columns.
    pub columns: &'static [Column],
}

const fn always(name: &'static str, kind: Kind, meaning: &'static str) -> Column {
    Column { name, kind, optional: false, meaning }
}

const fn maybe(name: &'static str, kind: Kind, meaning: &'static str) -> Column {
    Column { name, kind, optional: true, meaning }
}

use Kind::{Bool, Bytes, F32, F64, List, Rows, Text, U32, U64, Wall};

const SEQ: Column = always("seq", U64, "place of the event in the log, dense from 0; rows are sorted by it");
const SESSION: Column = always("session", U32, "which session (opening of the run) wrote the event, from 0");
const AT: Column = always("at_ns", U64, "when it happened, in nanoseconds since the start of the session");
const WALL: Column = always("wall", Wall, "when it happened, in wall time (UTC, milliseconds)");
const GROUP: Column = always("group_id", Text, "the group's name: `dataset/epoch/row#attempt`");
const DATASET: Column = always("dataset", Text, "dataset of its prompt");
const EPOCH: Column = always("epoch", U32, "epoch of its prompt, from 0");
const ROW: Column = always("prompt_row", U64, "row of its prompt in the dataset, from 0, before shuffling");
const ATTEMPT: Column = always("attempt", U32, "which lease of the prompt, from 0");

const fn optional(mut column: Column) -> Column {
    column.optional = true;
    column
}

static TAKEN: [Column; 4] = [
    GROUP,
    maybe(
        "dequeued_ns",
        U64,
        "when the group left the buffer, in nanoseconds since the session's start; absent without a buffer",
    ),
    maybe("gap", U64, "its version gap when the batch was taken; absent if a version is unknown"),
    maybe("step_lag", U64, "its step lag when the batch was taken; absent if a version is unknown"),
];

static ENABLERS: [Column; 4] = [
    always("cause", Text, "why the event had to wait: `slot`, `room`, `learner_free`, …"),
    always(
        "moment",
        Text,
        "what the event waited for: `event`, `sample_end` or `scored` (of the group leased at `seq`), `dequeued` (of \
         the group admitted at `seq`)",
    ),
    always("seq", U64, "the event waited for"),
    maybe("sample", U32, "for `sample_end`: which sample, from 0"),
];

static METRICS: [Column; 2] =
    [always("name", Text, "name of the measure"), always("value", F64, "its value, in the learner's unit")];

static SPANS: [Column; 6] = [
    always("start", U32, "first generated token of the span, counted from 0 without prompt and environment tokens"),
    always("end", U32, "one past its last generated token"),
    maybe("version_lo", U64, "oldest version that can have produced the span; counts for staleness"),
    maybe(
        "version_hi",
        U64,
        "newest version that can have produced the span; equals `version_lo` if the version is exact",
    ),
    always("certainty", Text, "`exact`, `uncertain` (between the two) or `unknown` (both absent)"),
    always("kv_carried", Bool, "whether older weights computed the KV cache of the span"),
];

/// All events of a run, one row per event. The other tables can be computed from this table and the payloads.
pub static EVENTS: TableSchema = TableSchema {
    name: "events",
    meaning: "One row per event of the log. `raw` alone is enough to rebuild the log; the typed columns are for \
              queries. A column is absent (NULL) for kinds of events that do not have it.",
    columns: &[
        SEQ,
        SESSION,
        AT,
        WALL,
        always(
            "kind",
            Text,
            "what happened: `leased`, `completed`, `admitted`, `excluded`, `batch_taken`, `stepped`, `published`, …",
        ),
        always("delay_ns", U64, "nanoseconds between the last of its enablers and the event"),
        always("enablers", Rows(&ENABLERS), "the earlier events that made it possible"),
        optional(GROUP),
        optional(DATASET),
        optional(EPOCH),
        optional(ROW),
        optional(ATTEMPT),
        maybe("position", U64, "`leased`, fresh prompts: position in the dataset's order over all epochs"),
        maybe("reissue", U32, "`reissued`: which re-issue, from 1"),
        maybe("generated", U64, "`completed`: generated tokens, over all samples"),
        maybe("payload", Text, "`completed`: digest (BLAKE3, hexadecimal) of the stored payload"),
        maybe(
            "reason",
            Text,
            "`excluded`: `aborted`, `filtered`, `malformed`, `future_version`, `unknown_version` or `stale`",
        ),
        maybe("filter", Text, "`excluded`, filtered: the filter's name"),
        maybe("followup", Text, "`excluded`: what happens to the prompt: `drop`, `retry` or `exhausted`"),
        maybe("retry_as", Text, "`excluded`, retried: the group of the next lease of the prompt"),
        maybe("gap", U64, "`excluded`, stale: its version gap"),
        maybe(
            "dequeued_ns",
            U64,
            "`excluded`: when the group left the buffer, in nanoseconds since the session's start",
        ),
        maybe("step", U64, "training step of a batch, a step, a checkpoint, or the published weights"),
        maybe(
            "version",
            U64,
            "published version: the one installed when a batch was taken, or the one being published or installed",
        ),
        maybe("updates", U64, "`stepped`, `publishing`, `published`: optimizer updates so far"),
        maybe("batch", Text, "`batch_taken`: digest of the ordered ids and payload digests"),
        maybe("groups", Rows(&TAKEN), "`batch_taken`: its groups, in dequeue order"),
        maybe("loss", F64, "`stepped`: the loss"),
        maybe("metrics", Rows(&METRICS), "`stepped`: the learner's other metrics"),
        maybe("weights", Text, "digest of the weights after a step, or of the published weights"),
        maybe("equal", Bool, "`restepped`: whether the digest equals the digest of the original step"),
        maybe(
            "mode",
            Text,
            "`publishing`: what happened to the samples in flight: `retract`, `in_place`, `drain` or `abort`",
        ),
        maybe(
            "pause_began_ns",
            U64,
            "`published`: when the engines began to pause, in nanoseconds since the session's start",
        ),
        maybe("paused_ns", U64, "`published`: when all engines had paused, likewise"),
        maybe("taken", U64, "`checkpointed`: the `batch_taken` event of the last step in the checkpoint"),
        maybe("name", Text, "`checkpointed`: its directory; `configured`: the operator"),
        maybe("settings", Text, "`run_opened`, `configured`: the settings, as JSON"),
        maybe("library", Text, "`run_opened`, `run_resumed`: version of the library"),
        maybe("format", U32, "`run_opened`: version of the event format"),
        maybe("lost", U64, "`run_resumed`: number of acknowledged events that a power loss took"),
        maybe("left_open", List(&Text), "`run_closed`: groups left in the buffer or in a partial batch"),
        always("raw", Bytes, "the whole event, bit for bit (postcard encoding of the event format)"),
    ],
};

/// Completed groups, one row each. The outcome of a group is in [`EVENTS`].
pub static GROUPS: TableSchema = TableSchema {
    name: "groups",
    meaning: "One row per completed group. The outcome of the group is in `events`: `excluded`, or `batch_taken` with \
              the group in its list.",
    columns: &[
        SEQ,
        SESSION,
        AT,
        WALL,
        GROUP,
        DATASET,
        EPOCH,
        ROW,
        ATTEMPT,
        always("expected", U32, "samples that the pipeline asked for"),
        always("samples", U32, "samples that the group has"),
        always("generated", U64, "generated tokens, over all samples"),
        maybe("reward_mean", F64, "mean reward of the samples that have one"),
        maybe("reward_min", F64, "smallest reward"),
        maybe("reward_max", F64, "largest reward"),
        maybe(
            "oldest_version",
            U64,
            "oldest version in any span of any sample; absent if a version is unknown or nothing was generated",
        ),
        maybe("newest_version", U64, "newest version in any last span"),
        always("prompt", List(&U32), "token ids of the prompt"),
        always("fields", Text, "the other fields of the prompt's row in the dataset, as JSON"),
        always("extra", Text, "values that the user attached, as JSON"),
        always("payload", Text, "digest (BLAKE3, hexadecimal) of the stored payload"),
        always("raw", Bytes, "prompt fields and extra, bit for bit (postcard)"),
    ],
};

/// Samples of completed groups.
pub static SAMPLES: TableSchema = TableSchema {
    name: "samples",
    meaning: "One row per sample of a completed group.",
    columns: &[
        always("seq", U64, "the group's `completed` event; rows are sorted by it, then by `sample`"),
        GROUP,
        DATASET,
        EPOCH,
        ROW,
        ATTEMPT,
        always("sample", U32, "which sample of the group, from 0"),
        always("status", Text, "how the sample ended: `completed`, `truncated`, `aborted` or `failed`"),
        maybe("cause", Text, "why the sample was aborted or failed, or has no reward"),
        maybe("reward", F64, "its reward"),
        always("prompt_len", U32, "how many of `tokens` are the prompt's"),
        always("generated", U32, "tokens that the policy generated"),
        always("tokens", List(&U32), "token ids: prompt, then generated and environment tokens"),
        always("loss_mask", List(&Bool), "for each token after the prompt, whether the policy generated it"),
        always(
            "logprobs",
            List(&F32),
            "log-prob (nats) of each generated token at the sampling temperature, before top-k and top-p",
        ),
        maybe(
            "truncated_logprobs",
            List(&F32),
            "log-prob (nats) of each generated token under the truncated distribution, if top-k or top-p was on",
        ),
        always("spans", Rows(&SPANS), "which weights produced which generated tokens"),
        maybe(
            "oldest_version",
            U64,
            "oldest version in any span; absent if a version is unknown or nothing was generated",
        ),
        maybe("newest_version", U64, "newest version in the last span"),
        maybe(
            "submitted_ns",
            U64,
            "when the sample was submitted to the engine, in nanoseconds since the session's start",
        ),
        maybe("first_token_ns", U64, "when its first generated token arrived, likewise"),
        maybe("ended_ns", U64, "when the sample ended, likewise"),
        maybe("scored_ns", U64, "when its reward was known, likewise"),
    ],
};

/// Installations of weights on the engines.
pub static PUBLICATIONS: TableSchema = TableSchema {
    name: "publications",
    meaning: "One row per installation of weights on the engines. The time when generation resumed is in `events` \
              (`generation_resumed` of the same version and session).",
    columns: &[
        SEQ,
        SESSION,
        AT,
        WALL,
        always("kind", Text, "`published` (a new version) or `reinstalled` (the last one again, after a restart)"),
        always("version", U64, "the version"),
        always("step", U64, "training step of the weights"),
        maybe("updates", U64, "optimizer updates in the weights"),
        always("weights", Text, "digest of the weights"),
        maybe("mode", Text, "what happened to the samples in flight: `retract`, `in_place`, `drain` or `abort`"),
        maybe("publishing", U64, "its `publishing` event"),
        maybe("pause_began_ns", U64, "when the engines began to pause, in nanoseconds since the session's start"),
        maybe("paused_ns", U64, "when all engines had paused, likewise; `at_ns` is when the weights were installed"),
    ],
};

/// Training steps with their batches.
pub static STEPS: TableSchema = TableSchema {
    name: "steps",
    meaning: "One row per training step (`stepped`), with its batch. A step trained again from the log is in `events` \
              (`restepped`), and so is a batch whose step was never trained.",
    columns: &[
        SEQ,
        SESSION,
        AT,
        WALL,
        always("step", U64, "the step, from 1"),
        always("updates", U64, "optimizer updates so far"),
        always("loss", F64, "the loss"),
        always("metrics", Rows(&METRICS), "the learner's other metrics"),
        always("weights", Text, "digest of the weights after the step"),
        maybe("taken", U64, "its `batch_taken` event"),
        maybe("taken_session", U32, "the session of that event"),
        maybe("taken_ns", U64, "when the batch was taken, in nanoseconds since the start of that session"),
        maybe("version", U64, "version installed when the batch was taken"),
        maybe("batch", Text, "digest of the batch"),
        maybe("groups", Rows(&TAKEN), "its groups, in dequeue order"),
    ],
};

/// All tables, in the order in which a segment writes them.
pub static TABLES: [&TableSchema; 5] = [&EVENTS, &GROUPS, &SAMPLES, &PUBLICATIONS, &STEPS];

impl Kind {
    /// The Arrow type.
    pub fn data_type(&self) -> DataType {
        match self {
            U32 => DataType::UInt32,
            U64 => DataType::UInt64,
            F32 => DataType::Float32,
            F64 => DataType::Float64,
            Bool => DataType::Boolean,
            Text => DataType::Utf8,
            Bytes => DataType::Binary,
            Wall => DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            List(_) | Rows(_) => DataType::List(Arc::new(self.item())),
        }
    }

    /// The field of the items of a list; for other types, an item of that type.
    pub(crate) fn item(&self) -> Field {
        let item = match self {
            List(item) => item.data_type(),
            Rows(columns) => DataType::Struct(fields(columns)),
            plain => plain.data_type(),
        };
        Field::new("element", item, false)
    }

    /// The name of the type in the documentation.
    pub fn name(&self) -> String {
        match self {
            U32 => "uint32".to_owned(),
            U64 => "uint64".to_owned(),
            F32 => "float32".to_owned(),
            F64 => "float64".to_owned(),
            Bool => "bool".to_owned(),
            Text => "text".to_owned(),
            Bytes => "bytes".to_owned(),
            Wall => "timestamp(ms, UTC)".to_owned(),
            List(item) => format!("list<{}>", item.name()),
            Rows(columns) => {
                let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
                format!("list<struct<{}>>", names.join(", "))
            }
        }
    }
}

pub(crate) fn fields(columns: &[Column]) -> Fields {
    columns.iter().map(|column| Field::new(column.name, column.kind.data_type(), column.optional)).collect()
}

impl TableSchema {
    /// The Arrow schema.
    pub fn arrow(&self) -> SchemaRef {
        Arc::new(Schema::new(fields(self.columns)))
    }

    /// The settings of the files: compression, pages, statistics and filters. Public for measurements that compare with
    /// a bare writer.
    #[doc(hidden)]
    pub fn properties(&self) -> WriterProperties {
        properties(self)
    }
}
