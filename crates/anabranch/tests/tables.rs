//! The tables of a run: while it is open, sealed in part or in whole, after it is closed, and from its Parquet folder alone.

use std::time::Duration;

use anabranch::arrow::array::RecordBatch;
use anabranch::arrow::compute::concat_batches;
use anabranch::parquet::SegmentReader;
use anabranch::prelude::*;
use anabranch::sim::{HashChain, Sim};
use anabranch::{Fields, ReadLog, Table, TableRows};

/// Trains on a few prompts.
async fn train(run: &RunLog, rows: u32) {
    let engine = Sim::fixed(3, Duration::ZERO);
    let dataset = Dataset::new("d", (0..rows).map(|row| (vec![row], Fields::new())).collect()).unwrap();
    let groups = run.prompts(dataset).generate(&engine, InFlight::groups(2), Samples(2));
    let groups = groups.score(|response| response.response().len() as u32).log(run);
    let steps = groups.batch(2).train(run.restore(HashChain::new(3)).unwrap()).publish_every(1, &engine);
    steps.try_collect::<Vec<_>>().await.unwrap();
}

/// All rows in one batch.
async fn all(rows: TableRows) -> RecordBatch {
    let schema = rows.schema().unwrap();
    concat_batches(&schema, &rows.try_collect::<Vec<_>>().await.unwrap()).unwrap()
}

#[tokio::test]
async fn rows_are_the_same_live_sealed_finished_and_from_parquet_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let run = RunLog::open(&path, Durability::Process).unwrap();
    train(&run, 12).await;
    let mut live = Vec::new();
    for table in Table::ALL {
        live.push((table, all(run.table(table)).await));
        assert!(live.iter().all(|(_, rows)| rows.num_rows() > 0), "{table}");
    }
    run.seal_now().unwrap();
    for (table, rows) in &live {
        assert_eq!(all(run.table(*table)).await, *rows, "{table}, sealed");
    }
    run.close().unwrap();
    let finished = ReadLog::open(&path).unwrap();
    let segments = SegmentReader::open(path.join("parquet")).unwrap();
    for (table, rows) in &live {
        let count = rows.num_rows();
        assert_eq!(all(finished.table(*table)).await.slice(0, count), *rows, "{table}, finished");
        assert_eq!(all(segments.table(*table)).await.slice(0, count), *rows, "{table}, from Parquet alone");
    }
}

#[tokio::test]
async fn a_stream_outlives_the_closing_of_its_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let run = RunLog::open(&path, Durability::Process).unwrap();
    train(&run, 8).await;
    let rows = run.table(Table::Events);
    run.close().unwrap();
    let rows = all(rows).await;
    assert_eq!(rows, all(ReadLog::open(&path).unwrap().table(Table::Events)).await);
}

#[tokio::test]
async fn a_run_in_memory_has_its_tables_too() {
    let run = RunLog::open("nowhere", Durability::None).unwrap();
    train(&run, 8).await;
    assert_eq!(all(run.table(Table::Samples)).await.num_rows(), 8 * 2);
    assert_eq!(all(run.table(Table::Steps).columns(["loss"])).await.num_rows(), 4);
}
