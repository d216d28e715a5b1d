//! The binary, run as a process on directories that the log crate made.

#[path = "../../anabranch-replay/tests/scripted/mod.rs"]
mod scripted;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use anabranch_core::{Cursor, Draft, Event, EventKind, GroupId, Run, Seq, TrainingStep};
use anabranch_log::{Durability, ReadLog, RunLog, Sealer, Segment};
use anabranch_parquet::{SealedPayloads, SegmentReader, Segments};
use scripted::{HandClock, Script};
use serde_json::Value;

/// Held while a process is started: until it runs its own program it has every file of this one open, and with them the
/// locks of other tests' runs.
static STARTING: Mutex<()> = Mutex::new(());

fn open(run: &Path) -> (RunLog, HandClock) {
    let clock = HandClock::default();
    let log = RunLog::options().timer(clock.timer()).open(run, Durability::Process).unwrap();
    (log, clock)
}

/// Plays a run into `run` and leaves it open, killed (dropped without being closed) or closed, as `end` does.
fn record(run: &Path, turns: usize, end: impl FnOnce(Script, &RunLog)) {
    let (log, clock) = open(run);
    let mut script = Script::new(Run::clone(&log), clock);
    script.publish();
    script.play(turns);
    log.sync().unwrap();
    end(script, &log);
    let _none = STARTING.lock();
    drop(log);
}

fn killed(run: &Path) {
    record(run, 20, |_, _| {});
}

fn anabranch(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(arguments.iter().map(AsRef::as_ref)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let starting = STARTING.lock();
    let child = command.spawn().unwrap();
    drop(starting);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output of a command that must end with `status`.
fn answer(status: i32, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let output = anabranch(arguments);
    assert_eq!(output.status.code(), Some(status), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Standard error of a command that must fail.
fn complaint(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let output = anabranch(arguments);
    assert_eq!(output.status.code(), Some(2), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    text(&output.stderr)
}

fn json(status: i32, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Value {
    serde_json::from_str(&answer(status, arguments)).unwrap()
}

fn events(run: &Path) -> Vec<Event> {
    ReadLog::open(run).unwrap().events().map(Result::unwrap).collect()
}

/// The first group of the first batch.
fn consumed(run: &Path) -> GroupId {
    let first = |event: &Event| match &event.kind {
        EventKind::BatchTaken { groups, .. } => Some(groups[0].id.clone()),
        _ => None,
    };
    events(run).iter().find_map(first).unwrap()
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}

#[test]
fn a_killed_run_is_audited_without_changing_a_byte() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    let before = files(run.path());
    let text = answer(0, &[&"audit", &run.path()]);
    let audit = anabranch_replay::audit(&events(run.path()));
    assert!(text.contains(audit.to_string().trim_end()), "{text}");
    assert!(text.starts_with(&format!("read        log in {}, through #", run.path().display())), "{text}");
    let json = json(0, &[&"--json", &"audit", &run.path()]);
    assert_eq!(json["audit"], serde_json::to_value(&audit).unwrap());
    assert_eq!((json["source"]["from"].as_str(), json["source"]["live"].as_bool()), (Some("log"), Some(false)));
    answer(0, &[&"verify", &run.path()]);
    assert!(files(run.path()) == before, "a reader changed the run");
}

#[test]
fn a_group_tells_its_history() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    let id = consumed(run.path());
    let payload = ReadLog::open(run.path()).unwrap().payload(&id).unwrap();
    let text = answer(0, &[&"history", &run.path(), &id.to_string()]);
    assert!(text.contains(&format!("group       {id}: consumed by step 1, group 1 of 4")), "{text}");
    let span = payload.samples[1].spans[0];
    let shown = format!("spans    1  {}[{},{})", span.version.lowest().unwrap(), span.start, span.end);
    assert!(text.contains(&shown), "`{shown}` in\n{text}");
    let json = json(0, &[&"history", &run.path(), &id.to_string(), &"--json"]);
    assert_eq!(json["history"]["disposition"], "consumed");
    assert_eq!(json["spans"].as_array().unwrap().len(), payload.samples.len());

    let other = GroupId { attempt: 9, ..id.clone() };
    let error = complaint(&[&"history", &run.path(), &other.to_string()]);
    assert!(error.contains(&format!("no group {other}; the last attempt at that prompt is {id}")), "{error}");
    let error = complaint(&[&"history", &run.path(), &"elsewhere/0/0#0"]);
    assert!(error.contains("one of its groups is letters/0/"), "{error}");
    let error = complaint(&[&"history", &run.path(), &"nonsense"]);
    assert!(error.contains("dataset/epoch/row#attempt"), "{error}");
}

#[test]
fn a_sound_run_verifies_and_a_tampered_one_is_named() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 20, |script, _| {
        script.run.finish();
    });
    let text = answer(0, &[&"verify", &run.path()]);
    assert!(text.contains("sound: ") && text.contains("payloads with their recorded digests"), "{text}");

    // The same script makes the same run, and one record too many of a group that a batch consumed.
    let id = consumed(run.path());
    let tampered = tempfile::tempdir().unwrap();
    record(tampered.path(), 20, |_, log| {
        log.record(vec![Draft::new(EventKind::Admitted { id: id.clone() }, Vec::new())], &[]);
        log.sync().unwrap();
    });
    let text = answer(1, &[&"verify", &tampered.path()]);
    assert!(text.contains(&format!(": {id} is admitted although #")) && text.contains("1 violation: "), "{text}");
    let json = json(1, &[&"verify", &tampered.path(), &"--json"]);
    assert_eq!(json["sound"], false);
    let named = &json["report"]["violations"][0];
    assert_eq!(named["violation"], "settled_twice");
    assert_eq!(named["group"], serde_json::to_value(&id).unwrap());
}

#[test]
fn export_seals_what_is_left_and_parquet_alone_answers_the_same() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    let events = events(run.path());
    let text = answer(0, &[&"export", &run.path()]);
    assert!(text.contains(&format!("sealed {} events", events.len())), "{text}");
    let folder = run.path().join("parquet");
    let sealed = SegmentReader::open(&folder).unwrap();
    assert_eq!(sealed.events().map(Result::unwrap).collect::<Vec<_>>(), events);
    drop(sealed);
    let text = answer(0, &[&"export", &run.path()]);
    assert!(text.contains("sealed already"), "{text}");
    let text = answer(0, &[&"verify", &run.path()]);
    assert!(text.contains(&format!("{} sealed events with the log", events.len())), "{text}");

    // The folder alone, elsewhere.
    let alone = tempfile::tempdir().unwrap();
    let copy = alone.path().join("copy");
    let json_of = |path: &Path| json(0, &[&"audit", &path, &"--json"]);
    assert_eq!(json(0, &[&"export", &run.path(), &"--to", &copy, &"--json"])["events"], events.len());
    let (from_log, from_parquet) = (json_of(run.path()), json_of(&copy));
    assert_eq!(from_log["audit"], from_parquet["audit"]);
    assert_eq!(from_parquet["source"]["from"], "parquet");
    let group =
        events.iter().rev().find(|event| matches!(event.kind, EventKind::Completed { .. })).unwrap().kind.group();
    let group = group.unwrap().to_string();
    let history = |path: &Path| json(0, &[&"history", &path, &group, &"--json"]);
    assert_eq!(history(run.path())["spans"], history(&copy)["spans"]);
    let text = answer(0, &[&"verify", &copy]);
    assert!(text.contains("sealed payloads with their recorded digests"), "{text}");
    let error = complaint(&[&"export", &copy]);
    assert!(error.contains("has no log to export"), "{error}");

    // Another run may not be sealed into it.
    let other = tempfile::tempdir().unwrap();
    record(other.path(), 6, |_, _| {});
    let error = complaint(&[&"export", &other.path(), &"--to", &copy]);
    assert!(error.contains("segments of another run"), "{error}");
}

/// A run whose log has dropped all payloads but those of groups that nothing settled, and these ids of consumed groups.
fn dropped(run: &Path) -> Vec<GroupId> {
    let clock = HandClock::default();
    let sealer = |run: &Path| {
        let mut segments = Segments::open(run.join("parquet"))?;
        let payloads = SealedPayloads::of(segments.folder());
        let sealer = Sealer::new(segments.sealed_through(), move |segment: &Segment| {
            let mut groups = segment.groups.iter().cloned();
            segments.seal(&segment.events, |_| groups.next().ok_or_else(|| "no payload".into()))?;
            Ok(())
        });
        Ok(sealer.reading(move |id| Ok(payloads.read(id)?)))
    };
    let log = RunLog::options().timer(clock.timer()).sealer(sealer).open(run, Durability::Process).unwrap();
    let mut script = Script::new(Run::clone(&log), clock);
    script.publish();
    script.play(20);
    let cursor = Cursor { step: TrainingStep(1), taken: Some(script.run.finish().last_seq()), ..Cursor::default() };
    log.journal().checkpoint(&cursor, &mut |_| Ok(())).unwrap();
    log.close().unwrap();
    let taken = |event: Event| match event.kind {
        EventKind::BatchTaken { groups, .. } => groups.into_iter().map(|group| group.id).collect(),
        _ => Vec::new(),
    };
    events(run).into_iter().flat_map(taken).collect()
}

#[test]
fn payloads_that_lie_in_the_segments_alone_are_found_there() {
    let (run, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let consumed = dropped(run.path());
    killed(twin.path());
    let (log, whole) = (ReadLog::open(run.path()).unwrap(), ReadLog::open(twin.path()).unwrap());
    let counts = log.check().unwrap();
    assert!(counts.dropped >= consumed.len() as u64, "{counts:?}");
    let error = log.payload(&consumed[0]).unwrap_err().to_string();
    assert!(error.contains("parquet/"), "{error}");
    let payloads = SealedPayloads::of(run.path().join("parquet"));
    for id in &consumed {
        // The same script makes the same run, which kept them.
        assert_eq!(payloads.read(id).unwrap(), Some(whole.payload(id).unwrap()));
    }
    drop((log, whole));

    let id = consumed[0].to_string();
    let spans = |run: &Path| json(0, &[&"history", &run, &id, &"--json"])["spans"].clone();
    assert_eq!(spans(run.path()), spans(twin.path()));
    let text = answer(0, &[&"verify", &run.path()]);
    assert!(text.contains(&format!("; {} more lie in the segments alone", counts.dropped)), "{text}");
    let copy = twin.path().join("copy");
    answer(0, &[&"export", &run.path(), &"--to", &copy]);
    let text = answer(0, &[&"verify", &copy]);
    assert!(text.contains(&format!("{} sealed payloads", counts.completed)), "{text}");

    fs::rename(run.path().join("parquet"), run.path().join("lost")).unwrap();
    let text = answer(1, &[&"verify", &run.path()]);
    assert!(text.contains("the log has dropped payloads") && text.contains("put back the segments"), "{text}");
    let error = complaint(&[&"history", &run.path(), &id]);
    assert!(error.contains("parquet/"), "{error}");
}

#[test]
fn damaged_segments_are_named_by_verify() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    answer(0, &[&"export", &run.path()]);
    let folder = run.path().join("parquet/samples");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    fs::write(&file, bytes).unwrap();
    let text = answer(1, &[&"verify", &run.path()]);
    assert!(text.contains(&format!("{}: its crc", file.display())), "{text}");
}

#[test]
fn a_damaged_run_is_salvaged_and_what_is_missing_is_named() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    let whole = events(run.path());
    let new = tempfile::tempdir().unwrap();
    let text = answer(0, &[&"salvage", &run.path(), &"--to", &new.path().join("whole")]);
    assert!(text.contains(&format!("log         {} events", whole.len())) && text.contains("can be opened"), "{text}");
    let error = complaint(&[&"salvage", &run.path(), &"--to", &new.path().join("whole")]);
    assert!(error.contains("exists already"), "{error}");

    // Cut the write-ahead log; what HEAD knew of is missing, and named.
    let log = fs::read_dir(run.path().join("log")).unwrap().map(|entry| entry.unwrap().path());
    let wal = log
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .max_by_key(|path| path.metadata().unwrap().len());
    let wal = fs::OpenOptions::new().write(true).open(wal.unwrap()).unwrap();
    wal.set_len(wal.metadata().unwrap().len() / 2).unwrap();
    let before = files(run.path());
    complaint(&[&"audit", &run.path()]);
    let to = new.path().join("cut");
    let text = answer(1, &[&"salvage", &run.path(), &"--to", &to]);
    let kept = events(&to);
    assert_eq!(kept[..], whole[..kept.len()]);
    let (first, last) = (Seq(kept.len() as u64), Seq(whole.len() as u64 - 1));
    assert!(text.contains(&format!("missing     events {first} to {last}")), "{text}");
    answer(0, &[&"verify", &to]);
    // With its segments sealed before, nothing is missing.
    let to = new.path().join("sealed");
    answer(0, &[&"export", &new.path().join("whole"), &"--to", &run.path().join("parquet")]);
    let json = json(0, &[&"salvage", &run.path(), &"--to", &to, &"--json"]);
    assert_eq!((json["whole"].as_bool(), json["events"].as_u64()), (Some(true), Some(whole.len() as u64)));
    assert_eq!(events(&to), whole);
    fs::remove_dir_all(run.path().join("parquet")).unwrap();
    assert!(files(run.path()) == before, "salvage changed the damaged run");
}

#[test]
fn beside_a_live_writer_the_sealed_segments_answer() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 12, |_, log| {
        let error = complaint(&[&"audit", &run.path()]);
        assert!(error.contains("nothing is sealed yet") && error.contains("open for writing"), "{error}");
        // The database cannot be read beside its writer, but the same script makes the same run.
        let twin = tempfile::tempdir().unwrap();
        record(twin.path(), 12, |_, _| {});
        let events = &events(twin.path())[..60];
        let journal = log.journal().clone();
        let mut segments = Segments::open(run.path().join("parquet")).unwrap();
        segments.seal(events, |id| Ok(journal.payload(id)?)).unwrap();
        let json = json(0, &[&"audit", &run.path(), &"--json"]);
        assert_eq!((json["source"]["live"].as_bool(), json["source"]["from"].as_str()), (Some(true), Some("parquet")));
        assert_eq!(json["source"]["through"], events.len() as u64 - 1);
        let text = answer(0, &[&"audit", &run.path()]);
        assert!(text.starts_with("read        sealed segments of a live run"), "{text}");
        assert!(text.contains(&format!(", through {} at ", Seq(events.len() as u64 - 1))), "{text}");
        let error = complaint(&[&"export", &run.path()]);
        assert!(error.contains("export it when it has ended"), "{error}");
    });
}

#[test]
fn wrong_paths_say_what_to_name_instead() {
    let nothing = tempfile::tempdir().unwrap();
    for command in ["audit", "verify", "export"] {
        let error = complaint(&[&command, &nothing.path()]);
        assert!(error.contains("is neither a run nor a Parquet folder") && error.contains("HEAD and log/"), "{error}");
        let error = complaint(&[&command, &nothing.path().join("missing")]);
        assert!(error.contains("does not exist"), "{error}");
    }
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    fs::remove_file(run.path().join("HEAD")).unwrap();
    let error = complaint(&[&"audit", &run.path()]);
    assert!(error.contains("--accept-missing-head"), "{error}");
    answer(0, &[&"audit", &run.path(), &"--accept-missing-head"]);
}
