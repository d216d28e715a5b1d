//! What is sealed comes back exactly, and a segment is never partial and never there twice.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anabranch_core::{
    BoxError, Digest, Event, EventKind, Fields, Group, GroupId, Journal, MemoryJournal, Sample, SampleTimes, Seq,
    SpanVersion, Status, Value, Version, VersionSpan,
};
use anabranch_parquet::{SealedPayloads, SegmentError, SegmentReader, Segments, TABLES};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};

struct Recorded {
    journal: Arc<MemoryJournal>,
    events: Vec<Event>,
}

fn recorded() -> Recorded {
    let journal = Arc::new(MemoryJournal::new());
    let clock = HandClock::default();
    let run = Run::builder("scripted").journal(journal.clone()).clock(clock.session_clock()).open().unwrap();
    let mut script = Script::new(run, clock);
    script.publish();
    script.play(20);
    let events = journal.events();
    Recorded { journal, events }
}

impl Recorded {
    fn payload(&self, id: &GroupId) -> Result<Group, BoxError> {
        Ok(self.journal.payload(id)?)
    }

    fn seal(&self, segments: &mut Segments, from: usize, to: usize) {
        segments.seal(&self.events[from..to], |id| self.payload(id)).unwrap();
    }
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.insert(path);
        }
    }
    files
}

fn read(folder: &Path) -> Vec<Event> {
    SegmentReader::open(folder).unwrap().events().collect::<Result<_, _>>().unwrap()
}

#[test]
fn single_payloads_are_found_however_the_folder_grows_and_are_what_was_recorded() {
    let run = recorded();
    let folder = tempfile::tempdir().unwrap();
    let payloads = SealedPayloads::of(folder.path());
    let ids: Vec<&GroupId> = run
        .events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Completed { .. }))
        .filter_map(|event| event.kind.group())
        .collect();
    assert_eq!(payloads.read(ids[0]).unwrap(), None, "nothing is sealed");
    let mut segments = Segments::open(folder.path()).unwrap();
    let middle = run.events.len() / 2;
    run.seal(&mut segments, 0, middle);
    let found = |id: &GroupId| payloads.read(id).unwrap();
    assert_eq!((found(ids[0]), found(ids[ids.len() - 1])), (run.payload(ids[0]).ok(), None));
    run.seal(&mut segments, middle, run.events.len());
    for id in ids {
        assert_eq!(found(id), run.payload(id).ok());
    }

    // A payload that is not the one whose digest its record has.
    let folder = tempfile::tempdir().unwrap();
    let mut segments = Segments::open(folder.path()).unwrap();
    let other = |id: &GroupId| run.payload(id).map(|group| Group { expected: 77, ..group });
    segments.seal(&run.events, other).unwrap();
    let completed = run.events.iter().find(|event| matches!(event.kind, EventKind::Completed { .. })).unwrap();
    let error = SealedPayloads::of(folder.path()).read(completed.kind.group().unwrap()).unwrap_err();
    assert!(matches!(error, SegmentError::Damaged { .. }), "{error}");
}

#[test]
fn parquet_alone_rebuilds_the_log_and_every_payload() {
    let run = recorded();
    let folder = tempfile::tempdir().unwrap();
    let mut segments = Segments::open(folder.path()).unwrap();
    assert_eq!((segments.sealed_through(), segments.next()), (None, Seq(0)));
    let (a, b) = (run.events.len() / 3, run.events.len() / 2);
    for (from, to) in [(0, a), (a, b), (b, run.events.len())] {
        run.seal(&mut segments, from, to);
    }
    assert_eq!(segments.sealed_through(), run.events.last().map(|event| event.seq));
    let reader = SegmentReader::open(folder.path()).unwrap();
    assert_eq!(reader.events().collect::<Result<Vec<_>, _>>().unwrap(), run.events);
    assert_eq!(reader.sealed_at_ms(), run.events.last().map(|event| event.wall_ms));
    let mut completed = Vec::new();
    for event in &run.events {
        if let EventKind::Completed { id, payload, .. } = &event.kind {
            let group = reader.payload(id).unwrap().unwrap();
            assert_eq!(group, run.payload(id).unwrap());
            assert_eq!(group.digest(), *payload, "bit for bit");
            completed.push((event.seq, group));
        }
    }
    assert!(completed.len() > 30);
    assert_eq!(reader.groups().collect::<Result<Vec<_>, _>>().unwrap(), completed);
    assert_eq!(reader.payload(&"letters/5/5#0".parse().unwrap()).unwrap(), None);
    reader.check_files().unwrap();
}

/// A group whose numbers no text format and no comparison of floats preserves.
fn peculiar(id: &GroupId) -> Group {
    let spans = vec![
        VersionSpan { start: 0, end: 2, version: SpanVersion::Exact(Version(3)), kv_carried: false },
        VersionSpan {
            start: 2,
            end: 3,
            version: SpanVersion::Uncertain { lo: Version(3), hi: Version(u64::MAX) },
            kv_carried: true,
        },
        VersionSpan { start: 3, end: 4, version: SpanVersion::Unknown, kv_carried: false },
    ];
    let logprobs = vec![f32::from_bits(0x7fc0_dead), f32::NEG_INFINITY, -0.0, f32::from_bits(1)];
    let sample = Sample {
        tokens: vec![7, 8, u32::MAX, 0, 1, 2, 3],
        prompt_len: 2,
        loss_mask: vec![true, false, true, true, true],
        truncated_logprobs: Some(vec![f32::INFINITY, f32::from_bits(0xffc0_0001), 0.0, f32::MIN_POSITIVE]),
        logprobs,
        spans,
        reward: Some(f64::from_bits(0x7ff8_0000_0000_beef)),
        status: Status::Truncated,
        cause: Some("käse \u{0} \"quoted\"".to_owned()),
        times: SampleTimes { submitted: Some(0), first_token: None, ended: Some(u64::MAX), scored: Some(1) },
    };
    let empty = Sample {
        tokens: Vec::new(),
        prompt_len: 0,
        loss_mask: Vec::new(),
        logprobs: Vec::new(),
        truncated_logprobs: None,
        spans: Vec::new(),
        reward: None,
        status: Status::Aborted,
        cause: None,
        times: SampleTimes::default(),
    };
    let odd = Fields::from([
        ("nan".to_owned(), Value::Float(f64::from_bits(0xfff8_0000_0000_0007))),
        ("third".to_owned(), Value::Float(1.0 / 3.0)),
        (
            "list".to_owned(),
            Value::List(vec![Value::Null, Value::Bool(true), Value::Int(i64::MIN), Value::Map(Fields::new())]),
        ),
    ]);
    let prompt = anabranch_core::Prompt { id: id.prompt.clone(), tokens: vec![7, 8], fields: odd.clone() };
    Group { id: id.clone(), prompt, expected: 9, samples: vec![sample, empty], extra: odd }
}

#[test]
fn odd_bits_survive() {
    let id: GroupId = "a/b/4/17#2".parse().unwrap();
    let group = peculiar(&id);
    let kind = EventKind::Completed { id: id.clone(), summary: group.summary(), payload: group.digest() };
    let metrics = [("nan".to_owned(), f64::NAN)].into();
    let weights = Digest::of(b"weights");
    let step = anabranch_core::TrainingStep(1);
    let loss = f64::from_bits(0x7ff8_0000_0000_0009);
    let kinds = [kind, EventKind::Stepped { step, updates: 1, loss, metrics, weights }];
    let event = |(kind, seq)| Event {
        seq: Seq(seq),
        session: u32::MAX,
        at: u64::MAX,
        wall_ms: 1_700_000_000_123,
        enablers: Vec::new(),
        delay: u64::MAX,
        kind,
    };
    let events: Vec<Event> = kinds.into_iter().zip(0..).map(event).collect();
    let folder = tempfile::tempdir().unwrap();
    Segments::open(folder.path()).unwrap().seal(&events, |_| Ok(group.clone())).unwrap();

    let reader = SegmentReader::open(folder.path()).unwrap();
    let back = reader.payload(&id).unwrap().unwrap();
    assert_eq!(back.digest(), group.digest(), "bit for bit");
    let bits = |logprobs: &[f32]| logprobs.iter().map(|logprob| logprob.to_bits()).collect::<Vec<u32>>();
    assert_eq!(bits(&back.samples[0].logprobs), bits(&group.samples[0].logprobs));
    assert_eq!(
        back.samples[0].truncated_logprobs.as_deref().map(bits),
        group.samples[0].truncated_logprobs.as_deref().map(bits)
    );
    assert_eq!(back.samples[0].reward.map(f64::to_bits), group.samples[0].reward.map(f64::to_bits));
    assert_eq!((&back.samples[0].spans, &back.samples[0].times), (&group.samples[0].spans, &group.samples[0].times));
    assert_eq!(back.samples[1], group.samples[1]);
    let nan = |group: &Group| match group.extra["nan"] {
        Value::Float(nan) => nan.to_bits(),
        _ => 0,
    };
    assert_eq!(nan(&back), 0xfff8_0000_0000_0007);
    match (&read(folder.path())[1].kind, &events[1].kind) {
        (EventKind::Stepped { loss: back, .. }, EventKind::Stepped { loss, .. }) => {
            assert_eq!(back.to_bits(), loss.to_bits());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn segments_follow_each_other_without_gap_overlap_or_emptiness() {
    let run = recorded();
    let folder = tempfile::tempdir().unwrap();
    let mut segments = Segments::open(folder.path()).unwrap();
    let refused = |segments: &mut Segments, from: usize, to: usize| {
        segments.seal(&run.events[from..to], |id| run.payload(id)).unwrap_err()
    };
    assert!(matches!(refused(&mut segments, 4, 4), SegmentError::Empty));
    assert!(matches!(refused(&mut segments, 1, 9), SegmentError::Discontinuous { expected: Seq(0), found: Seq(1) }));
    run.seal(&mut segments, 0, 50);
    assert!(matches!(refused(&mut segments, 49, 60), SegmentError::Discontinuous { expected: Seq(50), .. }));
    assert!(matches!(refused(&mut segments, 0, 50), SegmentError::Discontinuous { .. }));
    let mut holed = run.events[50..60].to_vec();
    holed.remove(4);
    let error = segments.seal(&holed, |id| run.payload(id)).unwrap_err();
    assert!(matches!(error, SegmentError::Discontinuous { expected: Seq(54), found: Seq(55) }), "{error}");
    assert_eq!(segments.manifests().len(), 1);
    assert_eq!(read(folder.path()), run.events[..50]);
}

#[test]
fn a_payload_that_cannot_be_had_leaves_no_segment() {
    let run = recorded();
    let folder = tempfile::tempdir().unwrap();
    let mut segments = Segments::open(folder.path()).unwrap();
    let error = segments.seal(&run.events, |_| Err("it is gone".into())).unwrap_err();
    assert!(error.to_string().contains("it is gone"), "{error}");
    let other = peculiar(&"x/0/0#0".parse().unwrap());
    let error = segments.seal(&run.events, |_| Ok(other.clone())).unwrap_err();
    assert!(error.to_string().contains("found the payload of x/0/0#0"), "{error}");
    assert_eq!(segments.sealed_through(), None);
    run.seal(&mut segments, 0, run.events.len());
    drop(segments);
    assert_eq!(read(folder.path()), run.events);
    Segments::open(folder.path()).unwrap();
    assert_eq!(files(folder.path()).len(), TABLES.len() + 2, "five tables, one manifest, the lock");
}

/// Every state that a kill between two steps of a seal can leave: whole files and pieces under `.part`, some or all
/// renamed, the manifest unfinished, finished but unnamed, or named with its `.part` still there.
#[test]
fn a_kill_between_any_two_steps_leaves_all_or_nothing() {
    let run = recorded();
    let (first, all) = (90, run.events.len());
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run.seal(&mut Segments::open(before.path()).unwrap(), 0, first);
    let mut segments = Segments::open(after.path()).unwrap();
    run.seal(&mut segments, 0, first);
    run.seal(&mut segments, first, all);
    drop(segments);
    let relative = |folder: &Path| {
        files(folder).into_iter().map(|path| path.strip_prefix(folder).unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let new: Vec<PathBuf> = relative(after.path()).difference(&relative(before.path())).cloned().collect();
    let (manifest, tables): (Vec<PathBuf>, Vec<PathBuf>) =
        new.into_iter().partition(|path| path.starts_with("manifest"));
    assert_eq!((manifest.len(), tables.len()), (1, TABLES.len()));

    let mut states: Vec<Vec<(PathBuf, Vec<u8>)>> = Vec::new();
    let whole = |path: &PathBuf| fs::read(after.path().join(path)).unwrap();
    let part = |path: &PathBuf| path.with_extension("part");
    for open in 0..tables.len() {
        for share in [0, 2] {
            let mut state: Vec<_> = tables[..open].iter().map(|path| (part(path), whole(path))).collect();
            let bytes = whole(&tables[open]);
            state.push((part(&tables[open]), bytes[..bytes.len() * share / 3].to_vec()));
            states.push(state);
        }
    }
    for renamed in 0..=tables.len() {
        let named = |index: usize| if index < renamed { tables[index].clone() } else { part(&tables[index]) };
        states.push((0..tables.len()).map(|index| (named(index), whole(&tables[index]))).collect());
    }
    let all_named: Vec<_> = tables.iter().map(|path| (path.clone(), whole(path))).collect();
    for share in [0, 1, 3] {
        let bytes = whole(&manifest[0]);
        let unnamed = (part(&manifest[0]), bytes[..bytes.len() * share / 3].to_vec());
        states.push(all_named.iter().cloned().chain([unnamed]).collect());
    }
    let incomplete = states.len();
    let named = (manifest[0].clone(), whole(&manifest[0]));
    states.push(all_named.iter().cloned().chain([(part(&manifest[0]), named.1.clone()), named]).collect());

    for (state, index) in states.iter().zip(0..) {
        let folder = tempfile::tempdir().unwrap();
        for path in relative(before.path()) {
            fs::create_dir_all(folder.path().join(&path).parent().unwrap()).unwrap();
            fs::copy(before.path().join(&path), folder.path().join(&path)).unwrap();
        }
        for (path, bytes) in state {
            fs::write(folder.path().join(path), bytes).unwrap();
        }
        let sealed = if index < incomplete { first } else { all };
        assert_eq!(read(folder.path()), run.events[..sealed], "before it is opened for sealing, state {index}");
        let mut segments = Segments::open(folder.path()).unwrap();
        assert_eq!(segments.next(), Seq(sealed as u64));
        // Another range than the interrupted one: nothing of that must remain.
        let mut rest = sealed;
        while rest < all {
            let end = (rest + 37).min(all);
            run.seal(&mut segments, rest, end);
            rest = end;
        }
        drop(segments);
        assert_eq!(read(folder.path()), run.events, "state {index}");
        let manifests = SegmentReader::open(folder.path()).unwrap().manifests().len();
        assert_eq!(
            files(folder.path()).len(),
            manifests * (TABLES.len() + 1) + 1,
            "nothing else is left, state {index}"
        );
    }
}

#[test]
fn one_process_seals_at_a_time_and_readers_need_no_lock() {
    let run = recorded();
    let folder = tempfile::tempdir().unwrap();
    let mut segments = Segments::open(folder.path()).unwrap();
    run.seal(&mut segments, 0, 40);
    assert!(matches!(Segments::open(folder.path()), Err(SegmentError::Locked(_))));
    assert_eq!(read(folder.path()).len(), 40);
    drop(segments);
    let theirs = folder.path().join("events/notes.parquet");
    fs::write(&theirs, "a user's own file").unwrap();
    Segments::open(folder.path()).unwrap();
    assert!(theirs.exists(), "only what a seal can have left is removed");
}

#[test]
fn damage_is_refused_by_name() {
    let run = recorded();
    let sealed = || {
        let folder = tempfile::tempdir().unwrap();
        let mut segments = Segments::open(folder.path()).unwrap();
        run.seal(&mut segments, 0, 60);
        run.seal(&mut segments, 60, run.events.len());
        drop(segments);
        folder
    };
    let refused = |folder: &Path| SegmentReader::open(folder).unwrap_err().to_string();

    let folder = sealed();
    let first = folder.path().join("manifest/00000001.json");
    let text = fs::read_to_string(&first).unwrap();
    fs::write(&first, text.replace("\"last\": 59", "\"last\": 58")).unwrap();
    assert!(refused(folder.path()).contains("00000001.json: expected crc"), "{}", refused(folder.path()));
    assert!(Segments::open(folder.path()).is_err(), "nor is it sealed on");
    fs::write(&first, text.replace("\"schema\": 1", "\"schema\": 2")).unwrap();
    assert!(refused(folder.path()).contains("expected schema up to 1, found 2"), "{}", refused(folder.path()));
    fs::remove_file(&first).unwrap();
    assert!(refused(folder.path()).contains("00000001.json: the manifest is missing"), "{}", refused(folder.path()));

    let folder = sealed();
    let events = files(folder.path()).into_iter().find(|path| path.starts_with(folder.path().join("events"))).unwrap();
    let bytes = fs::read(&events).unwrap();
    fs::write(&events, &bytes[..bytes.len() - 1]).unwrap();
    assert!(refused(folder.path()).contains(&format!("{}: ", events.display())), "{}", refused(folder.path()));
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    fs::write(&events, &flipped).unwrap();
    let error = SegmentReader::open(folder.path()).unwrap().check_files().unwrap_err().to_string();
    assert!(error.contains(&format!("{}: expected crc", events.display())), "{error}");
    fs::remove_file(&events).unwrap();
    assert!(refused(folder.path()).contains("read the sealed file"), "{}", refused(folder.path()));

    let nothing = tempfile::tempdir().unwrap();
    assert!(matches!(SegmentReader::open(nothing.path()), Err(SegmentError::NoSegments(_))));
}

#[test]
fn everything_is_sealed_in_bounded_segments_and_only_once() {
    let run = recorded();
    let folder = tempfile::tempdir().unwrap();
    let mut segments = Segments::open(folder.path()).unwrap();
    let events = || run.events.iter().cloned().map(Ok::<Event, BoxError>);
    let sealed = segments.seal_all(events().take(100), |id| run.payload(id)).unwrap();
    assert_eq!(sealed, 100);
    assert_eq!(segments.seal_all(events(), |id| run.payload(id)).unwrap(), run.events.len() as u64 - 100);
    assert_eq!(segments.seal_all(events(), |id| run.payload(id)).unwrap(), 0);
    assert_eq!(read(folder.path()), run.events);
    let mut again = Segments::open(tempfile::tempdir().unwrap().path()).unwrap();
    let broken = events().take(10).chain([Err("the log broke".into())]);
    let error = again.seal_all(broken, |id| run.payload(id)).unwrap_err();
    assert!(error.to_string().contains("the log broke"), "{error}");
}
