//! How values are stored: an envelope of one format byte and a CRC-32C, little-endian, then the body.
//!
//! The checksum covers the format, the *key* and the body, so that neither a flipped bit nor a value under another key
//! goes unnoticed. It is checked before the format: a value whose checksum holds and whose format is unknown was written
//! by a newer library. Events are postcard; payloads have their own layout (see [`payload`]).

mod payload;

use anabranch_core::{Event, Group};
use serde::{Deserialize, Serialize};

/// The format of the values that this library writes; it reads every format up to it.
pub(crate) const FORMAT: u8 = 1;

pub(crate) const HEADER: usize = 5;

/// Why bytes are no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// They are not what was written.
    Damaged(String),
    /// A newer library wrote them.
    Newer(u32),
}

impl Fault {
    fn damaged(problem: impl Into<String>) -> Self {
        Self::Damaged(problem.into())
    }
}

/// What is derived from the events and written with them, so that neither can be without the other.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heads {
    /// The seq of the next event: how many there are.
    pub(crate) next: u64,
    /// How many `Completed` records, each with a payload.
    pub(crate) completed: u64,
}

pub(crate) fn encode_event(key: &[u8], event: &Event) -> Result<Vec<u8>, postcard::Error> {
    let value = postcard::to_extend(event, vec![0; HEADER])?;
    Ok(enclose(key, value))
}

pub(crate) fn decode_event(key: &[u8], value: &[u8]) -> Result<Event, Fault> {
    whole(open(key, value)?)
}

pub(crate) fn encode_group(key: &[u8], group: &Group) -> Result<Vec<u8>, postcard::Error> {
    let mut value = Vec::with_capacity(HEADER + payload::size_hint(group));
    value.resize(HEADER, 0);
    payload::write(group, &mut value)?;
    Ok(enclose(key, value))
}

pub(crate) fn decode_group(key: &[u8], value: &[u8]) -> Result<Group, Fault> {
    payload::read(open(key, value)?)
}

pub(crate) fn encode_heads(key: &[u8], heads: Heads) -> Vec<u8> {
    encode_words(key, &[heads.next, heads.completed])
}

pub(crate) fn decode_heads(key: &[u8], value: &[u8]) -> Result<Heads, Fault> {
    let [next, completed] = decode_words(key, value)?;
    Ok(Heads { next, completed })
}

/// A value of numbers, little-endian.
pub(crate) fn encode_words(key: &[u8], words: &[u64]) -> Vec<u8> {
    let mut value = vec![0; HEADER];
    value.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    enclose(key, value)
}

pub(crate) fn decode_words<const N: usize>(key: &[u8], value: &[u8]) -> Result<[u64; N], Fault> {
    let body = open(key, value)?;
    let (words, rest) = body.as_chunks::<8>();
    let words: Option<[[u8; 8]; N]> = words.try_into().ok().filter(|_| rest.is_empty());
    let words = words.ok_or_else(|| Fault::damaged(format!("{} bytes, expected {}", body.len(), 8 * N)))?;
    Ok(words.map(u64::from_le_bytes))
}

/// These bytes as a body with the header that it should have.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn with_checksum(key: &[u8], body: &[u8]) -> Vec<u8> {
    enclose(key, [&[0; HEADER], body].concat())
}

/// Fills in the header of `value`, whose first bytes were left free for it.
fn enclose(key: &[u8], mut value: Vec<u8>) -> Vec<u8> {
    let checksum = checksum(FORMAT, key, &value[HEADER..]);
    value[0] = FORMAT;
    value[1..HEADER].copy_from_slice(&checksum.to_le_bytes());
    value
}

/// The body of `value`.
fn open<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], Fault> {
    let Some((header, body)) = value.split_first_chunk::<HEADER>() else {
        return Err(Fault::damaged(format!("{} bytes are too few", value.len())));
    };
    let [format, stored @ ..] = *header;
    if checksum(format, key, body) != u32::from_le_bytes(stored) {
        return Err(Fault::damaged("its checksum disagrees"));
    }
    if format == FORMAT { Ok(body) } else { Err(Fault::Newer(u32::from(format))) }
}

fn checksum(format: u8, key: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&[format]), key), body)
}

/// Decodes a body that must end where its value does.
fn whole<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Fault> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(Fault::damaged(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(Fault::damaged(error.to_string())),
    }
}

#[cfg(test)]
pub(crate) mod tests;
