//! The file `HEAD`: how far the log must reach. 32 bytes beside the database, written in place after each commit and
//! before its acknowledgement, without a sync of its own.
//!
//! A killed process loses nothing of it, since what it wrote is in the system's cache. After a power loss the boot id
//! differs, and then a log behind it is expected where acknowledged events were not synced.
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | `ANBH` |
//! | 4 | format, 1 |
//! | 5 | 1 where every acknowledgement was synced, else 0 |
//! | 6..8 | 0 |
//! | 8..16 | events acknowledged, little-endian |
//! | 16..24 | hash of the boot id |
//! | 24..28 | how many of the last acknowledged events were not synced, at most |
//! | 28..32 | CRC-32C of the bytes before |

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anabranch_core::Digest;

use crate::failpoint;

const MAGIC: &[u8; 4] = b"ANBH";
const FORMAT: u8 = 1;

/// The boot of this machine: a hash of its id, 0 where it has none that can be read.
pub(crate) fn boot() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hash = Digest::of(&id).0;
    if id.is_empty() {
        0
    } else {
        u64::from_le_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]])
    }
}

/// What `HEAD` says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Whether every acknowledgement was synced.
    pub(crate) synced: bool,
    /// How many events were acknowledged.
    pub(crate) acked: u64,
    /// On which boot.
    pub(crate) boot: u64,
    /// How many of them were not synced, at most.
    pub(crate) unsynced: u32,
}

/// What was found where `HEAD` should be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// No file.
    Missing,
    /// A file that is not what was written; why.
    Damaged(String),
    /// What it says.
    Whole(Head),
}

impl Head {
    /// How many events a log that ends after `found` lost by a power loss; nothing where only damage explains it.
    pub(crate) fn lost(&self, found: u64, boot: u64) -> Option<u64> {
        let Some(lost) = self.acked.checked_sub(found).filter(|&lost| lost > 0) else { return Some(0) };
        let same_boot = self.boot == boot && boot != 0;
        (!self.synced && !same_boot && lost <= u64::from(self.unsynced)).then_some(lost)
    }

    fn encode(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4] = FORMAT;
        bytes[5] = u8::from(self.synced);
        bytes[8..16].copy_from_slice(&self.acked.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.boot.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.unsynced.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes: &[u8; 32] = bytes.try_into().map_err(|_| format!("{} bytes long, expected 32", bytes.len()))?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        if &bytes[..4] != MAGIC || half(28) != crc32c::crc32c(&bytes[..28]) {
            return Err("damaged: its checksum disagrees".to_owned());
        }
        if bytes[4] != FORMAT {
            return Err(format!("of format {}, this library reads {FORMAT}", bytes[4]));
        }
        Ok(Self { synced: bytes[5] == 1, acked: word(8), boot: word(16), unsynced: half(24) })
    }

    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> io::Result<Reading> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Self::decode(&bytes).map_or_else(Reading::Damaged, Reading::Whole)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Reading::Missing),
            Err(error) => Err(error),
        }
    }

    /// Makes the file at `path`, durably: whole or not there.
    pub(crate) fn create(&self, path: &Path) -> io::Result<()> {
        let part = path.with_extension("part");
        let mut file = File::create(&part)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        failpoint::at("head-made")?;
        std::fs::rename(&part, path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    }
}

/// `HEAD`, open for writing.
#[derive(Debug)]
pub(crate) struct HeadFile {
    file: File,
    path: PathBuf,
    synced: bool,
    boot: u64,
}

impl HeadFile {
    /// Opens the file at `path`; `synced` says whether every acknowledgement will be.
    pub(crate) fn open(path: &Path, synced: bool) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().write(true).open(path)?, path: path.to_owned(), synced, boot: boot() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Says that `acked` events are acknowledged, of which the last `unsynced` may not be synced.
    pub(crate) fn write(&self, acked: u64, unsynced: u64) -> io::Result<()> {
        let unsynced = u32::try_from(unsynced).unwrap_or(u32::MAX);
        let head = Head { synced: self.synced, acked, boot: self.boot, unsynced };
        self.file.write_all_at(&head.encode(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head { synced: false, acked: 1000, boot: 7, unsynced: 30 };

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = HEAD.encode();
        assert_eq!(Head::decode(&bytes), Ok(HEAD));
        for bit in 0..256 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&flipped).is_err(), "bit {bit}");
        }
        assert!((0..32).all(|length| Head::decode(&bytes[..length]).is_err()));
    }

    #[test]
    fn only_a_power_loss_explains_a_log_behind_it_and_only_what_was_not_synced() {
        assert_eq!(HEAD.lost(1000, 7), Some(0));
        assert_eq!(HEAD.lost(1200, 7), Some(0), "a log ahead: killed between commit and HEAD");
        assert_eq!(HEAD.lost(999, 7), None, "same boot");
        assert_eq!(HEAD.lost(970, 8), Some(30), "another boot");
        assert_eq!(HEAD.lost(969, 8), None, "more than was unsynced");
        assert_eq!(Head { synced: true, ..HEAD }.lost(999, 8), None, "every acknowledgement was synced");
    }

    #[test]
    fn it_is_made_whole_and_rewritten_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("HEAD");
        assert_eq!(Head::read(&path).unwrap(), Reading::Missing);
        HEAD.create(&path).unwrap();
        assert_eq!(Head::read(&path).unwrap(), Reading::Whole(HEAD));
        HeadFile::open(&path, true).unwrap().write(1001, u64::MAX).unwrap();
        let next = Head { synced: true, acked: 1001, boot: boot(), unsynced: u32::MAX };
        assert_eq!(Head::read(&path).unwrap(), Reading::Whole(next));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
