//! The database of a run: its column families, and reading from them.

use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anabranch_core::{Event, EventKind, Group, GroupId, Seq};
use rocksdb::{
    BottommostLevelCompaction, ColumnFamily, ColumnFamilyDescriptor, CompactOptions, DB, DBCompressionType,
    DBRawIterator, DBRecoveryMode, LogLevel, Options, ReadOptions, WriteBatch, WriteOptions,
};

use crate::codec::{self, Fault, Heads};
use crate::seal::ReadSealed;
use crate::{OpenError, ReadError, Segment, failpoint, keys};

/// Payloads from this size on go to blob files, which compactions do not rewrite.
const MIN_BLOB: u64 = 1024;
/// How many write buffers a family may fill before appends wait for them to reach the disk.
const WRITE_BUFFERS: i32 = 6;
/// Dead bytes in blob files that are not worth rewriting the living ones for.
const DEAD: u64 = 16 << 20;

/// An open database.
pub(crate) struct Database {
    path: PathBuf,
    db: DB,
}

impl Database {
    /// Whether there is a database at `path`.
    pub(crate) fn exists(path: &Path) -> bool {
        path.join("CURRENT").exists()
    }

    /// Makes the database at `path`: with all its families, or not at all. A process killed in between leaves a part of
    /// one under another name, which the next attempt removes.
    pub(crate) fn create(path: &Path) -> Result<Self, OpenError> {
        let part = path.with_extension("part");
        match std::fs::remove_dir_all(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(OpenError::file("removing", &part)(error));
            }
            _ => drop(Self::write(&part, true)?),
        }
        let named = failpoint::at("database-made").and_then(|()| std::fs::rename(&part, path));
        named.and_then(|()| failpoint::at("database-named")).map_err(OpenError::file("naming", path))?;
        if let Some(run) = path.parent() {
            File::open(run).and_then(|run| run.sync_all()).map_err(OpenError::file("syncing", run))?;
        }
        Ok(Self::open(path)?)
    }

    /// Opens the database at `path` for its one writer.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        Self::write(path, false)
    }

    fn write(path: &Path, create: bool) -> Result<Self, ReadError> {
        let mut options = options();
        options.create_if_missing(create);
        options.create_missing_column_families(create);
        let db = DB::open_cf_descriptors(&options, path, families()).map_err(|error| database(path, &error))?;
        Ok(Self { path: path.to_owned(), db })
    }

    /// Opens the database at `path` without changing anything in it.
    pub(crate) fn read(path: &Path) -> Result<Self, ReadError> {
        let db = DB::open_cf_descriptors_read_only(&options(), path, families(), false)
            .map_err(|error| database(path, &error))?;
        Ok(Self { path: path.to_owned(), db })
    }

    /// Opens what can be read of a damaged database at `path`, without changing anything in it.
    pub(crate) fn salvage(path: &Path) -> Result<Self, ReadError> {
        let mut options = options();
        options.set_wal_recovery_mode(DBRecoveryMode::SkipAnyCorruptedRecord);
        options.set_track_and_verify_wals_in_manifest(false);
        options.set_paranoid_checks(false);
        options.set_max_open_files(-1);
        let db = DB::open_cf_descriptors_read_only(&options, path, families(), false)
            .map_err(|error| database(path, &error))?;
        Ok(Self { path: path.to_owned(), db })
    }

    /// Makes a damaged database at `path` one that can be opened, of the files that are left.
    pub(crate) fn repair(path: &Path) -> Result<(), ReadError> {
        DB::repair(&options(), path).map_err(|error| database(path, &error))
    }

    /// One event, if it is there and is what was written.
    pub(crate) fn event(&self, seq: Seq) -> Result<Option<Event>, ReadError> {
        let (key, what) = (keys::event(seq), || format!("event {seq}"));
        let Some(value) = self.get(keys::EVENTS, &key)? else { return Ok(None) };
        let event = codec::decode_event(&key, &value).map_err(|fault| self.fault(&what(), fault))?;
        Ok((event.seq == seq).then_some(event))
    }

    /// One past the last event that can be found, whatever lies before it.
    pub(crate) fn last_event(&self) -> u64 {
        let mut rows = self.rows(keys::EVENTS, &[]);
        rows.seek_to_last();
        let last = rows.key().and_then(keys::event_seq);
        let heads = self.heads().map_or(0, |heads| heads.next);
        last.map_or(0, |seq| seq.0 + 1).max(heads)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Commits a batch; with `sync` it survives a power loss when this returns.
    pub(crate) fn commit(&self, batch: WriteBatch, sync: bool) -> Result<(), rocksdb::Error> {
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.db.write_opt(batch, &options)
    }

    /// Syncs every commit that has returned.
    pub(crate) fn sync(&self) -> Result<(), rocksdb::Error> {
        self.db.flush_wal(true)
    }

    pub(crate) fn put_event(&self, batch: &mut WriteBatch, key: &[u8], value: &[u8]) {
        batch.put_cf(self.family(keys::EVENTS), key, value);
    }

    pub(crate) fn put_group(&self, batch: &mut WriteBatch, key: &[u8], value: &[u8]) {
        batch.put_cf(self.family(keys::GROUPS), key, value);
    }

    pub(crate) fn put_heads(&self, batch: &mut WriteBatch, heads: Heads) {
        batch.put_cf(self.family(keys::STATE), keys::HEADS, codec::encode_heads(keys::HEADS, heads));
    }

    pub(crate) fn delete_group(&self, batch: &mut WriteBatch, key: &[u8]) {
        batch.delete_cf(self.family(keys::GROUPS), key);
    }

    pub(crate) fn put_dropped(&self, batch: &mut WriteBatch, before: Seq) {
        batch.put_cf(self.family(keys::STATE), keys::DROPPED, codec::encode_words(keys::DROPPED, &[before.0]));
    }

    /// The payloads of groups that events before this one settled may have been dropped.
    pub(crate) fn dropped(&self) -> Result<Seq, ReadError> {
        let Some(value) = self.get(keys::STATE, keys::DROPPED)? else { return Ok(Seq(0)) };
        let dropped = codec::decode_words(keys::DROPPED, &value);
        dropped.map(|[before]| Seq(before)).map_err(|fault| self.fault("the record of what was dropped", fault))
    }

    /// What was derived from the events; zero if nothing was ever committed.
    pub(crate) fn heads(&self) -> Result<Heads, ReadError> {
        let value = self.get(keys::STATE, keys::HEADS)?;
        value.map_or(Ok(Heads::default()), |value| {
            codec::decode_heads(keys::HEADS, &value).map_err(|fault| self.fault("the record of its heads", fault))
        })
    }

    /// The payload of a completed group.
    pub(crate) fn group(&self, id: &GroupId) -> Result<Group, ReadError> {
        let (key, what) = (keys::group(id), || format!("the payload of group {id}"));
        match self.get(keys::GROUPS, &key)? {
            Some(value) => codec::decode_group(&key, &value).map_err(|fault| self.fault(&what(), fault)),
            None => Err(ReadError::Missing { what: what(), path: self.path.clone() }),
        }
    }

    /// The same, out of what was sealed where the log has dropped it.
    pub(crate) fn group_or_sealed(&self, id: &GroupId, sealed: Option<&ReadSealed>) -> Result<Group, ReadError> {
        let missing = match self.group(id) {
            Err(missing @ ReadError::Missing { .. }) => missing,
            read => return read,
        };
        let what = || format!("the payload of group {id}");
        if let Some(read) = sealed {
            let found = read(id).map_err(|error| ReadError::Sealed { what: what(), problem: error.to_string() })?;
            if let Some(group) = found {
                return Ok(group);
            }
        }
        let before = self.dropped()?;
        if before == Seq(0) {
            return Err(missing);
        }
        Err(ReadError::Dropped { what: what(), path: self.path.clone(), before })
    }

    /// The names of all groups that have a payload.
    pub(crate) fn group_ids(&self) -> impl Iterator<Item = Result<GroupId, ReadError>> + '_ {
        let mut rows = self.rows(keys::GROUPS, &[]);
        std::iter::from_fn(move || {
            if !rows.valid() {
                return rows.status().err().map(|error| Err(database(&self.path, &error)));
            }
            let id = rows.key().and_then(keys::group_id);
            rows.next();
            Some(id.ok_or_else(|| self.fault("a key of its groups", Fault::Damaged("it names no group".to_owned()))))
        })
    }

    /// The events from `first` on, dense up to what the heads say; the first that is missing is an error, and the last
    /// thing given.
    pub(crate) fn events(&self, first: Seq) -> Events<'_> {
        let end = self.heads().map(|heads| Seq(heads.next));
        let rows = self.rows(keys::EVENTS, &keys::event(first));
        Events { database: self, rows, next: first, end, ended: false }
    }

    /// The events from `first` up to, but without, `end`, and the payloads of those that complete a group: at most
    /// `groups` of these. Does nothing if there are none.
    pub(crate) fn segment(
        &self,
        first: Seq,
        end: Seq,
        groups: usize,
        sealed: Option<&ReadSealed>,
    ) -> Result<Option<Segment>, ReadError> {
        let mut segment = Segment { first, last: first, events: Vec::new(), groups: Vec::new() };
        let mut events = self.events(first);
        while segment.groups.len() < groups && events.next < end {
            let Some(event) = events.next().transpose()? else { break };
            if let EventKind::Completed { id, .. } = &event.kind {
                segment.groups.push(self.group_or_sealed(id, sealed)?);
            }
            segment.last = event.seq;
            segment.events.push(event);
        }
        Ok((!segment.events.is_empty()).then_some(segment))
    }

    fn get(&self, family: &str, key: &[u8]) -> Result<Option<rocksdb::DBPinnableSlice<'_>>, ReadError> {
        self.db.get_pinned_cf(self.family(family), key).map_err(|error| database(&self.path, &error))
    }

    /// Keys of the payloads of groups that the events from `first` up to, but without, `end` settle, at most about
    /// `most`; and the event before which that is all of them.
    pub(crate) fn settled(&self, first: Seq, end: Seq, most: usize) -> Result<(HashSet<Vec<u8>>, Seq), ReadError> {
        let mut settled = HashSet::new();
        let mut events = self.events(first);
        while settled.len() < most && events.next < end {
            let Some(event) = events.next().transpose()? else { break };
            match &event.kind {
                EventKind::Excluded { id, .. } => drop(settled.insert(keys::group(id))),
                EventKind::BatchTaken { groups, .. } => {
                    settled.extend(groups.iter().map(|group| keys::group(&group.id)));
                }
                _ => {}
            }
        }
        Ok((settled, events.next))
    }

    /// Takes out of `keys` those that an event from `first` up to, but without, `end` completes.
    pub(crate) fn keep_completed(&self, keys: &mut HashSet<Vec<u8>>, first: Seq, end: Seq) -> Result<(), ReadError> {
        let mut events = self.events(first);
        while events.next < end {
            let Some(event) = events.next().transpose()? else { break };
            if let EventKind::Completed { id, .. } = &event.kind {
                keys.remove(&keys::group(id));
            }
        }
        Ok(())
    }

    /// Gives back the room of deleted payloads. Deleting leaves them in their blob files; a compaction of the keys alone,
    /// which is cheap, lets go of every blob file without a living payload. Living payloads are rewritten only where
    /// more than a quarter of what would stay is dead.
    pub(crate) fn reclaim(&self) -> Result<(), rocksdb::Error> {
        let groups = self.family(keys::GROUPS);
        let compact = || {
            let mut options = CompactOptions::default();
            options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
            self.db.compact_range_cf_opt(groups, None::<&[u8]>, None::<&[u8]>, &options);
        };
        compact();
        let bytes = |name: &CStr| Ok(self.db.property_int_value_cf(groups, name)?.unwrap_or_default());
        let (dead, all) = (bytes(c"rocksdb.live-blob-file-garbage-size")?, bytes(c"rocksdb.live-blob-file-size")?);
        if dead > DEAD && 4 * dead > all {
            let rewrite = |rewrite: &str| {
                let (enable, age) = ("enable_blob_garbage_collection", "blob_garbage_collection_age_cutoff");
                self.db.set_options_cf(groups, &[(enable, rewrite), (age, "1.0")])
            };
            rewrite("true")?;
            compact();
            rewrite("false")?;
        }
        Ok(())
    }

    fn rows(&self, family: &str, from: &[u8]) -> DBRawIterator<'_> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let mut rows = self.db.raw_iterator_cf_opt(self.family(family), options);
        rows.seek(from);
        rows
    }

    fn family(&self, name: &str) -> &ColumnFamily {
        self.db.cf_handle(name).expect("every family was opened with the database")
    }

    fn fault(&self, what: &str, fault: Fault) -> ReadError {
        let (what, path) = (what.to_owned(), self.path.clone());
        match fault {
            Fault::Damaged(problem) => ReadError::Damaged { what, path, problem },
            Fault::Newer(found) => ReadError::Newer { what, path, found, known: u32::from(codec::FORMAT) },
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.db.cancel_all_background_work(true);
    }
}

/// Iterator over events: see [`ReadLog::events`](crate::ReadLog::events).
pub struct Events<'a> {
    database: &'a Database,
    rows: DBRawIterator<'a>,
    next: Seq,
    /// Where the heads say that the log ends.
    end: Result<Seq, ReadError>,
    ended: bool,
}

impl Events<'_> {
    fn read(&mut self) -> Result<Option<Event>, ReadError> {
        let (expected, end) = (self.next, self.end.clone()?);
        let damaged = |problem| {
            let what = format!("event {expected}");
            Err(self.database.fault(&what, Fault::Damaged(problem)))
        };
        let (Some(key), Some(value)) = (self.rows.key(), self.rows.value()) else {
            self.rows.status().map_err(|error| database(&self.database.path, &error))?;
            return if expected < end {
                damaged(format!("it is missing, the log should go on to {end}"))
            } else {
                Ok(None)
            };
        };
        match keys::event_seq(key) {
            Some(seq) if seq != expected => return damaged(format!("it is missing, the next is {seq}")),
            _ if expected >= end => return damaged(format!("the heads of the log say that it ends before {end}")),
            _ => {}
        }
        let what = || format!("event {expected}");
        let event = codec::decode_event(key, value).map_err(|fault| self.database.fault(&what(), fault))?;
        if event.seq != expected {
            return damaged(format!("it says that it is {}", event.seq));
        }
        self.next = Seq(expected.0 + 1);
        self.rows.next();
        Ok(Some(event))
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let event = self.read().transpose();
        self.ended = !matches!(event, Some(Ok(_)));
        event
    }
}

fn database(path: &Path, error: &rocksdb::Error) -> ReadError {
    ReadError::Database { path: path.to_owned(), problem: error.to_string() }
}

fn options() -> Options {
    let mut options = Options::default();
    // A torn last record is a commit that was never acknowledged; anything else that is damaged is refused.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_track_and_verify_wals_in_manifest(true);
    // All families reach the disk together, so that no flush can tear a commit apart.
    options.set_atomic_flush(true);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(3);
    options.set_max_open_files(256);
    options
}

fn families() -> Vec<ColumnFamilyDescriptor> {
    let family = |buffer: usize| {
        let mut options = Options::default();
        options.set_write_buffer_size(buffer);
        // All families are flushed together, and a burst of payloads must not wait for the disk.
        options.set_max_write_buffer_number(WRITE_BUFFERS);
        options.set_compression_type(DBCompressionType::Lz4);
        options
    };
    let mut groups = family(32 << 20);
    groups.set_enable_blob_files(true);
    groups.set_min_blob_size(MIN_BLOB);
    // Log-probs hardly compress, and what is kept for good lies in the segments.
    groups.set_blob_compression_type(DBCompressionType::None);
    // The library's own default family stays empty.
    vec![
        ColumnFamilyDescriptor::new("default", family(1 << 20)),
        ColumnFamilyDescriptor::new(keys::EVENTS, family(8 << 20)),
        ColumnFamilyDescriptor::new(keys::GROUPS, groups),
        ColumnFamilyDescriptor::new(keys::STATE, family(1 << 20)),
    ]
}
