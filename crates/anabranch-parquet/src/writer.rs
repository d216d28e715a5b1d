//! Seals ranges of the log into segments.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anabranch_core::{BoxError, Event, FORMAT, Group, GroupId, Seq};

use crate::encode::{self, CompletedGroups, EVENTS_AT_ONCE, GROUPS_AT_ONCE, Joined};
use crate::manifest::{self, Manifest};
use crate::output::{Closed, Output};
use crate::schema::SCHEMA;
use crate::{SegmentError, SegmentReader, Table};

/// Where [`Segments::seal_all`] ends a segment: completed groups, and events.
const SEGMENT: (usize, usize) = (256, 1 << 13);

/// The Parquet folder of a run, open for sealing. Only one process at a time can seal; the lock names it.
#[derive(Debug)]
pub struct Segments {
    folder: PathBuf,
    manifests: Vec<Manifest>,
    _lock: File,
}

impl Segments {
    /// Opens the Parquet folder of a run, or creates it, and removes the unfinished files of a killed process.
    ///
    /// # Errors
    /// Returns [`SegmentError::Locked`] if another process seals into the folder, and [`SegmentError::Damaged`] or
    /// [`SegmentError::Newer`] with the name of the file if a sealed file is damaged or newer.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, SegmentError> {
        let folder = folder.into();
        let names = Table::ALL.map(Table::name);
        for name in names.iter().chain([&manifest::DIRECTORY]) {
            let directory = folder.join(name);
            fs::create_dir_all(&directory).map_err(SegmentError::io("create", &directory))?;
        }
        // Sync the directory names too: without them, a power loss would take the manifests.
        let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
        for directory in [Some(&*folder), above].into_iter().flatten() {
            manifest::sync_directory(directory).map_err(SegmentError::io("sync", directory))?;
        }
        let path = folder.join("LOCK");
        let lock = File::create(&path).map_err(SegmentError::io("create", &path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => SegmentError::Locked(folder.clone()),
            TryLockError::Error(error) => SegmentError::io("lock", &path)(error),
        })?;
        let manifests = manifest::read_all(&folder)?;
        for path in manifest::remove_leftovers(&folder, &names, &manifests)? {
            tracing::info!(path = %path.display(), "removed what an interrupted seal left");
        }
        Ok(Self { folder, manifests, _lock: lock })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The last event that is sealed: everything up to it is, and its payloads are. Retention may rely on it.
    pub fn sealed_through(&self) -> Option<Seq> {
        self.manifests.last().map(|manifest| manifest.last)
    }

    /// The event that must be sealed next.
    pub fn next(&self) -> Seq {
        self.sealed_through().map_or(Seq(0), |last| Seq(last.0 + 1))
    }

    /// The manifests, in order.
    pub fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    /// Reads what is sealed so far.
    pub fn reader(&self) -> SegmentReader {
        SegmentReader::of(self.folder.clone(), self.manifests.clone())
    }

    /// Seals `events` as one segment, with the payloads of the groups completed among them, which `payload` is asked for
    /// in order. When this returns, the segment is on the disk; when it fails or the process dies, it does not exist and
    /// can be sealed again.
    ///
    /// The log must be durable through the last of `events` before this is called, or a power loss could put the log
    /// behind its own segments.
    ///
    /// # Errors
    /// [`SegmentError::Empty`] without events; [`SegmentError::Discontinuous`] where they do not follow what is sealed;
    /// [`SegmentError::Payload`] where a payload cannot be had; or whatever the file system said.
    pub fn seal(
        &mut self,
        events: &[Event],
        payload: impl FnMut(&GroupId) -> Result<Group, BoxError>,
    ) -> Result<&Manifest, SegmentError> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Err(SegmentError::Empty) };
        for (event, expected) in events.iter().zip(self.next().0..) {
            if event.seq.0 != expected {
                return Err(SegmentError::Discontinuous { expected: Seq(expected), found: event.seq });
            }
        }
        let mut closed = vec![self.write_events(events)?];
        closed.extend(self.write_groups(events, payload)?);
        closed.push(self.write_joined(Table::Publications, Joined::Publications, events)?);
        closed.push(self.write_joined(Table::Steps, Joined::Steps, events)?);
        let files = closed.into_iter().map(Closed::rename).collect::<Result<_, _>>()?;
        let manifest = Manifest {
            number: self.manifests.len() as u64 + 1,
            schema: SCHEMA,
            format: FORMAT,
            library: env!("CARGO_PKG_VERSION").to_owned(),
            first: first.seq,
            last: last.seq,
            wall_ms: last.wall_ms,
            files,
        };
        manifest.publish(&self.folder)?;
        let place = self.manifests.len();
        self.manifests.push(manifest);
        Ok(&self.manifests[place])
    }

    /// Seals everything in `events`, in segments of a bounded size; those already sealed are passed over. Gives how many
    /// events were sealed.
    ///
    /// # Errors
    /// As [`seal`](Self::seal); what was sealed before the error stays sealed.
    pub fn seal_all<E: Into<BoxError>>(
        &mut self,
        events: impl IntoIterator<Item = Result<Event, E>>,
        mut payload: impl FnMut(&GroupId) -> Result<Group, BoxError>,
    ) -> Result<u64, SegmentError> {
        let (mut pending, mut groups, mut sealed) = (Vec::new(), 0, 0);
        for event in events {
            let event = event.map_err(|error| SegmentError::Events(error.into()))?;
            if event.seq < self.next() {
                continue;
            }
            groups += usize::from(encode::completes(&event));
            pending.push(event);
            if groups >= SEGMENT.0 || pending.len() >= SEGMENT.1 {
                self.seal(&pending, &mut payload)?;
                sealed += pending.len() as u64;
                pending.clear();
                groups = 0;
            }
        }
        if !pending.is_empty() {
            self.seal(&pending, &mut payload)?;
            sealed += pending.len() as u64;
        }
        Ok(sealed)
    }

    fn output(&self, table: Table, events: &[Event]) -> Result<Output, SegmentError> {
        let (first, last) = (events.first().map_or(Seq(0), |e| e.seq), events.last().map_or(Seq(0), |e| e.seq));
        Output::create(&self.folder, table.schema(), first, last)
    }

    fn write_events(&self, events: &[Event]) -> Result<Closed, SegmentError> {
        let mut output = self.output(Table::Events, events)?;
        for chunk in events.chunks(EVENTS_AT_ONCE) {
            output.write(&encode::events(chunk)?)?;
        }
        output.close()
    }

    fn write_groups(
        &self,
        events: &[Event],
        mut payload: impl FnMut(&GroupId) -> Result<Group, BoxError>,
    ) -> Result<[Closed; 2], SegmentError> {
        let (mut groups, mut samples) = (self.output(Table::Groups, events)?, self.output(Table::Samples, events)?);
        let completed: Vec<&Event> = events.iter().filter(|event| encode::completes(event)).collect();
        for chunk in completed.chunks(GROUPS_AT_ONCE) {
            let completed = CompletedGroups::read(chunk.iter().copied(), &mut payload)?;
            groups.write(&completed.groups()?)?;
            samples.write(&completed.samples()?)?;
        }
        Ok([groups.close()?, samples.close()?])
    }

    /// At most the last thing that was begun can be open, so that one earlier event is enough.
    fn write_joined(&self, table: Table, joined: Joined, events: &[Event]) -> Result<Closed, SegmentError> {
        let earlier = if joined.began_before(events) { self.reader().last_begun(joined)? } else { None };
        let mut output = self.output(table, events)?;
        output.write(&joined.rows(events, earlier.as_ref())?)?;
        output.close()
    }
}
