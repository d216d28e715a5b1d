//! What lets a reader skip what it does not need: sorted rows, statistics of row groups and pages, Bloom filters.

use std::fs::File;
use std::sync::Arc;

use anabranch_core::MemoryJournal;
use anabranch_parquet::{Segments, TABLES};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;

const SEGMENTS: usize = 3;
/// Most rows of a page.
const PAGE: usize = 256;

/// The metadata of all files of each table, in the order of the segments.
fn sealed() -> Vec<(&'static str, Vec<ParquetMetaData>)> {
    use anabranch_core::Journal as _;
    let journal = Arc::new(MemoryJournal::new());
    let clock = HandClock::default();
    let run = Run::builder("scripted").journal(journal.clone()).clock(clock.session_clock()).open().unwrap();
    let mut script = Script::new(run, clock);
    script.publish();
    script.play(120);
    let events = journal.events();
    let folder = tempfile::tempdir().unwrap();
    let mut segments = Segments::open(folder.path()).unwrap();
    for part in events.chunks(events.len().div_ceil(SEGMENTS)) {
        segments.seal(part, |id| Ok(journal.payload(id)?)).unwrap();
    }
    let metadata = |path: &str| {
        let file = File::open(folder.path().join(path)).unwrap();
        let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
        reader.parse_and_finish(&file).unwrap()
    };
    let of = |table: &str| {
        let files = segments.manifests().iter().flat_map(|manifest| &manifest.files);
        files.filter(|file| file.table == table).map(|file| metadata(&file.path)).collect()
    };
    TABLES.iter().map(|table| (table.name, of(table.name))).collect()
}

fn bounds(column: &ColumnChunkMetaData) -> (i64, i64) {
    match column.statistics() {
        Some(Statistics::Int64(statistics)) => (*statistics.min_opt().unwrap(), *statistics.max_opt().unwrap()),
        other => panic!("{}: {other:?}", column.column_path()),
    }
}

#[test]
fn row_groups_follow_each_other_by_seq() {
    for (table, files) in sealed() {
        assert_eq!(files.len(), SEGMENTS);
        let mut last = -1;
        for group in files.iter().flat_map(ParquetMetaData::row_groups) {
            let sorting = group.sorting_columns().unwrap_or_else(|| panic!("{table} does not say that it is sorted"));
            assert_eq!((sorting[0].column_idx, sorting[0].descending), (0, false));
            assert_eq!(group.column(0).column_path().string(), "seq");
            let (min, max) = bounds(group.column(0));
            assert!(last < min && min <= max, "{table}: {min} to {max} after {last}");
            last = max;
        }
        assert!(last > 0);
    }
}

#[test]
fn pages_follow_each_other_by_seq() {
    for (table, files) in sealed() {
        let mut pages = 0;
        for file in &files {
            for group in 0..file.num_row_groups() {
                let index = file.page_index_for_row_group(group);
                let Some(ColumnIndexMetaData::INT64(seq)) = index.column_index(0) else {
                    panic!("{table}: the pages of seq have no bounds")
                };
                let (min, max) = (seq.min_values(), seq.max_values());
                assert!(min.iter().zip(max).all(|(min, max)| min <= max));
                let samples = table == "samples";
                assert!(max.iter().zip(&min[1..]).all(|(max, next)| max < next || samples && max == next), "{table}");
                let rows = file.row_group(group).num_rows();
                assert!(rows <= (PAGE * min.len()) as i64, "{table}: {rows} rows in {} pages", min.len());
                pages += min.len();
            }
        }
        // One page a file would let nobody skip anything within it.
        assert!(table != "events" || pages > SEGMENTS, "{table}: {pages} pages");
    }
}

#[test]
fn groups_can_be_looked_for_by_name() {
    for (table, files) in sealed() {
        for group in files.iter().flat_map(ParquetMetaData::row_groups) {
            let named = group.columns().iter().find(|column| column.column_path().string() == "group_id");
            let Some(column) = named else { continue };
            let bytes = column.bloom_filter_length().unwrap_or_else(|| panic!("{table} has no filter for groups"));
            assert!(bytes < 5_000, "{table}: a filter of {bytes} bytes");
        }
        assert_eq!(
            files[0].row_group(0).columns().iter().any(|column| column.bloom_filter_offset().is_some()),
            matches!(table, "events" | "groups" | "samples"),
            "{table}"
        );
    }
}
