//! The binary, run as a process on directories that the log crate made.

mod runs;

use std::fs;
use std::path::Path;

use anabranch_core::{EventKind, GroupId, Seq};
use anabranch_parquet::{SegmentReader, Segments};
use anabranch_stream::by_hand::{Draft, RunByHand};
use runs::{answer, complaint, consumed, events, files, json, killed, read, record};

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
    let payload = read(run.path()).payload(&id).unwrap();
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
        drop(script.run.finish());
    });
    let text = answer(0, &[&"verify", &run.path()]);
    assert!(text.contains("sound: ") && text.contains("payloads with their recorded digests"), "{text}");

    // The same script makes the same run, plus one record too many of a group that a batch consumed.
    let id = consumed(run.path());
    let tampered = tempfile::tempdir().unwrap();
    record(tampered.path(), 20, |_, log| {
        drop(log.record(vec![Draft::new(EventKind::Admitted { id: id.clone() }, Vec::new())], &[]));
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

    // A copy of the Parquet folder, without the run.
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

    // Another run may not be sealed into that folder.
    let other = tempfile::tempdir().unwrap();
    record(other.path(), 6, |_, _| {});
    let error = complaint(&[&"export", &other.path(), &"--to", &copy]);
    assert!(error.contains("segments of a run other than"), "{error}");
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
    assert!(text.contains(&format!("{}: expected crc", file.display())), "{text}");
}

#[test]
fn beside_a_live_writer_the_sealed_segments_answer() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 12, |_, log| {
        let error = complaint(&[&"audit", &run.path()]);
        assert!(error.contains("nothing is sealed yet") && error.contains("open for writing"), "{error}");
        // The database cannot be read while it is being written, but the same script makes the same run.
        let twin = tempfile::tempdir().unwrap();
        record(twin.path(), 12, |_, _| {});
        let events = &events(twin.path())[..60];
        let journal = log.journal();
        let mut segments = Segments::open(run.path().join("parquet")).unwrap();
        segments.seal(events, |id| Ok(journal.payload(id)?)).unwrap();
        let json = json(0, &[&"audit", &run.path(), &"--json"]);
        assert_eq!((json["source"]["live"].as_bool(), json["source"]["from"].as_str()), (Some(true), Some("parquet")));
        assert_eq!(json["source"]["through"], events.len() as u64 - 1);
        let text = answer(0, &[&"audit", &run.path()]);
        assert!(text.starts_with("read        sealed segments of a live run"), "{text}");
        assert!(text.contains(&format!(", through {} at ", Seq(events.len() as u64 - 1))), "{text}");
        let error = complaint(&[&"export", &run.path()]);
        assert!(error.contains("export the run after it has ended"), "{error}");
    });
}

#[test]
fn wrong_paths_say_what_to_name_instead() {
    let nothing = tempfile::tempdir().unwrap();
    for command in ["audit", "steps", "verify", "export"] {
        let error = complaint(&[&command, &nothing.path()]);
        assert!(error.contains("found something else") && error.contains("HEAD and log/"), "{error}");
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
