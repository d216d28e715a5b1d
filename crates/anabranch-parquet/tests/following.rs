//! A run that is followed by its segments: every event once, in order, whenever it is sealed.

use std::sync::Arc;
use std::time::Duration;

use anabranch_core::{Event, Journal, MemoryJournal, Seq};
use anabranch_parquet::{Segments, follow};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};
use futures::{FutureExt, StreamExt, TryStreamExt};

const INTERVAL: Duration = Duration::from_secs(2);

fn recorded() -> (Arc<MemoryJournal>, Vec<Event>) {
    let journal = Arc::new(MemoryJournal::new());
    let clock = HandClock::default();
    let run = Run::builder("scripted").journal(journal.clone()).clock(clock.session_clock()).open().unwrap();
    let mut script = Script::new(run, clock);
    script.publish();
    script.play(20);
    drop(script.run.finish());
    let events = journal.events();
    (journal, events)
}

#[tokio::test(start_paused = true)]
async fn what_is_sealed_later_comes_when_it_is_there() {
    let (journal, events) = recorded();
    let run = tempfile::tempdir().unwrap();
    let folder = run.path().join("parquet");
    let mut followed = follow(&folder, Seq(0), INTERVAL);
    assert!(followed.next().now_or_never().is_none(), "the folder is not there yet");
    let mut segments = Segments::open(&folder).unwrap();
    let mut seen = Vec::new();
    for part in events.chunks(events.len().div_ceil(4)) {
        segments.seal(part, |id| Ok(journal.payload(id)?)).unwrap();
        tokio::time::advance(INTERVAL).await;
        while let Some(event) = followed.next().now_or_never().flatten() {
            seen.push(event.unwrap());
        }
        assert_eq!(seen, events[..segments.next().0 as usize]);
    }
    assert!(followed.next().await.is_none(), "the run is closed");

    let later: Vec<Event> = follow(&folder, Seq(30), INTERVAL).try_collect().await.unwrap();
    assert_eq!(later, events[30..]);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_segment_ends_it_by_name() {
    let (journal, events) = recorded();
    let folder = tempfile::tempdir().unwrap();
    let mut segments = Segments::open(folder.path()).unwrap();
    segments.seal(&events, |id| Ok(journal.payload(id)?)).unwrap();
    let path = folder.path().join(&segments.manifests()[0].file("events").unwrap().path);
    std::fs::write(&path, b"PAR1").unwrap();
    let mut followed = follow(folder.path(), Seq(0), INTERVAL);
    let error = followed.next().await.unwrap().unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(followed.next().await.is_none());
}

#[test]
#[should_panic(expected = "interval: expected more than zero")]
fn an_interval_of_zero_is_refused() {
    drop(follow("nowhere", Seq(0), Duration::ZERO));
}
