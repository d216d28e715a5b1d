//! Follows a live run through its sealed segments.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch_core::{Event, EventKind, Seq};
use async_stream::try_stream;
use futures::Stream;
use futures::stream::BoxStream;

use crate::{SegmentError, SegmentReader};

/// Stream of the events of a run as they are sealed: see [`follow`].
#[must_use = "streams do nothing unless polled"]
pub struct Follow(BoxStream<'static, Result<Event, SegmentError>>);

/// Returns the sealed events of a run from `first` on, in order, including events that are sealed later. The stream
/// checks the Parquet folder `folder` every `interval`; the folder need not exist yet. The log itself is not read, so
/// that you can follow a live run. The stream ends after the event that closes the run, if no later event is sealed. If
/// a run dies without being closed, the stream waits until it is resumed.
///
/// # Back-pressure
/// A segment is opened when the stream is polled for its events. About a thousand events are decoded at a time, in the
/// task that polls.
///
/// # Cancel safety
/// Dropping a pending `next()` loses nothing.
///
/// # Errors
/// Yields a [`SegmentError`] that names the file. The stream then ends.
///
/// # Panics
/// Panics if `interval` is zero, or if it is polled outside a tokio runtime with a timer.
///
/// ```no_run
/// use std::time::Duration;
///
/// use anabranch_core::Seq;
/// use futures::TryStreamExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), anabranch_parquet::SegmentError> {
/// let mut events = anabranch_parquet::follow("runs/sort4/parquet", Seq(0), Duration::from_secs(2));
/// while let Some(event) = events.try_next().await? {
///     println!("{} {}", event.seq, event.kind.name());
/// }
/// # Ok(())
/// # }
/// ```
pub fn follow(folder: impl Into<PathBuf>, first: Seq, interval: Duration) -> Follow {
    assert!(
        !interval.is_zero(),
        "interval: expected more than zero, found zero; the folder would be read without a \
                                  pause"
    );
    let mut reader = SegmentReader::of(folder.into(), Vec::new());
    Follow(Box::pin(try_stream! {
        let (mut next, mut closed) = (first, false);
        loop {
            reader.refresh()?;
            let unread = reader.manifests().partition_point(|manifest| manifest.last < next);
            for segment in unread..reader.manifests().len() {
                for events in reader.segment_events(segment)? {
                    for event in events? {
                        if event.seq >= next {
                            next = Seq(event.seq.0 + 1);
                            closed = matches!(event.kind, EventKind::RunClosed { .. });
                            yield event;
                        }
                    }
                }
            }
            if closed {
                break;
            }
            tokio::time::sleep(interval).await;
        }
    }))
}

impl Stream for Follow {
    type Item = Result<Event, SegmentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").finish_non_exhaustive()
    }
}
