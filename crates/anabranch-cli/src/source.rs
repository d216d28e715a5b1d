//! Reads a run from its log or from its sealed Parquet segments.

use std::fmt;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SendError, Sender, SyncSender, channel, sync_channel};
use std::thread;

use anabranch_core::{Event, Group, GroupId, Seq};
use anabranch_log::{OpenError, ReadLog};
use anabranch_parquet::{SealedPayloads, SegmentReader};
use anyhow::{Context, bail};
use serde::Serialize;

use crate::utc::utc;

/// The largest number of decoder threads.
const DECODERS: usize = 3;
/// How many events of a log a decoder takes at a time.
const PART: usize = 1 << 13;
/// How many events a decoder hands over at a time.
const BATCH: usize = 1024;
/// How many batches each decoder may decode ahead.
const AHEAD: usize = 4;

/// Some events, or `None` at the end of a part.
type Decoded = anyhow::Result<Option<Vec<Event>>>;

/// The channels of a decoder thread. The thread gets events back after they were read, because dropping them is work too.
struct Decoder {
    send: SyncSender<Decoded>,
    read: Receiver<Vec<Event>>,
}

impl Decoder {
    fn send(&self, decoded: Decoded) -> Result<(), SendError<Decoded>> {
        self.read.try_iter().for_each(drop);
        self.send.send(decoded)
    }
}

/// An opened run.
#[derive(Debug)]
pub enum Source {
    /// The log, which no other process is writing.
    Log(Box<ReadLog>),
    /// The sealed segments.
    Segments {
        /// Reads the segments.
        reader: SegmentReader,
        /// Whether a process is writing the log.
        live: bool,
    },
}

/// The source of an answer.
#[derive(Debug, Serialize)]
pub struct Origin {
    /// `log` or `parquet`.
    from: &'static str,
    /// The directory.
    path: PathBuf,
    /// Whether a process is writing the run. The answer then ends at the last sealed event.
    live: bool,
    /// The last event read.
    through: Option<Seq>,
    /// The wall time of that event, in milliseconds since the Unix epoch.
    through_wall_ms: Option<u64>,
    /// How many acknowledged events a power loss took since the last session.
    lost: u64,
}

/// The folder of a run's segments.
pub(crate) fn segments_of(run: &Path) -> PathBuf {
    run.join("parquet")
}

fn has_segments(folder: &Path) -> bool {
    folder.join("manifest").is_dir()
}

impl Source {
    /// Opens the run at `path`: its log if there is one that no process is writing, otherwise its segments. With
    /// `accept_missing_head` the log is read even if HEAD, which records how far the log must reach, is missing or damaged.
    ///
    /// # Errors
    /// Returns an error if `path` has neither a log nor segments, or if they are damaged; the error names the damaged file.
    pub fn open(path: &Path, accept_missing_head: bool) -> anyhow::Result<Self> {
        let opened = if accept_missing_head { ReadLog::open_without_head(path) } else { ReadLog::open(path) };
        let (folder, refused, live) = match opened {
            Ok(log) => {
                let payloads = SealedPayloads::of(segments_of(path));
                return Ok(Self::Log(Box::new(log.reading(move |id| Ok(payloads.read(id)?)))));
            }
            Err(error @ OpenError::Live { .. }) => (segments_of(path), error, true),
            Err(error @ OpenError::NoRun { .. }) if has_segments(path) => (path.to_owned(), error, false),
            Err(error @ OpenError::NoRun { .. }) => (segments_of(path), error, false),
            Err(error) => return Err(error.into()),
        };
        if has_segments(&folder) {
            let reader = SegmentReader::open(&folder)?;
            return Ok(Self::Segments { reader, live });
        }
        if live {
            return Err(anyhow::Error::new(refused).context("nothing is sealed yet, so there is nothing to read"));
        }
        let found = if path.exists() { "something else" } else { "nothing: the path does not exist" };
        bail!(
            "{}: expected the directory of a run (with HEAD and log/ in it) or a Parquet folder (with manifest/ in it), \
             found {found}",
            path.display()
        )
    }

    /// All events, in order.
    pub(crate) fn events(&self) -> Box<dyn Iterator<Item = anyhow::Result<Event>> + '_> {
        match self {
            Self::Log(log) => Box::new(log.events().map(|event| Ok(event?))),
            Self::Segments { reader, .. } => Box::new(reader.events().map(|event| Ok(event?))),
        }
    }

    /// The events from `first` on, in order.
    pub(crate) fn events_from(&self, first: Seq) -> Box<dyn Iterator<Item = anyhow::Result<Event>> + '_> {
        match self {
            Self::Log(log) => Box::new(log.events_from(first).map(|event| Ok(event?))),
            Self::Segments { reader, .. } => Box::new(reader.events_from(first).map(|event| Ok(event?))),
        }
    }

    /// Reads the payload of a completed group.
    pub(crate) fn payload(&self, id: &GroupId) -> anyhow::Result<Group> {
        match self {
            Self::Log(log) => Ok(log.payload(id)?),
            Self::Segments { reader, .. } => reader
                .payload(id)?
                .with_context(|| format!("the payload of {id} is not in {}", reader.folder().display())),
        }
    }

    /// Describes the source of an answer whose `last` event was read.
    pub(crate) fn origin(&self, last: Option<(Seq, u64)>) -> Origin {
        let (from, path, live, lost) = match self {
            Self::Log(log) => ("log", log.path(), false, log.lost()),
            Self::Segments { reader, live } => ("parquet", reader.folder(), *live, 0),
        };
        let (through, through_wall_ms) = last.unzip();
        Origin { from, path: path.to_owned(), live, through, through_wall_ms, lost }
    }

    /// Passes all events to `push`, in order, and returns the source. Decoding is most of the work: several threads decode
    /// ahead, each taking parts of the run in turn.
    ///
    /// # Errors
    /// Returns an error that names the first event that is missing or damaged.
    pub fn read(&self, mut push: impl FnMut(&Event)) -> anyhow::Result<Origin> {
        let decoders = thread::available_parallelism().map_or(1, NonZero::get).min(DECODERS);
        let last = thread::scope(|scope| {
            let decoder = |first: usize| {
                let ((send, receive), (give_back, read)) = (sync_channel(AHEAD), channel());
                let decoder = Decoder { send, read };
                // Sending fails after the reader has stopped.
                scope.spawn(move || {
                    (first..).step_by(decoders).all(|part| self.decode(part, &decoder).unwrap_or(false))
                });
                (receive, give_back)
            };
            let decoded: Vec<(Receiver<Decoded>, Sender<Vec<Event>>)> = (0..decoders).map(decoder).collect();
            let mut last = None;
            for part in 0.. {
                loop {
                    // A decoder hangs up when it finds no more events.
                    let (receive, give_back) = &decoded[part % decoders];
                    let Ok(batch) = receive.recv() else { return Ok(last) };
                    let Some(batch) = batch? else { break };
                    batch.iter().for_each(&mut push);
                    last = batch.last().map(|event| (event.seq, event.wall_ms)).or(last);
                    // This fails if the decoder has ended, which is fine.
                    drop(give_back.send(batch));
                }
            }
            anyhow::Ok(last)
        })?;
        Ok(self.origin(last))
    }

    /// Decodes one part of the run and sends its events, then `None`. Returns whether another part may follow.
    fn decode(&self, part: usize, decoder: &Decoder) -> Result<bool, SendError<Decoded>> {
        let part_is_empty = match self {
            Self::Log(log) => {
                let mut events = log.events_from(Seq((part * PART) as u64)).take(PART);
                let mut empty = true;
                loop {
                    let mut batch = Vec::with_capacity(BATCH);
                    // Events are large, so each is moved only once.
                    let read = events.by_ref().take(BATCH).try_for_each(|event| event.map(|event| batch.push(event)));
                    if batch.is_empty() && read.is_ok() {
                        break empty;
                    }
                    empty = false;
                    decoder.send(read.map(|()| Some(batch)).map_err(Into::into))?;
                }
            }
            Self::Segments { reader, .. } if part < reader.manifests().len() => {
                match reader.segment_events(part) {
                    Ok(batches) => {
                        batches
                            .map(|batch| batch.map(Some).map_err(Into::into))
                            .try_for_each(|batch| decoder.send(batch))?;
                    }
                    Err(error) => decoder.send(Err(error.into()))?,
                }
                false
            }
            Self::Segments { .. } => true,
        };
        if !part_is_empty {
            decoder.send(Ok(None))?;
        }
        Ok(!part_is_empty)
    }
}

impl Origin {
    /// Whether a process is writing the run.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (self.from, self.live) {
            ("log", _) => "log",
            (_, true) => "sealed segments of a live run",
            (_, false) => "sealed segments",
        };
        write!(f, "read        {what} in {}", self.path.display())?;
        if let (Some(through), Some(ms)) = (self.through, self.through_wall_ms) {
            write!(f, ", through {through} at {}", utc(ms))?;
        }
        if self.lost > 0 {
            write!(f, "; a power loss took {} acknowledged events after it", self.lost)?;
        }
        Ok(())
    }
}
