//! Manifests: the numbered files that list the segments. Only files that a manifest names belong to the run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anabranch_core::{FORMAT, Seq};
use serde::{Deserialize, Serialize};

use crate::SegmentError;
use crate::failpoint;
use crate::schema::SCHEMA;

/// The directory of manifests, below the Parquet folder.
pub(crate) const DIRECTORY: &str = "manifest";

/// A file of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFile {
    /// The table.
    pub table: String,
    /// The path below the Parquet folder.
    pub path: String,
    /// The number of rows.
    pub rows: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// CRC-32C of the file, in hexadecimal.
    pub crc32c: String,
}

/// One sealed segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The number of the manifest, dense from 1.
    pub number: u64,
    /// Version of the Parquet schema.
    pub schema: u32,
    /// Version of the event format in `raw`.
    pub format: u32,
    /// Version of the library that wrote the segment.
    pub library: String,
    /// First event of the segment.
    pub first: Seq,
    /// Last event of the segment, which is the last event that it depends on.
    pub last: Seq,
    /// Wall time of that event, in milliseconds since the Unix epoch.
    pub wall_ms: u64,
    /// The files.
    pub files: Vec<SegmentFile>,
}

/// A manifest as it is stored.
#[derive(Serialize, Deserialize)]
struct Stored {
    manifest: Manifest,
    crc32c: String,
}

fn crc(manifest: &Manifest) -> serde_json::Result<String> {
    Ok(hex(crc32c::crc32c(&serde_json::to_vec(manifest)?)))
}

pub(crate) fn hex(crc: u32) -> String {
    format!("{crc:08x}")
}

impl Manifest {
    /// The file of `table`.
    pub fn file(&self, table: &str) -> Option<&SegmentFile> {
        self.files.iter().find(|file| file.table == table)
    }

    pub(crate) fn name(number: u64) -> String {
        format!("{number:08}.json")
    }

    /// Writes the manifest below `folder`. It appears complete under its name or not at all, and never replaces
    /// another.
    pub(crate) fn publish(&self, folder: &Path) -> Result<(), SegmentError> {
        let directory = folder.join(DIRECTORY);
        let path = directory.join(Self::name(self.number));
        let part = path.with_extension("part");
        let encode = || {
            let stored = Stored { manifest: self.clone(), crc32c: crc(self)? };
            serde_json::to_string_pretty(&stored)
        };
        let text = encode().map_err(|error| SegmentError::damaged(&path, error.to_string()))?;
        let write = || {
            let mut file = File::create(&part)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            failpoint::at("manifest-written")?;
            create_new(&part, &path)?;
            failpoint::at("manifest-named")?;
            sync_directory(&directory)
        };
        write().map_err(SegmentError::io("write the manifest", &path))
    }
}

/// Gives `part` its final name. Returns an error if a file has that name.
fn create_new(part: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(part, path) {
        Ok(()) => fs::remove_file(part),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Some file systems have no hard links. The lock of the folder keeps other writers out.
        Err(_) if !path.exists() => fs::rename(part, path),
        Err(error) => Err(error),
    }
}

/// Syncs a directory, so that the names in it are durable.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Reads all manifests below `folder`. Checks that they are complete, dense and contiguous, and that the files they
/// name exist with the right sizes.
///
/// # Errors
/// Returns [`SegmentError::Damaged`] or [`SegmentError::Newer`], which name the file.
pub(crate) fn read_all(folder: &Path) -> Result<Vec<Manifest>, SegmentError> {
    let directory = folder.join(DIRECTORY);
    let mut numbers: Vec<u64> = Vec::new();
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(SegmentError::io("read", &directory))?,
    };
    for entry in entries {
        let name = entry.map_err(SegmentError::io("read", &directory))?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".json"));
        numbers.extend(stem.and_then(|stem| stem.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    let mut manifests: Vec<Manifest> = Vec::with_capacity(numbers.len());
    for (number, expected) in numbers.into_iter().zip(1_u64..) {
        if number != expected {
            return Err(SegmentError::damaged(&directory.join(Manifest::name(expected)), "the manifest is missing"));
        }
        let next = manifests.last().map_or(Seq(0), |before| Seq(before.last.0 + 1));
        manifests.push(read(folder, number, next)?);
    }
    Ok(manifests)
}

/// Reads the manifests below `folder` that follow those read so far.
///
/// # Errors
/// The same as for [`read_all`].
pub(crate) fn read_new(folder: &Path, manifests: &mut Vec<Manifest>) -> Result<(), SegmentError> {
    loop {
        let number = manifests.len() as u64 + 1;
        if !folder.join(DIRECTORY).join(Manifest::name(number)).exists() {
            return Ok(());
        }
        let next = manifests.last().map_or(Seq(0), |before| Seq(before.last.0 + 1));
        manifests.push(read(folder, number, next)?);
    }
}

#[derive(Deserialize)]
struct Versions {
    schema: u32,
    format: u32,
}

#[derive(Deserialize)]
struct AnyVersion {
    manifest: Versions,
}

fn read(folder: &Path, number: u64, next: Seq) -> Result<Manifest, SegmentError> {
    let path = folder.join(DIRECTORY).join(Manifest::name(number));
    let text = fs::read_to_string(&path).map_err(SegmentError::io("read", &path))?;
    let damaged = |what: String| SegmentError::damaged(&path, what);
    // Check the versions first: a newer manifest may have other fields than this library knows.
    let stored = serde_json::from_str::<Stored>(&text);
    let versions = match &stored {
        Ok(Stored { manifest, .. }) => Ok(Versions { schema: manifest.schema, format: manifest.format }),
        Err(_) => serde_json::from_str(&text).map(|AnyVersion { manifest }| manifest),
    };
    if let Ok(Versions { schema, format }) = versions {
        for (what, found, known) in [("schema", schema, SCHEMA), ("event format", format, FORMAT)] {
            if found > known {
                return Err(SegmentError::Newer { path, what, found, known });
            }
        }
    }
    let stored = stored.map_err(|error| damaged(error.to_string()))?;
    let computed = crc(&stored.manifest).map_err(|error| damaged(error.to_string()))?;
    if computed != stored.crc32c {
        return Err(damaged(format!("expected crc {}, found {computed}", stored.crc32c)));
    }
    let manifest = stored.manifest;
    if manifest.number != number || manifest.first != next || manifest.last < manifest.first {
        let Manifest { number, first, last, .. } = &manifest;
        return Err(damaged(format!("it is number {number} with {first} to {last}, expected {next} to come next")));
    }
    for file in &manifest.files {
        let path = folder.join(&file.path);
        match fs::metadata(&path) {
            Ok(found) if found.len() == file.bytes => {}
            Ok(found) => {
                return Err(SegmentError::damaged(&path, format!("{} bytes, sealed {}", found.len(), file.bytes)));
            }
            Err(error) => return Err(SegmentError::Io { action: "read the sealed file", path, source: error }),
        }
    }
    Ok(manifest)
}

/// Whether a seal may have left this file behind: it is unfinished, or has the name of a segment. Other files of the
/// user stay.
fn is_ours(path: &Path) -> bool {
    let part = |part: Option<&std::ffi::OsStr>| part.and_then(std::ffi::OsStr::to_str).unwrap_or_default().to_owned();
    let (stem, extension) = (part(path.file_stem()), part(path.extension()));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let segment = stem.split_once('-').is_some_and(|(first, last)| digits(first) && digits(last));
    match extension.as_str() {
        "part" => segment || digits(&stem),
        "parquet" => segment,
        _ => false,
    }
}

/// Removes files that a killed process left below `folder`: files of a table that no manifest names, and unfinished
/// files.
pub(crate) fn remove_leftovers(
    folder: &Path,
    tables: &[&str],
    manifests: &[Manifest],
) -> Result<Vec<PathBuf>, SegmentError> {
    let sealed: std::collections::HashSet<PathBuf> =
        manifests.iter().flat_map(|manifest| &manifest.files).map(|file| folder.join(&file.path)).collect();
    let mut removed = Vec::new();
    for directory in tables.iter().copied().chain([DIRECTORY]).map(|name| folder.join(name)) {
        for entry in fs::read_dir(&directory).map_err(SegmentError::io("read", &directory))? {
            let path = entry.map_err(SegmentError::io("read", &directory))?.path();
            if is_ours(&path) && !sealed.contains(&path) {
                fs::remove_file(&path).map_err(SegmentError::io("remove the leftover", &path))?;
                removed.push(path);
            }
        }
    }
    Ok(removed)
}
