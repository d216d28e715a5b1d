//! The layout of a payload: a description, then one array per column.
//!
//! ```text
//! u32        length of the description, little-endian
//! postcard   description: ids, fields, and per sample its lengths, spans, reward, status, cause and times
//! u32 ..     the prompt's tokens
//! u32 ..     each sample's tokens, without the prompt's where they begin with those
//! f32 ..     each sample's log-probs
//! f32 ..     each sample's truncated log-probs, where it has them
//! u8 ..      each sample's loss mask, 0 or 1
//! ```
//! Arrays are little-endian, so that they are copied whole, never token by token. NaN keeps its bits.

use std::borrow::Cow;

use anabranch_core::{Fields, Group, GroupId, Prompt, PromptId, Sample, SampleTimes, Status, VersionSpan};
use bytemuck::Pod;
use serde::{Deserialize, Serialize};

use super::{Fault, whole};

#[derive(Serialize, Deserialize)]
struct Description<'a> {
    id: Cow<'a, GroupId>,
    prompt: Cow<'a, PromptId>,
    prompt_tokens: u32,
    fields: Cow<'a, Fields>,
    expected: u32,
    extra: Cow<'a, Fields>,
    samples: Vec<SampleDescription<'a>>,
}

#[derive(Serialize, Deserialize)]
struct SampleDescription<'a> {
    /// Whether its tokens begin with the prompt's, which are then not stored again.
    prompted: bool,
    /// How many tokens are stored.
    tokens: u32,
    prompt_len: u32,
    logprobs: u32,
    truncated_logprobs: Option<u32>,
    loss_mask: u32,
    spans: Cow<'a, [VersionSpan]>,
    reward: Option<f64>,
    status: Status,
    cause: Option<Cow<'a, str>>,
    times: SampleTimes,
}

/// About how many bytes the payload of `group` takes.
pub(super) fn size_hint(group: &Group) -> usize {
    let sample = |sample: &Sample| 96 + 5 * sample.response().len() + 8 * sample.logprobs.len();
    256 + 4 * group.prompt.tokens.len() + group.samples.iter().map(sample).sum::<usize>()
}

/// Appends the payload of `group`.
pub(super) fn write(group: &Group, out: &mut Vec<u8>) -> Result<(), postcard::Error> {
    let Group { id, prompt, expected, samples, extra } = group;
    let own = |sample: &'_ Sample| if sample.tokens.starts_with(&prompt.tokens) { prompt.tokens.len() } else { 0 };
    let description = Description {
        id: Cow::Borrowed(id),
        prompt: Cow::Borrowed(&prompt.id),
        prompt_tokens: prompt.tokens.len() as u32,
        fields: Cow::Borrowed(&prompt.fields),
        expected: *expected,
        extra: Cow::Borrowed(extra),
        samples: samples
            .iter()
            .map(|sample| SampleDescription {
                prompted: own(sample) > 0,
                tokens: (sample.tokens.len() - own(sample)) as u32,
                prompt_len: sample.prompt_len,
                logprobs: sample.logprobs.len() as u32,
                truncated_logprobs: sample.truncated_logprobs.as_ref().map(|logprobs| logprobs.len() as u32),
                loss_mask: sample.loss_mask.len() as u32,
                spans: Cow::Borrowed(&sample.spans),
                reward: sample.reward,
                status: sample.status,
                cause: sample.cause.as_deref().map(Cow::Borrowed),
                times: sample.times,
            })
            .collect(),
    };
    let description = postcard::to_stdvec(&description)?;
    out.extend_from_slice(&(description.len() as u32).to_le_bytes());
    out.extend_from_slice(&description);
    put(&prompt.tokens, out);
    for sample in samples {
        put(&sample.tokens[own(sample)..], out);
    }
    for sample in samples {
        put(&sample.logprobs, out);
    }
    for logprobs in samples.iter().filter_map(|sample| sample.truncated_logprobs.as_ref()) {
        put(logprobs, out);
    }
    for sample in samples {
        out.extend_from_slice(bytemuck::cast_slice(&sample.loss_mask));
    }
    Ok(())
}

/// Reads what [`write`] wrote.
pub(super) fn read(body: &[u8]) -> Result<Group, Fault> {
    let mut rest = body;
    let length = rest.split_off(..4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let description = length.and_then(|length| rest.split_off(..length as usize)).ok_or_else(cut)?;
    let Description { id, prompt, prompt_tokens, fields, expected, extra, samples } = whole(description)?;
    let prompt =
        Prompt { id: prompt.into_owned(), tokens: take(prompt_tokens, &mut rest)?, fields: fields.into_owned() };
    let mut read = Vec::with_capacity(samples.len());
    let lengths = |sample: &SampleDescription<'_>| (sample.logprobs, sample.truncated_logprobs, sample.loss_mask);
    let lengths: Vec<_> = samples.iter().map(lengths).collect();
    for sample in samples {
        let before: &[u32] = if sample.prompted { &prompt.tokens } else { &[] };
        read.push(Sample {
            tokens: take_after(before, sample.tokens, &mut rest)?,
            prompt_len: sample.prompt_len,
            loss_mask: Vec::new(),
            logprobs: Vec::new(),
            truncated_logprobs: None,
            spans: sample.spans.into_owned(),
            reward: sample.reward,
            status: sample.status,
            cause: sample.cause.map(Cow::into_owned),
            times: sample.times,
        });
    }
    for (sample, (logprobs, ..)) in read.iter_mut().zip(&lengths) {
        sample.logprobs = take(*logprobs, &mut rest)?;
    }
    for (sample, (_, truncated, _)) in read.iter_mut().zip(&lengths) {
        sample.truncated_logprobs = truncated.map(|count| take(count, &mut rest)).transpose()?;
    }
    for (sample, (.., loss_mask)) in read.iter_mut().zip(&lengths) {
        sample.loss_mask = mask(rest.split_off(..*loss_mask as usize).ok_or_else(cut)?)?;
    }
    if !rest.is_empty() {
        return Err(Fault::damaged(format!("{} bytes too many", rest.len())));
    }
    let (id, extra) = (id.into_owned(), extra.into_owned());
    Ok(Group { id, prompt, expected, samples: read, extra })
}

fn cut() -> Fault {
    Fault::damaged("it ends too early")
}

/// A number of four bytes that is stored little-endian.
trait Word: Pod {
    fn stored(self) -> [u8; 4];

    fn of(stored: [u8; 4]) -> Self;
}

impl Word for u32 {
    fn stored(self) -> [u8; 4] {
        self.to_le_bytes()
    }

    fn of(stored: [u8; 4]) -> Self {
        Self::from_le_bytes(stored)
    }
}

impl Word for f32 {
    fn stored(self) -> [u8; 4] {
        self.to_le_bytes()
    }

    fn of(stored: [u8; 4]) -> Self {
        Self::from_le_bytes(stored)
    }
}

fn put<T: Word>(words: &[T], out: &mut Vec<u8>) {
    if cfg!(target_endian = "little") {
        out.extend_from_slice(bytemuck::cast_slice(words));
    } else {
        out.extend(words.iter().flat_map(|word| word.stored()));
    }
}

fn take<T: Word>(count: u32, rest: &mut &[u8]) -> Result<Vec<T>, Fault> {
    take_after(&[], count, rest)
}

/// The words of `before`, then `count` stored ones.
fn take_after<T: Word>(before: &[T], count: u32, rest: &mut &[u8]) -> Result<Vec<T>, Fault> {
    let (stored, _) = rest.split_off(..count as usize * size_of::<T>()).ok_or_else(cut)?.as_chunks();
    let mut words = Vec::with_capacity(before.len() + stored.len());
    words.extend_from_slice(before);
    words.extend(stored.iter().map(|word| T::of(*word)));
    Ok(words)
}

/// A loss mask. Most are of one turn, generated whole: those are compared eight at a time.
fn mask(bytes: &[u8]) -> Result<Vec<bool>, Fault> {
    let (eights, rest) = bytes.as_chunks::<8>();
    if eights.iter().all(|eight| *eight == [1; 8]) && rest.iter().all(|&one| one == 1) {
        return Ok(vec![true; bytes.len()]);
    }
    let mask = bytemuck::checked::try_cast_slice(bytes);
    Ok(mask.map_err(|_| Fault::damaged("a loss mask is neither 0 nor 1"))?.to_vec())
}
