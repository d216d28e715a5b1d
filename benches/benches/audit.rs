//! Measures the cost of reading a long run: `audit` and `verify` of the events of 10⁶ groups, from Parquet and from the
//! log; a `what-if` answer over 10⁶ groups; and the export of groups with their payloads, compared with a bare Parquet
//! writer that gets the same arrays and settings.
//!
//! `ANABRANCH_GROUPS` sets the number of groups. The ignored test `speed` of `anabranch-cli` measures peak memory.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anabranch_cli::Source;
use anabranch_core::{Event, Group, Sample, SpanVersion, Spans, Version};
use anabranch_log::ReadLog;
use anabranch_parquet::{Segments, TABLES, TableSchema};
use anabranch_replay::{Auditor, Recompute, Recorder, Verifier};
use anabranch_testing::database::{completed, database};
use anabranch_testing::repeated::{ROWS, template};
use anabranch_testing::synthetic::{Synthetic, payload};
use arrow::array::RecordBatch;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

fn groups() -> u64 {
    std::env::var("ANABRANCH_GROUPS").ok().and_then(|groups| groups.parse().ok()).unwrap_or(1_000_000)
}

fn reading(criterion: &mut Criterion) {
    let groups = groups();
    let folder = tempfile::tempdir().expect("a directory");
    let (run, sealed) = (folder.path().join("run"), folder.path().join("parquet"));
    database(&run, groups, completed);
    let events = Synthetic::new(groups).map(Ok::<_, std::io::Error>);
    let mut segments = Segments::open(&sealed).expect("a folder");
    segments.seal_all(events, |id| Ok(payload(id))).expect("segments");
    drop(segments);
    let mut bench = criterion.benchmark_group("audit");
    bench.throughput(Throughput::Elements(groups)).sample_size(10).measurement_time(Duration::from_secs(30));
    for (name, path) in [("parquet", &sealed), ("log", &run)] {
        bench.bench_function(BenchmarkId::new("audit", name), |bencher| {
            bencher.iter(|| {
                let mut auditor = Auditor::new();
                let source = Source::open(path, false).expect("the run");
                source.read(|event| auditor.push(event)).expect("its events");
                assert_eq!(auditor.finish().groups.leased, groups);
            });
        });
        bench.bench_function(BenchmarkId::new("verify", name), |bencher| {
            bencher.iter(|| {
                let (mut verifier, mut schedule) = (Verifier::new(), Recompute::new());
                let source = Source::open(path, false).expect("the run");
                let read = source.read(|event| {
                    verifier.push(event);
                    schedule.push(event);
                });
                read.expect("its events");
                assert!(verifier.finish().is_clean() && schedule.finish().is_ok());
            });
        });
    }
    bench.finish();
}

fn answers(criterion: &mut Criterion) {
    let (template, settings) = template();
    let copies = groups() / u64::from(ROWS);
    let mut recorder = Recorder::new();
    template.repeat(copies, |event| recorder.push(event));
    let recording = recorder.finish().expect("a log that adds up");
    let mut bench = criterion.benchmark_group("what-if");
    let groups = recording.groups() as u64;
    bench.throughput(Throughput::Elements(groups)).sample_size(10).measurement_time(Duration::from_secs(15));
    let smaller = anabranch_replay::Settings { capacity: Some(8), ..settings.clone() };
    for (name, settings) in [("as recorded", settings), ("another capacity", smaller)] {
        bench.bench_function(name, |bencher| {
            bencher.iter(|| {
                let outcome = recording.outcome(&settings, 1).expect("an answer");
                assert!(outcome.consumed.groups > groups / 2);
            });
        });
    }
    bench.finish();
}

const EXPORTED: u64 = 2_000;
const TOKENS: u32 = 512;

/// The payload of a completed group: four samples of 512 tokens.
fn long(event: &Event) -> Option<Group> {
    let mut group = completed(event)?;
    let row = group.id.prompt.row as u32;
    let mut spans = Spans::new();
    spans.push(TOKENS, SpanVersion::Exact(Version(0)), false);
    for (sample, index) in group.samples.iter_mut().zip(3_u32..) {
        let number = |token: u32| (token + 1).wrapping_mul(index).wrapping_mul(0x9e37_79b1 ^ row);
        *sample = Sample {
            tokens: (0..=TOKENS).map(|token| number(token) >> 15).collect(),
            loss_mask: vec![true; TOKENS as usize],
            logprobs: (0..TOKENS).map(|token| -(number(token) as f32) / 1e9).collect(),
            spans: spans.clone().into_vec(),
            ..sample.clone()
        };
    }
    Some(group)
}

/// What a table of a run has, file by file.
type Arrays = (&'static TableSchema, Vec<Vec<RecordBatch>>);

fn arrays(folder: &Path) -> Vec<Arrays> {
    let files = |table: &TableSchema| {
        let mut paths: Vec<_> = std::fs::read_dir(folder.join(table.name)).expect("a folder").flatten().collect();
        paths.sort_by_key(std::fs::DirEntry::path);
        let read = |entry: std::fs::DirEntry| {
            let file = File::open(entry.path()).expect("a file");
            // As many rows at a time as the export writes.
            let rows = match table.name {
                "groups" => 64,
                "samples" => 256,
                _ => 4096,
            };
            let reader =
                ParquetRecordBatchReaderBuilder::try_new(file).expect("a file of Parquet").with_batch_size(rows);
            reader.build().expect("a reader").map(|batch| batch.expect("rows")).collect()
        };
        paths.into_iter().map(read).collect()
    };
    TABLES.iter().map(|table| (*table, files(table))).collect()
}

fn export(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a directory");
    let run = folder.path().join("run");
    database(&run, EXPORTED, long);
    let log = ReadLog::open(&run).expect("the log");
    let seal = |into: &Path| {
        let mut segments = Segments::open(into).expect("a folder");
        for segment in log.segments(None) {
            let segment = segment.expect("a segment");
            let mut groups = segment.groups.into_iter();
            let payload = |_: &_| groups.next().ok_or_else(|| "one a completion".into());
            segments.seal(&segment.events, payload).expect("a sealed segment");
        }
    };
    let sealed = folder.path().join("sealed");
    seal(&sealed);
    let arrays = arrays(&sealed);
    let timed = |rounds: u64, write: &dyn Fn(&Path)| {
        let round = |_| {
            let into = tempfile::tempdir().expect("a directory");
            let begun = Instant::now();
            write(into.path());
            begun.elapsed()
        };
        (0..rounds).map(round).sum::<Duration>()
    };
    let mut bench = criterion.benchmark_group("export");
    bench.throughput(Throughput::Elements(EXPORTED)).sample_size(10).measurement_time(Duration::from_secs(20));
    bench.bench_function("bare writer", |bencher| {
        bencher.iter_custom(|rounds| timed(rounds, &|into| write(&arrays, into)));
    });
    bench.bench_function("export", |bencher| bencher.iter_custom(|rounds| timed(rounds, &seal)));
    bench.finish();
}

fn write(arrays: &[Arrays], into: &Path) {
    for (table, files) in arrays {
        for (batches, number) in files.iter().zip(0..) {
            let file = File::create(into.join(format!("{}-{number}.parquet", table.name))).expect("a file");
            let mut writer = ArrowWriter::try_new(file, table.arrow(), Some(table.properties())).expect("a writer");
            for batch in batches {
                writer.write(batch).expect("rows");
            }
            writer.close().expect("a whole file");
        }
    }
}

criterion_group!(benches, reading, answers, export);
criterion_main!(benches);
