use std::collections::BTreeMap;
use std::fmt::Write;

use anabranch_core::{
    Cause, Digest, Enabler, EventKind, Fields, GroupId, GroupSummary, Moment, OldestVersion, Prompt, PromptId, Reason,
    Sample, SampleSummary, SampleTimes, Seq, SpanVersion, Status, TakenGroup, Then, TrainingStep, Value, Version,
    VersionSpan, WeightSync,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::keys;

const EVENTS_FORMAT_1: &str = include_str!("../../fixtures/format-1/events.hex");
const GROUPS_FORMAT_1: &str = include_str!("../../fixtures/format-1/groups.hex");

fn id(text: &str) -> GroupId {
    text.parse().unwrap()
}

fn fields() -> Fields {
    let list = Value::List(vec![Value::Null, Value::Bool(true), Value::Int(-3), Value::Float(0.5)]);
    Fields::from([("answer".to_owned(), Value::from("1 2 3")), ("rest".to_owned(), list)])
}

/// One event of each kind, with every option set.
pub(crate) fn every_kind() -> Vec<Event> {
    let (digest, step, version) = (Digest::of(b"weights"), TrainingStep(7), Version(3));
    let times = SampleTimes { submitted: Some(1), first_token: Some(200), ended: Some(70_000), scored: None };
    let sample = SampleSummary {
        status: Status::Truncated,
        generated: 5,
        reward: Some(0.25),
        oldest: Some(OldestVersion::Known(Version(2))),
        newest: Some(version),
        times,
    };
    let unknown = SampleSummary { oldest: Some(OldestVersion::Unknown), reward: None, ..sample.clone() };
    let summary = GroupSummary { expected: 2, samples: vec![sample, unknown] };
    let taken = TakenGroup { id: id("d/0/1#0"), dequeued: Some(9), gap: Some(1), step_lag: Some(2) };
    let reasons = [
        (Reason::Aborted, Then::Retry(id("d/0/2#1"))),
        (Reason::Filtered { name: "spread".to_owned() }, Then::Drop),
        (Reason::Malformed, Then::Drop),
        (Reason::FutureVersion, Then::Drop),
        (Reason::UnknownVersion, Then::Drop),
        (Reason::Stale { gap: 4 }, Then::Exhausted),
    ];
    let mut kinds = vec![
        EventKind::RunOpened { library: "0.1.0".to_owned(), format: 1, settings: fields() },
        EventKind::Configured { operator: "buffer".to_owned(), settings: fields() },
        EventKind::Leased { id: id("d/0/1#0"), position: Some(300) },
        EventKind::Reissued { id: id("d/0/1#0"), reissue: 2 },
        EventKind::Completed { id: id("d/0/1#0"), summary, payload: digest },
        EventKind::Admitted { id: id("d/0/1#0") },
        EventKind::BatchTaken { step, version: Some(version), groups: vec![taken], digest },
        EventKind::Stepped {
            step,
            updates: 14,
            loss: -0.125,
            metrics: BTreeMap::from([("entropy".to_owned(), 1.5)]),
            weights: digest,
        },
        EventKind::Restepped { step, weights: digest, equal: true },
        EventKind::Publishing { version, step, updates: 14, weights: digest, mode: WeightSync::Retract },
        EventKind::Published { version, step, updates: 14, weights: digest, pause_began: 5, paused: 6 },
        EventKind::GenerationResumed { version },
        EventKind::Reinstalled { version, step, weights: digest },
        EventKind::Checkpointed { step, taken: Some(Seq(6)), name: "step-000007".to_owned() },
        EventKind::RunResumed { library: "0.1.0".to_owned(), lost: 3 },
        EventKind::RunClosed { left: vec![id("d/0/5#0")] },
    ];
    let excluded = |(reason, then)| EventKind::Excluded { id: id("d/0/2#0"), reason, then, dequeued: Some(8) };
    kinds.extend(reasons.map(excluded));
    kinds.extend([EventKind::Held, EventKind::Reopened]);
    let moments =
        [Moment::Event(Seq(4)), Moment::SampleEnd { lease: Seq(2), sample: 7 }, Moment::Dequeued { admitted: Seq(5) }];
    let enablers = moments.map(|moment| Enabler { cause: Cause::Slot, moment });
    let event = |(kind, seq)| Event {
        seq: Seq(seq),
        session: 1,
        at: 123_456_789,
        wall_ms: 1_700_000_000_000,
        enablers: enablers.to_vec(),
        delay: 42,
        kind,
    };
    let mut events: Vec<Event> = kinds.into_iter().zip(0..).map(event).collect();
    if let Some(last) = events.last_mut() {
        last.enablers = vec![Enabler { cause: Cause::Pace, moment: Moment::Scored { lease: Seq(2) } }];
    }
    events
}

pub(crate) fn some_groups() -> Vec<Group> {
    let prompt =
        Prompt { id: PromptId { dataset: "d".into(), epoch: 1, row: 17 }, tokens: vec![5, 6, 7], fields: fields() };
    let spans = vec![
        VersionSpan { start: 0, end: 1, version: SpanVersion::Exact(Version(2)), kv_carried: false },
        VersionSpan {
            start: 1,
            end: 2,
            version: SpanVersion::Uncertain { lo: Version(2), hi: Version(3) },
            kv_carried: true,
        },
        VersionSpan { start: 2, end: 3, version: SpanVersion::Unknown, kv_carried: false },
    ];
    let whole = Sample {
        tokens: vec![5, 6, 7, 100, 101, 102, 9],
        prompt_len: 3,
        loss_mask: vec![true, true, false, true],
        logprobs: vec![-0.5, -0.0, f32::from_bits(0x7fc0_1234)],
        truncated_logprobs: Some(vec![-0.25, f32::NEG_INFINITY, 0.0]),
        spans,
        reward: Some(f64::from_bits(0x7ff8_0000_0000_0001)),
        status: Status::Completed,
        cause: None,
        times: SampleTimes { submitted: Some(1), first_token: Some(2), ended: Some(3), scored: Some(4) },
    };
    let aborted = Sample {
        tokens: vec![1],
        prompt_len: 9,
        loss_mask: Vec::new(),
        logprobs: Vec::new(),
        truncated_logprobs: None,
        spans: Vec::new(),
        reward: None,
        status: Status::Aborted,
        cause: Some("timeout".to_owned()),
        times: SampleTimes::default(),
    };
    let group = Group {
        id: GroupId { prompt: prompt.id.clone(), attempt: 2 },
        prompt,
        expected: 2,
        samples: vec![whole, aborted],
        extra: fields(),
    };
    let empty = Group { samples: Vec::new(), expected: 0, extra: Fields::new(), ..group.clone() };
    vec![group, empty]
}

/// A value, its floats as bits.
fn value_bits(value: &Value) -> String {
    match value {
        Value::Float(float) => format!("{:x}", float.to_bits()),
        Value::List(items) => format!("{:?}", items.iter().map(value_bits).collect::<Vec<_>>()),
        other => format!("{other:?}"),
    }
}

/// All of a group, its floats as bits, so that NaN can be compared.
fn bits(group: &Group) -> String {
    let mut text = format!("{:?} {:?} {:?} {}", group.id, group.prompt.id, group.prompt.tokens, group.expected);
    for fields in [&group.prompt.fields, &group.extra] {
        for (name, field) in fields {
            write!(text, " {name:?}={}", value_bits(field)).unwrap();
        }
    }
    for sample in &group.samples {
        let words = |logprobs: &[f32]| logprobs.iter().map(|logprob| logprob.to_bits()).collect::<Vec<_>>();
        let rest = Sample { logprobs: Vec::new(), truncated_logprobs: None, reward: None, ..sample.clone() };
        let truncated = sample.truncated_logprobs.as_deref().map(words);
        let reward = sample.reward.map(f64::to_bits);
        write!(text, "\n{rest:?} {:?} {truncated:?} {reward:?}", words(&sample.logprobs)).unwrap();
    }
    text
}

prop_compose! {
    fn a_span()(start: u32, end: u32, lo: u64, hi: u64, which in 0..3, kv_carried: bool) -> VersionSpan {
        let version = match which {
            0 => SpanVersion::Exact(Version(lo)),
            1 => SpanVersion::Uncertain { lo: Version(lo), hi: Version(hi) },
            _ => SpanVersion::Unknown,
        };
        VersionSpan { start, end, version, kv_carried }
    }
}

fn floats() -> impl Strategy<Value = Vec<f32>> {
    vec(any::<u32>().prop_map(f32::from_bits), 0..40)
}

prop_compose! {
    /// A sample that need not make sense: malformed groups are stored too.
    fn a_sample(prompt: Vec<u32>)(
        prompted: bool,
        tokens in vec(any::<u32>(), 0..40),
        prompt_len in 0..50_u32,
        loss_mask in vec(any::<bool>(), 0..40),
        logprobs in floats(),
        truncated_logprobs in option::of(floats()),
        spans in vec(a_span(), 0..4),
        reward in option::of(any::<u64>().prop_map(f64::from_bits)),
        status in prop_oneof![
            Just(Status::Completed), Just(Status::Truncated), Just(Status::Aborted), Just(Status::Failed)
        ],
        cause in option::of(".{0,9}"),
        times in vec(option::of(any::<u64>()), 4),
        prompt in Just(prompt),
    ) -> Sample {
        let tokens = if prompted { [prompt, tokens].concat() } else { tokens };
        let times =
            SampleTimes { submitted: times[0], first_token: times[1], ended: times[2], scored: times[3] };
        Sample { tokens, prompt_len, loss_mask, logprobs, truncated_logprobs, spans, reward, status, cause, times }
    }
}

fn some_fields() -> impl Strategy<Value = Fields> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
        ".{0,5}".prop_map(Value::Text),
    ];
    let value = leaf.prop_recursive(2, 8, 3, |inner| vec(inner, 0..3).prop_map(Value::List));
    proptest::collection::btree_map(".{0,5}", value, 0..3)
}

prop_compose! {
    fn a_group()(prompt in vec(any::<u32>(), 0..9))(
        samples in vec(a_sample(prompt.clone()), 0..4),
        tokens in Just(prompt),
        dataset in ".{0,9}",
        (epoch, row, attempt, expected) in any::<(u32, u64, u32, u32)>(),
        fields in some_fields(),
        extra in some_fields(),
    ) -> Group {
        let id = PromptId { dataset: dataset.into(), epoch, row };
        let prompt = Prompt { id: id.clone(), tokens, fields };
        Group { id: GroupId { prompt: id, attempt }, prompt, expected, samples, extra }
    }
}

prop_compose! {
    fn an_event()(
        index in 0..every_kind().len(),
        (seq, session, at, wall_ms, delay) in any::<(u64, u32, u64, u64, u64)>(),
        enablers in vec(any::<(u64, u32)>(), 0..5),
    ) -> Event {
        let kind = every_kind().swap_remove(index).kind;
        let moment = |(seq, sample)| Moment::SampleEnd { lease: Seq(seq), sample };
        let enablers = enablers.into_iter().map(|pair| Enabler { cause: Cause::Room, moment: moment(pair) }).collect();
        Event { seq: Seq(seq), session, at, wall_ms, enablers, delay, kind }
    }
}

proptest! {
    #[test]
    fn payloads_come_back_bit_for_bit(group in a_group()) {
        let key = keys::group(&group.id);
        let value = encode_group(&key, &group).unwrap();
        prop_assert_eq!(bits(&decode_group(&key, &value).unwrap()), bits(&group));
    }

    #[test]
    fn events_come_back(event in an_event()) {
        let key = keys::event(event.seq);
        let value = encode_event(&key, &event).unwrap();
        prop_assert_eq!(decode_event(&key, &value).unwrap(), event);
    }

    #[test]
    fn a_damaged_payload_is_refused(group in a_group(), at: prop::sample::Index, bit in 0..8_u8) {
        let key = keys::group(&group.id);
        let value = encode_group(&key, &group).unwrap();
        let mut flipped = value.clone();
        flipped[at.index(value.len())] ^= 1 << bit;
        prop_assert!(matches!(decode_group(&key, &flipped), Err(Fault::Damaged(_))));
        let cut = &value[..at.index(value.len())];
        prop_assert!(matches!(decode_group(&key, cut), Err(Fault::Damaged(_))));
    }
}

#[test]
fn every_flipped_bit_of_an_event_and_of_the_heads_is_refused() {
    let key = keys::event(Seq(0));
    for event in every_kind() {
        let value = encode_event(&key, &event).unwrap();
        for bit in 0..value.len() * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let decoded = decode_event(&key, &flipped);
            assert!(matches!(decoded, Err(Fault::Damaged(_))), "bit {bit} of {}", event.kind.name());
        }
    }
    let heads = Heads { next: 70, completed: 9 };
    let value = encode_heads(keys::HEADS, heads);
    assert_eq!(decode_heads(keys::HEADS, &value), Ok(heads));
    for bit in 0..value.len() * 8 {
        let mut flipped = value.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_heads(keys::HEADS, &flipped).is_err(), "bit {bit}");
    }
}

#[test]
fn a_value_under_another_key_is_refused() {
    let event = every_kind().swap_remove(2);
    let value = encode_event(&keys::event(Seq(2)), &event).unwrap();
    assert!(matches!(decode_event(&keys::event(Seq(3)), &value), Err(Fault::Damaged(_))));
}

/// A value as the next format might write it.
pub(crate) fn of_newer_format(key: &[u8], event: &Event) -> Vec<u8> {
    let mut value = encode_event(key, event).unwrap();
    value[0] = FORMAT + 1;
    let stored = checksum(value[0], key, &value[HEADER..]).to_le_bytes();
    value[1..HEADER].copy_from_slice(&stored);
    value
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let key = keys::event(Seq(0));
    let value = of_newer_format(&key, &every_kind()[0]);
    assert_eq!(decode_event(&key, &value), Err(Fault::Newer(u32::from(FORMAT) + 1)));
}

#[test]
fn the_prompt_is_stored_once() {
    let mut group = some_groups().swap_remove(0);
    group.prompt.tokens = (0..1000).collect();
    group.samples = vec![group.samples[0].clone(); 8];
    for sample in &mut group.samples {
        sample.tokens = group.prompt.tokens.iter().copied().chain([1, 2, 3, 4]).collect();
    }
    let length = encode_group(b"", &group).unwrap().len();
    assert!(length < 4 * 1000 + 8 * 160, "{length} bytes");
}

/// Bytes written by format 1, as long as this library reads it: they must mean what they meant, whatever happens to the
/// types. While it is also the format written, the same values give the same bytes.
#[test]
fn format_1_is_still_read() {
    let (mut events, mut groups) = (String::new(), String::new());
    for (event, line) in every_kind().iter().zip(EVENTS_FORMAT_1.lines()) {
        let key = keys::event(event.seq);
        assert_eq!(decode_event(&key, &unhex(line)).as_ref(), Ok(event));
    }
    for (group, line) in some_groups().iter().zip(GROUPS_FORMAT_1.lines()) {
        assert_eq!(bits(&decode_group(&keys::group(&group.id), &unhex(line)).unwrap()), bits(group));
    }
    for event in every_kind() {
        events += &hex(&encode_event(&keys::event(event.seq), &event).unwrap());
    }
    for group in some_groups() {
        groups += &hex(&encode_group(&keys::group(&group.id), &group).unwrap());
    }
    assert_eq!(events, EVENTS_FORMAT_1, "a change of the bytes needs a new format");
    assert_eq!(groups, GROUPS_FORMAT_1, "a change of the bytes needs a new format");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")) + "\n"
}

fn unhex(line: &str) -> Vec<u8> {
    (0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap()).collect()
}
