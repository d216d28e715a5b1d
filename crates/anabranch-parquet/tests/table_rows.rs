//! Rows as a stream of Arrow record batches: the same whether they are sealed or not, and whenever they are sealed.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anabranch_core::{BoxError, Event, Journal, MemoryJournal, Seq};
use anabranch_parquet::arrow::array::{AsArray, RecordBatch};
use anabranch_parquet::arrow::compute::concat_batches;
use anabranch_parquet::arrow::datatypes::UInt64Type;
use anabranch_parquet::{SegmentReader, Segments, Table, TableError, TableRows, Unsealed};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};
use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt};

struct Recorded {
    journal: Arc<MemoryJournal>,
    events: Arc<Vec<Event>>,
}

fn recorded() -> Recorded {
    let journal = Arc::new(MemoryJournal::new());
    let clock = HandClock::default();
    let run = Run::builder("scripted").journal(journal.clone()).clock(clock.session_clock()).open().unwrap();
    let mut script = Script::new(run, clock);
    script.publish();
    script.play(40);
    let events = Arc::new(journal.events());
    Recorded { journal, events }
}

impl Recorded {
    fn seal(&self, segments: &mut Segments, to: usize) {
        let from = segments.next().0 as usize;
        segments.seal(&self.events[from..to], |id| Ok(self.journal.payload(id)?)).unwrap();
    }

    /// A folder in which the first events are sealed, up to each of `cuts`.
    fn sealed(&self, cuts: &[usize]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut segments = Segments::open(folder.path()).unwrap();
        for &cut in cuts {
            self.seal(&mut segments, cut);
        }
        folder
    }

    fn log(&self) -> Unsealed {
        let (events, journal) = (self.events.clone(), self.journal.clone());
        let read = move |first: Seq, most| Ok(events.iter().skip(first.0 as usize).take(most).cloned().collect());
        Unsealed::new(read, move |id| Ok(journal.payload(id)?))
    }

    fn live(&self, table: Table, folder: &Path) -> TableRows {
        TableRows::of_log(table, Some(folder.to_owned()), self.log())
    }
}

/// All rows in one batch.
async fn all(rows: TableRows) -> RecordBatch {
    let schema = rows.schema().unwrap();
    let batches: Vec<RecordBatch> = rows.try_collect().await.unwrap();
    assert!(batches.iter().all(|batch| batch.num_rows() > 0 && batch.schema() == schema));
    concat_batches(&schema, &batches).unwrap()
}

fn seqs(rows: &RecordBatch) -> Vec<u64> {
    rows.column_by_name("seq").unwrap().as_primitive::<UInt64Type>().values().to_vec()
}

#[tokio::test]
async fn a_row_is_the_same_sealed_or_not() {
    let run = recorded();
    let end = run.events.len();
    let sealed = run.sealed(&[end / 3, end / 2, end]);
    for table in Table::ALL {
        let expected = all(SegmentReader::open(sealed.path()).unwrap().table(table)).await;
        assert!(expected.num_rows() > 10, "{table}: {} rows", expected.num_rows());
        for cuts in [&[][..], &[1], &[end / 4], &[end / 4, end / 2], &[end - 1], &[end]] {
            let folder = run.sealed(cuts);
            assert_eq!(all(run.live(table, folder.path())).await, expected, "{table}, sealed up to {cuts:?}");
        }
        let in_memory = TableRows::of_log(table, None, run.log());
        assert_eq!(all(in_memory).await, expected, "{table}, in memory");
    }
}

#[test]
fn rows_need_no_tokio_runtime() {
    let run = recorded();
    let folder = run.sealed(&[run.events.len() / 2]);
    let rows = block_on(all(run.live(Table::Events, folder.path())));
    assert_eq!(rows.num_rows(), run.events.len());
}

#[tokio::test]
async fn columns_come_alone_and_in_the_order_asked_for() {
    let run = recorded();
    let folder = run.sealed(&[run.events.len() / 2]);
    for (table, names) in [
        (Table::Samples, ["spans", "reward", "tokens"]),
        (Table::Events, ["kind", "groups", "seq"]),
        (Table::Steps, ["metrics", "loss", "taken"]),
    ] {
        let whole = all(run.live(table, folder.path())).await;
        let some = all(run.live(table, folder.path()).columns(names)).await;
        assert_eq!(some.schema().fields().iter().map(|field| field.name()).collect::<Vec<_>>(), names);
        for name in names {
            assert_eq!(some.column_by_name(name), whole.column_by_name(name), "{table}.{name}");
        }
    }
}

#[tokio::test]
async fn a_range_of_seqs_gives_the_rows_of_these_events() {
    let run = recorded();
    let end = run.events.len();
    let folder = run.sealed(&[end / 4, end / 2]);
    let (mid, late) = (Seq(end as u64 / 2), Seq(end as u64 * 3 / 4));
    for table in Table::ALL {
        let whole = all(run.live(table, folder.path())).await;
        let seqs = seqs(&whole);
        let check = async |rows: TableRows, within: &dyn Fn(Seq) -> bool, what: &str| {
            let first = seqs.iter().position(|&seq| within(Seq(seq))).unwrap_or(0);
            let count = seqs.iter().filter(|&&seq| within(Seq(seq))).count();
            assert!(count > 0, "{table}: {what} has no rows");
            assert_eq!(all(rows).await, whole.slice(first, count), "{table}: {what}");
        };
        let rows = || run.live(table, folder.path());
        check(rows().seqs(..mid), &|seq| seq < mid, "what is sealed").await;
        check(rows().seqs(mid..), &|seq| seq >= mid, "what is not sealed").await;
        check(rows().seqs(Seq(30)..=late), &|seq| seq >= Seq(30) && seq <= late, "a part of both").await;
        // What its first row ends was begun before it, in a part of the log that is read but not given.
        check(rows().seqs(late..), &|seq| seq >= late, "the end of the log").await;
        let part = rows().columns(["seq"]).seqs(Seq(30)..mid);
        assert!(self::seqs(&all(part).await).iter().all(|&seq| seq >= 30 && Seq(seq) < mid));
        assert_eq!(rows().seqs(late..mid).count().await, 0, "{table}: a range that ends before it begins");
    }
}

/// The log is sealed a little further before each batch, so that a reader meets every state.
#[tokio::test]
async fn sealing_while_one_reads_neither_repeats_nor_omits_rows() {
    let run = recorded();
    let end = run.events.len();
    for table in Table::ALL {
        let expected = all(TableRows::of_log(table, None, run.log())).await;
        for ahead in [0, 7, 40] {
            let folder = tempfile::tempdir().unwrap();
            let segments = Arc::new(Mutex::new(Segments::open(folder.path()).unwrap()));
            let recorded = Recorded { journal: run.journal.clone(), events: run.events.clone() };
            let events = run.events.clone();
            // A short part at a time; sealed to `ahead` events after its first while it is on its way.
            let read = move |first: Seq, most: usize| {
                let part = events.iter().skip(first.0 as usize).take(most.min(23)).cloned().collect();
                let mut segments = segments.lock().unwrap();
                let to = (first.0 as usize + ahead).min(end);
                if to > segments.next().0 as usize {
                    recorded.seal(&mut segments, to);
                }
                Ok(part)
            };
            let journal = run.journal.clone();
            let log = Unsealed::new(read, move |id| Ok(journal.payload(id)?));
            let rows = all(TableRows::of_log(table, Some(folder.path().to_owned()), log)).await;
            assert_eq!(rows, expected, "{table}, sealed {ahead} events ahead");
        }
    }
}

/// A log is sealed to its end, then closed, while its rows are read.
#[tokio::test]
async fn a_log_that_closes_is_read_on_from_its_segments() {
    let run = recorded();
    let (end, folder) = (run.events.len(), run.sealed(&[50]));
    for table in Table::ALL {
        let expected = all(TableRows::of_log(table, None, run.log())).await;
        let folder = folder.path().to_owned();
        let recorded = Recorded { journal: run.journal.clone(), events: run.events.clone() };
        let sealed = folder.clone();
        let close = move |_: Seq, _: usize| {
            let mut segments = Segments::open(&sealed).unwrap();
            if segments.next().0 < end as u64 {
                recorded.seal(&mut segments, end);
            }
            Err("the log is closed".into())
        };
        let log = Unsealed::new(close, |id| Err(format!("{id}: the log is closed").into()));
        let given: Vec<Result<RecordBatch, TableError>> = TableRows::of_log(table, Some(folder), log).collect().await;
        let (last, rows) = given.split_last().unwrap();
        let rows: Vec<RecordBatch> = rows.iter().map(|batch| batch.as_ref().unwrap().clone()).collect();
        assert_eq!(concat_batches(&expected.schema(), &rows).unwrap(), expected, "{table}");
        // This log never says that it ends: what it says comes after all rows.
        assert!(matches!(last, Err(TableError::Log { next, .. }) if next.0 == end as u64), "{table}: {last:?}");
    }
}

#[tokio::test]
async fn unknown_repeated_and_missing_columns_are_refused_by_name() {
    let run = recorded();
    let refused = async |names: &[&str]| {
        let mut rows = TableRows::of_log(Table::Steps, None, run.log()).columns(names.iter().copied());
        let from_schema = rows.schema().unwrap_err().to_string();
        let error = rows.next().await.unwrap().unwrap_err();
        assert!(rows.next().await.is_none());
        assert_eq!(error.to_string(), from_schema);
        from_schema
    };
    let unknown = refused(&["step", "los"]).await;
    assert!(unknown.starts_with("table `steps`, column `los`: expected one of `seq`, `session`"), "{unknown}");
    assert!(unknown.ends_with("`groups`, found `los`"), "{unknown}");
    let repeated = refused(&["step", "loss", "step"]).await;
    assert!(repeated.starts_with("table `steps`, column `step`: expected once, found twice"), "{repeated}");
    let none = refused(&[]).await;
    assert!(none.starts_with("table `steps`: expected at least one column, found none"), "{none}");
}

#[tokio::test]
async fn a_damaged_file_is_named() {
    let run = recorded();
    let folder = run.sealed(&[run.events.len() / 2, run.events.len()]);
    let reader = SegmentReader::open(folder.path()).unwrap();
    let path = folder.path().join(&reader.manifests()[1].file("samples").unwrap().path);
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let whole = fs::read(&path).unwrap();

    let mut damaged = whole.clone();
    let middle = whole.len() / 4;
    damaged[4..middle].fill(0);
    fs::write(&path, &damaged).unwrap();
    let given: Vec<Result<RecordBatch, TableError>> = reader.table(Table::Samples).collect().await;
    let (last, before) = given.split_last().unwrap();
    assert!(!before.is_empty() && before.iter().all(Result::is_ok), "the first segment is whole");
    let error = last.as_ref().unwrap_err().to_string();
    assert!(error.starts_with("table `samples`: ") && error.contains(&name), "{error}");

    // The other tables of the segment are whole.
    assert!(reader.table(Table::Groups).try_collect::<Vec<_>>().await.is_ok());

    // A file of another table in its place has other columns.
    let groups = folder.path().join(&reader.manifests()[1].file("groups").unwrap().path);
    fs::copy(groups, &path).unwrap();
    let error = reader.table(Table::Samples).seqs(Seq(run.events.len() as u64 - 2)..).next().await.unwrap();
    let error = error.unwrap_err().to_string();
    assert!(error.contains(&name), "{error}");

    fs::remove_file(&path).unwrap();
    let error = reader.table(Table::Samples).try_collect::<Vec<_>>().await.unwrap_err().to_string();
    assert!(error.contains("open") && error.contains(&name), "{error}");
}

#[tokio::test]
async fn what_the_log_cannot_give_is_named() {
    let run = recorded();
    let journal = run.journal.clone();
    let broken = Unsealed::new(|_, _| Err("the disk is gone".into()), move |id| Ok(journal.payload(id)?));
    let error = TableRows::of_log(Table::Groups, None, broken).next().await.unwrap().unwrap_err();
    let expected =
        "cannot read the rows of table `groups` from event #0 on, which are only in the log: the disk is gone";
    assert_eq!(error.to_string(), expected);

    let events = run.events.clone();
    let lacking = Unsealed::new(
        move |first, most| Ok(events.iter().skip(first.0 as usize + 1).take(most).cloned().collect()),
        |id| Err(BoxError::from(format!("{id} is lost"))),
    );
    let error = TableRows::of_log(Table::Events, None, lacking).next().await.unwrap().unwrap_err();
    assert!(error.to_string().ends_with("expected event #0, found #1"), "{error}");
}
