//! Live runs: `tail`, reading while the run is being written, and that no command changes a byte.

mod runs;

use std::path::Path;

use anabranch::RunLog;
use anabranch_core::Seq;
use anabranch_parquet::Segments;
use runs::{anabranch, answer, assert_narrow, complaint, consumed, events, files, json, killed, record, spawn, text};

/// Seals events up to `until` of the live run in `run`. The database cannot be read while it is being written, but the
/// same script makes the same run.
fn seal(run: &Path, log: &RunLog, turns: usize, until: usize) -> u64 {
    let twin = tempfile::tempdir().unwrap();
    record(twin.path(), turns, |_, _| {});
    let events = events(twin.path());
    let events = &events[..until.min(events.len())];
    let journal = log.journal();
    let mut segments = Segments::open(run.join("parquet")).unwrap();
    let sealed = segments.seal_all(events.iter().cloned().map(Ok::<_, std::io::Error>), |id| Ok(journal.payload(id)?));
    sealed.unwrap();
    events.last().unwrap().seq.0
}

#[test]
fn tail_shows_the_present_state_of_a_live_run_and_of_one_that_ended() {
    let run = tempfile::tempdir().unwrap();
    let path = run.path();
    let all = |options: &[&'static str]| {
        let mut arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"tail", &path];
        arguments.extend(options.iter().map(|option| option as &dyn AsRef<std::ffi::OsStr>));
        answer(0, &arguments)
    };
    record(run.path(), 12, |_, log| {
        let nothing = all(&["--once"]);
        assert_eq!(nothing, "read        nothing yet: the run is live, and nothing is sealed yet\n");
        let through = seal(run.path(), log, 12, 120);
        let text = all(&["--once"]);
        assert_narrow(&text);
        assert!(text.starts_with("read        sealed segments of a live run"), "{text}");
        assert!(text.contains(&format!(", through {} at ", Seq(through))), "{text}");
        assert!(text.contains("state       live"), "{text}");
        let steps = json(0, &[&"steps", &run.path(), &"--json"]);
        let steps = steps["steps"].as_array().unwrap();
        assert_eq!(text.lines().count(), steps.len() + 3, "{text}");
        let lines = all(&["--once", "--json"]);
        let told: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(&told, steps);
    });
    // The writer is gone: even without `--once` the command shows the run and exits.
    let text = all(&["--last", "2"]);
    let steps = json(0, &[&"steps", &run.path(), &"--json"])["steps"].as_array().unwrap().len();
    assert!(steps > 3 && text.lines().count() == 5, "{steps} steps\n{text}");
    assert!(text.ends_with("state       ended without being closed: the run can be resumed\n"), "{text}");
    let error = complaint(&[&"tail", &run.path().join("missing"), &"--once"]);
    assert!(error.contains("does not exist"), "{error}");
}

#[test]
fn tail_follows_until_the_run_ends() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let run = tempfile::tempdir().unwrap();
    let mut child = None;
    record(run.path(), 12, |mut script, log| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        let mut spawned = spawn(command.args(["tail", "--every", "1"]).arg(run.path()).stdout(Stdio::piped()));
        let mut lines = BufReader::new(spawned.stdout.take().unwrap()).lines();
        // The command has started, and waits.
        assert!(lines.next().unwrap().unwrap().contains("nothing is sealed yet"));
        seal(run.path(), log, 12, 120);
        assert!(lines.next().unwrap().unwrap().starts_with("read        sealed segments of a live run"));
        script.play(4);
        drop(script.run.finish());
        log.sync().unwrap();
        child = Some((spawned, lines));
    });
    let (mut child, lines) = child.unwrap();
    let lines: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success());
    assert_eq!(lines.last().unwrap(), "state       closed: the pipeline ended");
    let steps = json(0, &[&"steps", &run.path(), &"--json"])["steps"].as_array().unwrap().len();
    let told: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
    let expected: Vec<String> = (1..=steps).map(|step| step.to_string()).collect();
    assert_eq!(told[1..told.len() - 1], expected, "each step once: {lines:#?}");
}

#[test]
fn beside_a_writer_every_command_reads_what_is_sealed_and_says_how_far() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 12, |_, log| {
        let through = seal(run.path(), log, 12, 120);
        let group = consumed_sealed(run.path()).to_string();
        let prompt = group.split('#').next().unwrap().to_owned();
        let before = files(run.path());
        let path = run.path();
        let commands: [Vec<&dyn AsRef<std::ffi::OsStr>>; 6] = [
            vec![&"audit", &path],
            vec![&"steps", &path],
            vec![&"verify", &path],
            vec![&"history", &path, &group, &"--tokens"],
            vec![&"lineage", &path, &"--prompt", &prompt],
            vec![&"diff", &path, &path],
        ];
        for command in commands {
            let text = answer(0, &command);
            let said = format!("sealed segments of a live run in {}", path.join("parquet").display());
            assert!(text.contains(&said) && text.contains(&format!(", through {} at ", Seq(through))), "{text}");
        }
        assert!(files(run.path()) == before, "a reader changed the run");
    });
}

fn consumed_sealed(run: &Path) -> anabranch_core::GroupId {
    let reader = anabranch_parquet::SegmentReader::open(run.join("parquet")).unwrap();
    let first = |event: anabranch_core::Event| match event.kind {
        anabranch_core::EventKind::BatchTaken { groups, .. } => Some(groups[0].id.clone()),
        _ => None,
    };
    reader.events().map(Result::unwrap).find_map(first).unwrap()
}

#[test]
fn no_command_changes_a_byte() {
    let (run, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    killed(run.path());
    answer(0, &[&"export", &run.path()]);
    let group = consumed(run.path()).to_string();
    let prompt = group.split('#').next().unwrap().to_owned();
    let trace = elsewhere.path().join("trace.json");
    let before = files(run.path());
    let folder = run.path().join("parquet");
    for path in [run.path(), folder.as_path()] {
        let commands: [Vec<&dyn AsRef<std::ffi::OsStr>>; 9] = [
            vec![&"audit", &path],
            vec![&"steps", &path],
            vec![&"verify", &path],
            vec![&"verify", &path, &"--events-only"],
            vec![&"history", &path, &group, &"--tokens"],
            vec![&"lineage", &path, &"--prompt", &prompt],
            vec![&"timeline", &path, &"-o", &trace],
            vec![&"diff", &path, &path],
            vec![&"tail", &path, &"--once"],
        ];
        for command in commands {
            assert!(!answer(0, &command).is_empty());
            let name = command[0].as_ref().to_string_lossy();
            assert!(files(run.path()) == before, "`{name}` changed {}", path.display());
        }
        // A hand-made log has no `.generate`, so the command has no answer; it reads the log anyway.
        let output = anabranch(&[&"what-if", &path, &"--capacity", &"3"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(files(run.path()) == before, "`what-if` changed {}: {}", path.display(), text(&output.stderr));
    }
}

#[test]
fn completions_are_scripts_for_the_shells() {
    for (shell, part) in [("bash", "_anabranch()"), ("zsh", "#compdef anabranch"), ("fish", "complete -c anabranch")] {
        let script = answer(0, &[&"completions", &shell]);
        assert!(script.contains(part) && script.contains("what-if") && script.contains("max-staleness"), "{script}");
    }
    let output = anabranch(&[&"completions", &"tcsh"]);
    assert!(text(&output.stderr).contains("bash"), "{}", text(&output.stderr));
}

#[test]
fn every_help_page_has_examples() {
    let all = answer(0, &[&"--help"]);
    let commands = all.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 10 && commands.contains(&"what-if"), "{commands:?}");
    for command in commands.into_iter().filter(|command| *command != "help") {
        let help = answer(0, &[&command, &"--help"]);
        assert!(help.contains(&format!("Examples:\n  anabranch {command} ")), "{help}");
    }
}
