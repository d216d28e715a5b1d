//! The typed columns say what the events say.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anabranch_core::{Event, EventKind, Fields, Journal, MemoryJournal, Reason, Then};
use anabranch_parquet::{Segments, TABLES};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};
use arrow::array::AsArray;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{Float32Type, Float64Type, TimestampMillisecondType, UInt32Type, UInt64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::{FileReader, SerializedFileReader};

fn sealed(folder: &Path, turns: usize, cut: usize) -> (Arc<MemoryJournal>, Vec<Event>) {
    let journal = Arc::new(MemoryJournal::new());
    let clock = HandClock::default();
    let settings = Fields::from([("seed".to_owned(), 7_u32.into())]);
    let run = Run::builder("scripted")
        .journal(journal.clone())
        .clock(clock.session_clock())
        .settings(settings)
        .open()
        .unwrap();
    let mut script = Script::new(run, clock);
    script.publish();
    script.play(turns);
    drop(script.run.finish());
    let events = journal.events();
    let mut segments = Segments::open(folder).unwrap();
    for part in events.chunks(cut) {
        segments.seal(part, |id| Ok(journal.payload(id)?)).unwrap();
    }
    (journal, events)
}

/// All rows of a table, one batch a file, in the order of the files' names.
fn table(folder: &Path, name: &str) -> Vec<RecordBatch> {
    let mut paths: Vec<_> = std::fs::read_dir(folder.join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path| {
        ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap())
            .unwrap()
            .build()
            .unwrap()
            .map(Result::unwrap)
    };
    paths.into_iter().flat_map(read).collect()
}

fn column<T>(batches: &[RecordBatch], name: &str, get: impl Fn(&ArrayRef, usize) -> T) -> Vec<Option<T>> {
    let mut values = Vec::new();
    for batch in batches {
        let array = batch.column_by_name(name).unwrap();
        values.extend((0..array.len()).map(|row| array.is_valid(row).then(|| get(array, row))));
    }
    values
}

fn u64s(batches: &[RecordBatch], name: &str) -> Vec<Option<u64>> {
    column(batches, name, |array, row| array.as_primitive::<UInt64Type>().value(row))
}

fn texts(batches: &[RecordBatch], name: &str) -> Vec<Option<String>> {
    column(batches, name, |array, row| array.as_string::<i32>().value(row).to_owned())
}

fn wanted<T>(events: &[Event], get: impl Fn(&EventKind) -> Option<T>) -> Vec<Option<T>> {
    events.iter().map(|event| get(&event.kind)).collect()
}

#[test]
fn events_are_typed_columns() {
    let folder = tempfile::tempdir().unwrap();
    let (_, events) = sealed(folder.path(), 20, 70);
    let rows = table(folder.path(), "events");
    let some = |get: fn(&Event) -> u64| events.iter().map(|event| Some(get(event))).collect::<Vec<_>>();
    assert_eq!(u64s(&rows, "seq"), some(|event| event.seq.0));
    assert_eq!(u64s(&rows, "at_ns"), some(|event| event.at));
    assert_eq!(u64s(&rows, "delay_ns"), some(|event| event.delay));
    let wall = column(&rows, "wall", |array, row| array.as_primitive::<TimestampMillisecondType>().value(row) as u64);
    assert_eq!(wall, some(|event| event.wall_ms));
    assert_eq!(texts(&rows, "kind"), wanted(&events, |kind| Some(kind.name().to_owned())));
    assert_eq!(texts(&rows, "group_id"), wanted(&events, |kind| kind.group().map(ToString::to_string)));
    assert_eq!(u64s(&rows, "prompt_row"), wanted(&events, |kind| kind.group().map(|id| id.prompt.row)));
    let attempts = column(&rows, "attempt", |array, row| array.as_primitive::<UInt32Type>().value(row));
    assert_eq!(attempts, wanted(&events, |kind| kind.group().map(|id| id.attempt)));
    let reason = |kind: &EventKind| match kind {
        EventKind::Excluded { reason, .. } => Some(reason.name().to_owned()),
        _ => None,
    };
    assert_eq!(texts(&rows, "reason"), wanted(&events, reason));
    let filter = |kind: &EventKind| match kind {
        EventKind::Excluded { reason: Reason::Filtered { name }, .. } => Some(name.clone()),
        _ => None,
    };
    assert_eq!(texts(&rows, "filter"), wanted(&events, filter));
    let retry = |kind: &EventKind| match kind {
        EventKind::Excluded { then: Then::Retry(next), .. } => Some(next.to_string()),
        _ => None,
    };
    assert_eq!(texts(&rows, "retry_as"), wanted(&events, retry));
    let gap = |kind: &EventKind| match kind {
        EventKind::Excluded { reason: Reason::Stale { gap }, .. } => Some(*gap),
        _ => None,
    };
    assert_eq!(u64s(&rows, "gap"), wanted(&events, gap));
    let version = |kind: &EventKind| match kind {
        EventKind::BatchTaken { version, .. } => version.map(|version| version.0),
        EventKind::Publishing { version, .. }
        | EventKind::Published { version, .. }
        | EventKind::GenerationResumed { version } => Some(version.0),
        _ => None,
    };
    assert_eq!(u64s(&rows, "version"), wanted(&events, version));
    let loss = column(&rows, "loss", |array, row| array.as_primitive::<Float64Type>().value(row));
    assert_eq!(
        loss,
        wanted(&events, |kind| if let EventKind::Stepped { loss, .. } = kind { Some(*loss) } else { None })
    );
    assert_eq!(texts(&rows, "settings")[0].as_deref(), Some(r#"{"seed":7}"#));
    let names = texts(&rows, "name");
    assert!(names.contains(&Some("prompts".to_owned())), "{names:?}");
    let groups = column(&rows, "groups", |array, row| {
        let items = array.as_list::<i32>().value(row);
        let items = items.as_struct();
        let ids = items.column_by_name("group_id").unwrap().as_string::<i32>().iter().map(|id| id.unwrap().to_owned());
        let gaps = items.column_by_name("gap").unwrap().as_primitive::<UInt64Type>().iter();
        ids.zip(gaps).collect::<Vec<_>>()
    });
    let taken = |kind: &EventKind| match kind {
        EventKind::BatchTaken { groups, .. } => {
            Some(groups.iter().map(|group| (group.id.to_string(), group.gap)).collect::<Vec<_>>())
        }
        _ => None,
    };
    assert_eq!(groups, wanted(&events, taken));
}

#[test]
fn samples_are_list_columns() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, events) = sealed(folder.path(), 20, 111);
    let rows = table(folder.path(), "samples");
    let groups: Vec<_> = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Completed { .. }))
        .map(|event| journal.payload(event.kind.group().unwrap()).unwrap())
        .collect();
    let samples: Vec<_> = groups.iter().flat_map(|group| &group.samples).collect();
    let tokens = column(&rows, "tokens", |array, row| {
        array.as_list::<i32>().value(row).as_primitive::<UInt32Type>().values().to_vec()
    });
    assert_eq!(tokens, samples.iter().map(|sample| Some(sample.tokens.clone())).collect::<Vec<_>>());
    let logprobs = column(&rows, "logprobs", |array, row| {
        array.as_list::<i32>().value(row).as_primitive::<Float32Type>().values().to_vec()
    });
    assert_eq!(logprobs, samples.iter().map(|sample| Some(sample.logprobs.clone())).collect::<Vec<_>>());
    let spans = column(&rows, "spans", |array, row| {
        let items = array.as_list::<i32>().value(row);
        let items = items.as_struct();
        let ends = items.column_by_name("end").unwrap().as_primitive::<UInt32Type>().values().to_vec();
        let versions = items.column_by_name("version_lo").unwrap().as_primitive::<UInt64Type>().values().to_vec();
        ends.into_iter().zip(versions).collect::<Vec<_>>()
    });
    let wanted = |sample: &anabranch_core::Sample| {
        sample.spans.iter().map(|span| (span.end, span.version.lowest().unwrap().0)).collect::<Vec<_>>()
    };
    assert_eq!(spans, samples.iter().map(|sample| Some(wanted(sample))).collect::<Vec<_>>());
    assert!(samples.iter().any(|sample| sample.spans.len() > 1));
    let rewards = column(&rows, "reward", |array, row| array.as_primitive::<Float64Type>().value(row));
    assert_eq!(rewards, samples.iter().map(|sample| sample.reward).collect::<Vec<_>>());
    let generated = u64s(&table(folder.path(), "groups"), "generated");
    assert_eq!(generated, groups.iter().map(|group| Some(group.generated())).collect::<Vec<_>>());
}

/// However the log is cut, a step's row names its batch and a publication's row its beginning.
#[test]
fn steps_and_publications_find_what_came_before_them_in_earlier_segments() {
    let whole = tempfile::tempdir().unwrap();
    let (_, events) = sealed(whole.path(), 8, 100_000);
    let begun: Vec<_> = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Publishing { .. }))
        .map(|event| Some(event.seq.0))
        .collect();
    let taken: Vec<_> = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::BatchTaken { .. }))
        .map(|event| Some(event.seq.0))
        .collect();
    assert!(taken.len() > 1);
    for cut in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        sealed(folder.path(), 8, cut);
        let (publications, steps) = (table(folder.path(), "publications"), table(folder.path(), "steps"));
        assert_eq!(u64s(&publications, "publishing"), begun, "cut into {cut}");
        assert_eq!(u64s(&steps, "taken"), taken, "cut into {cut}");
        let groups = column(&steps, "groups", |array, row| array.as_list::<i32>().value(row).len());
        assert!(groups.iter().all(|groups| *groups == Some(anabranch_testing::scripted::BATCH)));
        assert!(texts(&publications, "mode").iter().all(|mode| mode.as_deref() == Some("retract")));
    }
}

#[test]
fn files_are_sorted_compressed_and_have_statistics() {
    let folder = tempfile::tempdir().unwrap();
    sealed(folder.path(), 20, 100_000);
    for name in TABLES.map(|table| table.name) {
        let path = std::fs::read_dir(folder.path().join(name)).unwrap().next().unwrap().unwrap().path();
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let row_group = reader.metadata().row_group(0);
        assert_eq!(row_group.sorting_columns().unwrap()[0].column_idx, 0, "{name}");
        let seq = row_group.column(0);
        assert_eq!(seq.column_path().string(), "seq");
        assert!(matches!(seq.compression(), parquet::basic::Compression::ZSTD(_)));
        let statistics = seq.statistics().unwrap();
        assert!(statistics.min_bytes_opt().is_some() && statistics.max_bytes_opt().is_some(), "{name}");
    }
}
