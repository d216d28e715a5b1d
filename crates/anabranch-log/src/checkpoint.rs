//! Checkpoints: directories that are whole or not there.
//!
//! A checkpoint is filled under a name of its own, its files are synced, `cursor.json` says what they are, the log is
//! synced through the watermark, and only then does the directory get its name. Each file is listed with its length and
//! digest, so that damage is found before anything is loaded.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anabranch_core::{BoxError, Checkpoint, Cursor, JournalError, TrainingStep};
use serde::{Deserialize, Serialize};

use crate::{OpenError, ReadError, failpoint};

const CURSOR: &str = "cursor.json";
const FORMAT: u32 = 1;
/// A checkpoint being filled.
const PART: &str = ".part-";
/// A checkpoint about to be replaced or removed.
const OLD: &str = ".old-";

/// The checkpoints of a run.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    directory: PathBuf,
    /// How many are kept beside that of step 0.
    keep: usize,
}

/// `cursor.json`.
#[derive(Serialize, Deserialize)]
struct Record {
    format: u32,
    cursor: Cursor,
    /// How many events the log must hold.
    watermark: u64,
    files: BTreeMap<String, FileRecord>,
    /// CRC-32C of this record with this number 0.
    checksum: u32,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct FileRecord {
    bytes: u64,
    blake3: String,
}

/// Why a directory is no checkpoint.
enum Fault {
    /// It is not what was written.
    Damaged(String),
    /// A newer library wrote it, in this format.
    Newer(u32),
}

/// A whole checkpoint found on disk.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) checkpoint: Checkpoint,
    /// How many events the log must hold.
    pub(crate) watermark: u64,
}

impl Checkpoints {
    pub(crate) fn new(directory: PathBuf, keep: usize) -> Self {
        Self { directory, keep }
    }

    /// Makes a checkpoint of the files that `fill` writes. `sync` makes the log durable through the watermark.
    pub(crate) fn write(
        &self,
        cursor: &Cursor,
        watermark: u64,
        fill: &mut dyn FnMut(&Path) -> Result<(), BoxError>,
        sync: &mut dyn FnMut() -> Result<(), JournalError>,
    ) -> Result<String, JournalError> {
        let name = name(cursor.step);
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            let at = self.directory.join(&name);
            JournalError::new(format!(
                "{what} checkpoint {} failed: {error}; those before it are untouched",
                at.display()
            ))
        };
        let part = self.directory.join(format!("{PART}{name}"));
        let fresh = remove_if_there(&part).and_then(|()| fs::create_dir_all(&part));
        fresh.map_err(|error| failed("beginning", &error))?;
        fill(&part).map_err(|error| failed("filling", &error))?;
        failpoint::at("checkpoint-filled").map_err(|error| failed("filling", &error))?;
        record(&part, cursor, watermark).map_err(|error| failed("writing", &error))?;
        failpoint::at("checkpoint-recorded").map_err(|error| failed("writing", &error))?;
        sync()?;
        self.install(&part, &name).map_err(|error| failed("naming", &error))?;
        if let Err(error) = self.prune() {
            tracing::warn!(%error, directory = %self.directory.display(), "an old checkpoint could not be removed");
        }
        Ok(name)
    }

    /// The names of all checkpoints, newest first.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.named()?.into_iter().rev().map(|(_, name)| name).collect())
    }

    /// The checkpoint of this name, if it is whole. A damaged one is skipped with a warning that names it; one of a newer
    /// format is no damage, and is refused.
    pub(crate) fn one(&self, name: &str) -> Result<Option<Listed>, ReadError> {
        let path = self.directory.join(name);
        match read(&path) {
            Ok(Record { cursor, watermark, .. }) => {
                Ok(Some(Listed { checkpoint: Checkpoint { name: name.to_owned(), path, cursor }, watermark }))
            }
            Err(Fault::Damaged(problem)) => {
                tracing::warn!(checkpoint = %path.display(), problem, "a damaged checkpoint is skipped");
                Ok(None)
            }
            Err(Fault::Newer(found)) => {
                let (what, path) = (format!("checkpoint {name}"), self.directory.clone());
                Err(ReadError::Newer { what, path, found, known: FORMAT })
            }
        }
    }

    /// The whole checkpoints, newest first.
    pub(crate) fn list(&self) -> Result<Vec<Listed>, OpenError> {
        let names = self.names().map_err(OpenError::file("reading", &self.directory))?;
        let found = names.iter().filter_map(|name| self.one(name).transpose());
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// The cursor of the oldest of the last ones, which everything that training needs again lies behind; nothing where
    /// there is none but that of step 0, or it cannot be read.
    pub(crate) fn oldest_kept(&self) -> Option<Cursor> {
        let mut kept = self.named().ok()?.into_iter().rev().filter(|(step, _)| *step > 0).take(self.keep);
        let (_, name) = kept.by_ref().last()?;
        read_record(&self.directory.join(name)).ok().map(|record| record.cursor)
    }

    /// Removes what a killed process left half made, and puts back what it left half replaced.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        for entry in entries(&self.directory)? {
            let path = self.directory.join(&entry);
            if let Some(name) = entry.strip_prefix(OLD)
                && !self.directory.join(name).exists()
                && !matches!(read(&path), Err(Fault::Damaged(_)))
            {
                fs::rename(&path, self.directory.join(name))?;
            } else if entry.starts_with(PART) || entry.starts_with(OLD) {
                fs::remove_dir_all(&path)?;
            }
        }
        Ok(())
    }

    /// Gives the directory `part` its name, durably.
    fn install(&self, part: &Path, name: &str) -> io::Result<()> {
        let (path, old) = (self.directory.join(name), self.directory.join(format!("{OLD}{name}")));
        if path.exists() {
            remove_if_there(&old)?;
            fs::rename(&path, &old)?;
        }
        failpoint::at("checkpoint-rename")?;
        fs::rename(part, &path)?;
        failpoint::at("checkpoint-renamed")?;
        sync_directory(&self.directory)?;
        if let Some(run) = self.directory.parent() {
            sync_directory(run)?;
        }
        remove_if_there(&old)
    }

    /// Removes all but the last ones and that of step 0.
    fn prune(&self) -> io::Result<()> {
        let mut later = self.named()?;
        later.retain(|(step, _)| *step > 0);
        for (_, name) in &later[..later.len().saturating_sub(self.keep)] {
            let old = self.directory.join(format!("{OLD}{name}"));
            remove_if_there(&old)?;
            fs::rename(self.directory.join(name), &old)?;
            failpoint::at("checkpoint-pruned")?;
            fs::remove_dir_all(&old)?;
        }
        Ok(())
    }

    /// The steps and names of all checkpoints, oldest first.
    fn named(&self) -> io::Result<Vec<(u64, String)>> {
        let step = |name: &str| name.strip_prefix("step-")?.parse().ok();
        let mut named: Vec<(u64, String)> =
            entries(&self.directory)?.into_iter().filter_map(|name| Some((step(&name)?, name))).collect();
        named.sort();
        Ok(named)
    }
}

fn name(step: TrainingStep) -> String {
    format!("step-{:06}", step.0)
}

/// Syncs the files in `directory`, and writes down what they are.
fn record(directory: &Path, cursor: &Cursor, watermark: u64) -> io::Result<()> {
    let mut files = BTreeMap::new();
    each_file(directory, "", &mut |name, path| {
        File::open(path)?.sync_all()?;
        files.insert(name, file_record(path)?);
        Ok(())
    })?;
    let mut record = Record { format: FORMAT, cursor: cursor.clone(), watermark, files, checksum: 0 };
    record.checksum = checksum(&record)?;
    let path = directory.join(CURSOR);
    fs::write(&path, serde_json::to_vec_pretty(&record)?)?;
    File::open(&path)?.sync_all()?;
    sync_directories(directory)
}

/// The record of the checkpoint in `directory`, if it is whole.
fn read(directory: &Path) -> Result<Record, Fault> {
    let record = read_record(directory)?;
    for (name, recorded) in &record.files {
        let now = file_record(&directory.join(name));
        if now.map_err(|error| Fault::Damaged(format!("{name}: {error}")))? != *recorded {
            return Err(Fault::Damaged(format!("{name}: it is not what was written")));
        }
    }
    Ok(record)
}

/// The same, without a look at its files.
fn read_record(directory: &Path) -> Result<Record, Fault> {
    /// What every format has.
    #[derive(Deserialize)]
    struct Any {
        format: u32,
    }

    let damaged = |problem: &dyn std::fmt::Display| Fault::Damaged(format!("{CURSOR}: {problem}"));
    let bytes = fs::read(directory.join(CURSOR)).map_err(|error| damaged(&error))?;
    let Any { format } = serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
    let record = serde_json::from_slice(&bytes).map_err(|error| damaged(&error)).and_then(|mut record: Record| {
        // A number that damage made is no newer format: with this one the checksum holds.
        record.format = record.format.min(FORMAT);
        let stored = std::mem::take(&mut record.checksum);
        let holds = checksum(&record).map_err(|error| damaged(&error))? == stored;
        if holds { Ok(record) } else { Err(damaged(&"its checksum disagrees")) }
    });
    match record {
        Err(_) if format > FORMAT => Err(Fault::Newer(format)),
        Ok(_) if format > FORMAT => Err(damaged(&"its checksum disagrees")),
        record => record,
    }
}

fn checksum(record: &Record) -> io::Result<u32> {
    Ok(crc32c::crc32c(&serde_json::to_vec(record)?))
}

fn file_record(path: &Path) -> io::Result<FileRecord> {
    let mut hasher = blake3::Hasher::new();
    let bytes = io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(FileRecord { bytes, blake3: hasher.finalize().to_hex().to_string() })
}

/// Calls `visit` for each file under `directory` but the cursor, with its name relative to it.
fn each_file(directory: &Path, prefix: &str, visit: &mut dyn FnMut(String, &Path) -> io::Result<()>) -> io::Result<()> {
    for entry in entries(directory)? {
        let path = directory.join(&entry);
        if path.is_dir() {
            each_file(&path, &format!("{prefix}{entry}/"), visit)?;
        } else if !(prefix.is_empty() && entry == CURSOR) {
            visit(format!("{prefix}{entry}"), &path)?;
        }
    }
    Ok(())
}

/// Syncs `directory` and those in it.
fn sync_directories(directory: &Path) -> io::Result<()> {
    for entry in entries(directory)? {
        let path = directory.join(entry);
        if path.is_dir() {
            sync_directories(&path)?;
        }
    }
    sync_directory(directory)
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// The names in a directory; none where it is not there.
fn entries(directory: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
    }
}

/// Copies a directory and what is in it, durably.
pub(crate) fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in entries(from)? {
        let (source, copy) = (from.join(&entry), to.join(&entry));
        if source.is_dir() {
            copy_directory(&source, &copy)?;
        } else {
            fs::copy(&source, &copy)?;
            File::open(&copy)?.sync_all()?;
        }
    }
    sync_directory(to)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
