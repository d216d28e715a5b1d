//! The digest of a group: BLAKE3 over its fields, independent of the encoding that stores them.
//!
//! Numbers are little-endian, texts and lists are preceded by their length, and options and variants by a byte that
//! names the variant. Different groups therefore have different inputs. Arrays go through a small buffer of fixed size,
//! so that memory does not grow with the group, and the hash function gets pieces large enough for all its lanes.

use std::cell::Cell;

use bytemuck::NoUninit;

use super::{Group, Sample, SampleTimes, Status};
use crate::{Digest, Fields, GroupId, PromptId, SpanVersion, Value, VersionSpan};

/// How many bytes are hashed at a time.
const PIECE: usize = 16 << 10;

thread_local! {
    /// The buffer for a piece. It starts small, so that a small group does not allocate a large buffer.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

struct Input {
    hasher: blake3::Hasher,
    piece: Vec<u8>,
}

impl Input {
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        if bytes.len() < PIECE - self.piece.len() {
            self.piece.extend_from_slice(bytes);
        } else {
            self.fill(bytes);
        }
    }

    /// Adds bytes to the piece, and hashes it when it is full.
    fn fill(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = bytes.len().min(PIECE - self.piece.len());
            let (now, later) = bytes.split_at(room);
            self.piece.extend_from_slice(now);
            bytes = later;
            if self.piece.len() == PIECE {
                self.hasher.update(&self.piece);
                self.piece.clear();
            }
        }
    }

    fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn length(&mut self, length: usize) {
        self.u64(length as u64);
    }

    fn text(&mut self, text: &str) {
        self.length(text.len());
        self.bytes(text.as_bytes());
    }

    fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            put(self, value);
        }
    }

    /// Adds numbers of four bytes; `bits` returns the bits of a number.
    fn words<T: NoUninit>(&mut self, words: &[T], bits: impl Fn(&T) -> u32) {
        self.length(words.len());
        if cfg!(target_endian = "little") {
            self.bytes(bytemuck::cast_slice(words));
        } else {
            for word in words {
                self.u32(bits(word));
            }
        }
    }

    fn tokens(&mut self, tokens: &[u32]) {
        self.words(tokens, |&token| token);
    }

    fn logprobs(&mut self, logprobs: &[f32]) {
        self.words(logprobs, |logprob| logprob.to_bits());
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.u8(0),
            Value::Bool(value) => self.bytes(&[1, u8::from(*value)]),
            Value::Int(value) => {
                self.u8(2);
                self.bytes(&value.to_le_bytes());
            }
            Value::Float(value) => {
                self.u8(3);
                self.u64(value.to_bits());
            }
            Value::Text(text) => {
                self.u8(4);
                self.text(text);
            }
            Value::List(items) => {
                self.u8(5);
                self.length(items.len());
                for item in items {
                    self.value(item);
                }
            }
            Value::Map(fields) => {
                self.u8(6);
                self.fields(fields);
            }
        }
    }

    fn fields(&mut self, fields: &Fields) {
        self.length(fields.len());
        for (name, value) in fields {
            self.text(name);
            self.value(value);
        }
    }

    fn prompt_id(&mut self, PromptId { dataset, epoch, row }: &PromptId) {
        self.text(dataset);
        self.u32(*epoch);
        self.u64(*row);
    }

    fn span(&mut self, VersionSpan { start, end, version, kv_carried }: &VersionSpan) {
        self.u32(*start);
        self.u32(*end);
        match version {
            SpanVersion::Exact(version) => {
                self.u8(0);
                self.u64(version.0);
            }
            SpanVersion::Uncertain { lo, hi } => {
                self.u8(1);
                self.u64(lo.0);
                self.u64(hi.0);
            }
            SpanVersion::Unknown => self.u8(2),
        }
        self.u8(u8::from(*kv_carried));
    }

    fn sample(&mut self, sample: &Sample) {
        let Sample {
            tokens,
            prompt_len,
            loss_mask,
            logprobs,
            truncated_logprobs,
            spans,
            reward,
            status,
            cause,
            times: SampleTimes { submitted, first_token, ended, scored },
        } = sample;
        self.tokens(tokens);
        self.u32(*prompt_len);
        self.length(loss_mask.len());
        self.bytes(bytemuck::cast_slice(loss_mask));
        self.logprobs(logprobs);
        self.option(truncated_logprobs.as_ref(), |input, logprobs| input.logprobs(logprobs));
        self.length(spans.len());
        for span in spans {
            self.span(span);
        }
        self.option(*reward, |input, reward| input.u64(reward.to_bits()));
        self.u8(match status {
            Status::Completed => 0,
            Status::Truncated => 1,
            Status::Aborted => 2,
            Status::Failed => 3,
        });
        self.option(cause.as_deref(), Self::text);
        for time in [submitted, first_token, ended, scored] {
            self.option(*time, Self::u64);
        }
    }
}

pub(super) fn of(group: &Group) -> Digest {
    let Group { id: GroupId { prompt: of, attempt }, prompt, expected, samples, extra } = group;
    let mut input = Input { hasher: blake3::Hasher::new(), piece: SPARE.take() };
    input.piece.clear();
    input.piece.reserve_exact(PIECE);
    input.prompt_id(of);
    input.u32(*attempt);
    input.prompt_id(&prompt.id);
    input.tokens(&prompt.tokens);
    input.fields(&prompt.fields);
    input.u32(*expected);
    input.fields(extra);
    input.length(samples.len());
    for sample in samples {
        input.sample(sample);
    }
    let Input { mut hasher, piece } = input;
    hasher.update(&piece);
    SPARE.set(piece);
    Digest(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Prompt, Version};

    fn group() -> Group {
        let prompt = PromptId { dataset: "d".into(), epoch: 1, row: 2 };
        let span = VersionSpan { start: 0, end: 2, version: SpanVersion::Exact(Version(4)), kv_carried: false };
        let sample = Sample {
            tokens: vec![7, 8, 9],
            prompt_len: 1,
            loss_mask: vec![true, true],
            logprobs: vec![-0.5, -0.0],
            truncated_logprobs: None,
            spans: vec![span],
            reward: Some(1.0),
            status: Status::Completed,
            cause: None,
            times: SampleTimes { submitted: Some(1), ..SampleTimes::default() },
        };
        Group {
            id: GroupId { prompt: prompt.clone(), attempt: 0 },
            prompt: Prompt { id: prompt, tokens: vec![7], fields: Fields::from([("a".to_owned(), Value::Int(1))]) },
            expected: 2,
            samples: vec![sample.clone(), sample],
            extra: Fields::new(),
        }
    }

    /// Each of these changes makes another group.
    #[test]
    fn every_field_counts() {
        let changes: &[fn(&mut Group)] = &[
            |_| {},
            |g| g.id.attempt = 1,
            |g| g.id.prompt.epoch = 2,
            |g| g.id.prompt.row = 3,
            |g| g.id.prompt.dataset = "e".into(),
            |g| g.prompt.id.row = 9,
            |g| g.prompt.tokens.push(0),
            |g| g.prompt.fields = Fields::new(),
            |g| g.prompt.fields = Fields::from([("a".to_owned(), Value::Float(f64::from_bits(1)))]),
            |g| g.prompt.fields = Fields::from([("a".to_owned(), Value::Bool(true))]),
            |g| g.prompt.fields = Fields::from([("a".to_owned(), Value::Null)]),
            |g| g.prompt.fields = Fields::from([("a".to_owned(), Value::Text("1".to_owned()))]),
            |g| g.prompt.fields = Fields::from([("a".to_owned(), Value::List(vec![Value::Int(1)]))]),
            |g| g.prompt.fields = Fields::from([("a".to_owned(), Value::Map(Fields::new()))]),
            |g| g.expected = 3,
            |g| g.extra = Fields::from([("a".to_owned(), Value::Int(1))]),
            |g| drop(g.samples.pop()),
            |g| g.samples[0].tokens[1] = 0,
            |g| g.samples[1].tokens[1] = 0,
            |g| g.samples[0].tokens.truncate(2),
            |g| g.samples[0].prompt_len = 2,
            |g| g.samples[0].loss_mask[0] = false,
            |g| _ = g.samples[0].loss_mask.pop(),
            |g| g.samples[0].logprobs[1] = 0.0,
            |g| g.samples[0].logprobs[1] = f32::NAN,
            |g| g.samples[0].logprobs[1] = f32::from_bits(0x7fc0_1234),
            |g| g.samples[0].truncated_logprobs = Some(Vec::new()),
            |g| g.samples[0].truncated_logprobs = Some(vec![0.0]),
            |g| g.samples[0].spans.clear(),
            |g| g.samples[0].spans[0].start = 1,
            |g| g.samples[0].spans[0].end = 1,
            |g| g.samples[0].spans[0].kv_carried = true,
            |g| g.samples[0].spans[0].version = SpanVersion::Exact(Version(5)),
            |g| g.samples[0].spans[0].version = SpanVersion::Uncertain { lo: Version(4), hi: Version(5) },
            |g| g.samples[0].spans[0].version = SpanVersion::Uncertain { lo: Version(4), hi: Version(6) },
            |g| g.samples[0].spans[0].version = SpanVersion::Uncertain { lo: Version(3), hi: Version(5) },
            |g| g.samples[0].spans[0].version = SpanVersion::Unknown,
            |g| g.samples[0].reward = None,
            |g| g.samples[0].reward = Some(f64::NAN),
            |g| g.samples[0].status = Status::Truncated,
            |g| g.samples[0].status = Status::Aborted,
            |g| g.samples[0].status = Status::Failed,
            |g| g.samples[0].cause = Some(String::new()),
            |g| g.samples[0].cause = Some("timeout".to_owned()),
            |g| g.samples[0].times.submitted = None,
            |g| g.samples[0].times.submitted = Some(2),
            |g| g.samples[0].times.first_token = Some(1),
            |g| g.samples[0].times.ended = Some(1),
            |g| g.samples[0].times.scored = Some(1),
        ];
        let mut digests: Vec<Digest> = changes
            .iter()
            .map(|change| {
                let mut group = group();
                change(&mut group);
                assert_eq!(group.digest(), group.clone().digest());
                group.digest()
            })
            .collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), changes.len());
    }

    /// Logs contain the digest, so it must not change by accident. An array of any length gives the same digest as one
    /// that fits into one piece.
    #[test]
    fn the_input_is_fixed_and_independent_of_its_pieces() {
        let fixed = "9ffc48b750d91ce83a3a0c161d6f4538fb9f10a817e0552f6f33d4957eed735d";
        assert_eq!(group().digest().to_string(), fixed);
        let mut large = group();
        large.samples[0].tokens = (0..3 * PIECE as u32).collect();
        let mut input = Input { hasher: blake3::Hasher::new(), piece: Vec::new() };
        input.tokens(&large.samples[0].tokens);
        let Input { mut hasher, piece } = input;
        hasher.update(&piece);
        let mut whole = (large.samples[0].tokens.len() as u64).to_le_bytes().to_vec();
        whole.extend(large.samples[0].tokens.iter().flat_map(|token| token.to_le_bytes()));
        assert_eq!(Digest(*hasher.finalize().as_bytes()), Digest::of(&whole));
    }
}
