//! Sealing: turning a range of the log into a segment.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anabranch_core::{BoxError, Event, EventKind, FORMAT, Group, GroupId, Seq};

use crate::events::{self, Publication, Step, stepped, taken_for};
use crate::manifest::{self, Manifest};
use crate::output::{Closed, Output};
use crate::payloads::{self, SampleRow};
use crate::schema::{EVENTS, GROUPS, PUBLICATIONS, SAMPLES, SCHEMA, STEPS, TABLES};
use crate::{SegmentError, SegmentReader};

/// Groups held in memory at a time while sealing.
const GROUPS_AT_ONCE: usize = 64;
/// Events encoded at a time.
const EVENTS_AT_ONCE: usize = 1 << 12;
/// Where [`Segments::seal_all`] ends a segment: completed groups, and events.
const SEGMENT: (usize, usize) = (256, 1 << 13);

/// The Parquet folder of a run, open for sealing. One process at a time: a lock names it.
#[derive(Debug)]
pub struct Segments {
    folder: PathBuf,
    manifests: Vec<Manifest>,
    _lock: File,
}

impl Segments {
    /// Opens the Parquet folder of a run, making it where there is none, and removes what a kill left half-done.
    ///
    /// # Errors
    /// [`SegmentError::Locked`] where another process seals into it; [`SegmentError::Damaged`] or
    /// [`SegmentError::Newer`], naming the file, where what is sealed cannot be trusted.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, SegmentError> {
        let folder = folder.into();
        let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        for name in names.iter().chain([&manifest::DIRECTORY]) {
            let directory = folder.join(name);
            fs::create_dir_all(&directory).map_err(SegmentError::io("create", &directory))?;
        }
        // Their own names too: a manifest that a power loss leaves without a directory is no manifest.
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
        closed.push(self.write_publications(events)?);
        closed.push(self.write_steps(events)?);
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
            groups += usize::from(matches!(event.kind, EventKind::Completed { .. }));
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

    fn output(&self, table: &'static crate::schema::Table, events: &[Event]) -> Result<Output, SegmentError> {
        let (first, last) = (events.first().map_or(Seq(0), |e| e.seq), events.last().map_or(Seq(0), |e| e.seq));
        Output::create(&self.folder, table, first, last)
    }

    fn write_events(&self, events: &[Event]) -> Result<Closed, SegmentError> {
        let mut output = self.output(&EVENTS, events)?;
        for chunk in events.chunks(EVENTS_AT_ONCE) {
            let rows: Vec<(&Event, Vec<u8>)> = chunk.iter().map(encode).collect::<Result<_, _>>()?;
            output.write(events::events(&rows))?;
        }
        output.close()
    }

    fn write_groups(
        &self,
        events: &[Event],
        mut payload: impl FnMut(&GroupId) -> Result<Group, BoxError>,
    ) -> Result<[Closed; 2], SegmentError> {
        let (mut groups, mut samples) = (self.output(&GROUPS, events)?, self.output(&SAMPLES, events)?);
        let completed: Vec<&Event> =
            events.iter().filter(|event| matches!(event.kind, EventKind::Completed { .. })).collect();
        for chunk in completed.chunks(GROUPS_AT_ONCE) {
            let rows: Vec<(&Event, Group, Vec<u8>)> =
                chunk.iter().map(|event| completed_group(event, &mut payload)).collect::<Result<_, _>>()?;
            groups.write(payloads::groups(&rows))?;
            let rows: Vec<SampleRow<'_>> = rows
                .iter()
                .flat_map(|(event, group, _)| {
                    group.samples.iter().zip(0..).map(move |(sample, index)| (event.seq.0, group, index, sample))
                })
                .collect();
            samples.write(payloads::samples(&rows))?;
        }
        Ok([groups.close()?, samples.close()?])
    }

    fn write_publications(&self, events: &[Event]) -> Result<Closed, SegmentError> {
        let begun =
            |kind: &EventKind| if let EventKind::Publishing { version, .. } = kind { Some(*version) } else { None };
        let wanted =
            |kind: &EventKind| if let EventKind::Published { version, .. } = kind { Some(*version) } else { None };
        let earlier = self.earlier(events, |kind| wanted(kind).map(|v| v.0), |kind| begun(kind).map(|v| v.0))?;
        let mut last = earlier.as_ref();
        let mut rows: Vec<Publication<'_>> = Vec::new();
        for event in events {
            match &event.kind {
                EventKind::Publishing { .. } => last = Some(event),
                EventKind::Published { version, .. } => {
                    rows.push((event, last.filter(|publishing| begun(&publishing.kind) == Some(*version))));
                }
                EventKind::Reinstalled { .. } => rows.push((event, None)),
                _ => {}
            }
        }
        let mut output = self.output(&PUBLICATIONS, events)?;
        output.write(events::publications(&rows))?;
        output.close()
    }

    fn write_steps(&self, events: &[Event]) -> Result<Closed, SegmentError> {
        let earlier = self.earlier(events, stepped, taken_for)?;
        let mut last = earlier.as_ref();
        let mut rows: Vec<Step<'_>> = Vec::new();
        for event in events {
            if taken_for(&event.kind).is_some() {
                last = Some(event);
            } else if let Some(step) = stepped(&event.kind) {
                rows.push((event, last.filter(|taken| taken_for(&taken.kind) == Some(step))));
            }
        }
        let mut output = self.output(&STEPS, events)?;
        output.write(events::steps(&rows))?;
        output.close()
    }

    /// What the first event of `events` that is `wanted` refers to, where that lies in an earlier segment: `begun` gives
    /// the same number for it. At most the last sealed one can be open, so the search goes back from the end.
    fn earlier(
        &self,
        events: &[Event],
        wanted: impl Fn(&EventKind) -> Option<u64>,
        begun: impl Fn(&EventKind) -> Option<u64>,
    ) -> Result<Option<Event>, SegmentError> {
        let met = events.iter().find(|event| wanted(&event.kind).is_some() || begun(&event.kind).is_some());
        if met.and_then(|event| wanted(&event.kind)).is_none() {
            return Ok(None);
        }
        let reader = self.reader();
        for segment in (0..self.manifests.len()).rev() {
            let mut found = None;
            for events in reader.segment_events(segment)? {
                found = events?.into_iter().rfind(|event| begun(&event.kind).is_some()).or(found);
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

fn encode(event: &Event) -> Result<(&Event, Vec<u8>), SegmentError> {
    let raw = postcard::to_stdvec(event);
    Ok((event, raw.map_err(|source| SegmentError::Codec { what: format!("event {}", event.seq), source })?))
}

fn completed_group<'a>(
    event: &'a Event,
    payload: &mut impl FnMut(&GroupId) -> Result<Group, BoxError>,
) -> Result<(&'a Event, Group, Vec<u8>), SegmentError> {
    let refused = |group: GroupId, source: BoxError| SegmentError::Payload { group, seq: event.seq, source };
    let EventKind::Completed { id, .. } = &event.kind else {
        return Err(SegmentError::Events(format!("{} completes no group", event.seq).into()));
    };
    let group = payload(id).map_err(|error| refused(id.clone(), error))?;
    if group.id != *id {
        return Err(refused(id.clone(), format!("the payload handed over is that of {}", group.id).into()));
    }
    let raw = payloads::raw(&group).map_err(|error| refused(id.clone(), error.into()))?;
    Ok((event, group, raw))
}
