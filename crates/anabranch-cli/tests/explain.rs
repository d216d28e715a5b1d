//! `steps`, `lineage`, `history --tokens` and `diff` on recorded runs.

mod recorded;
mod runs;

use anabranch_core::{EventKind, Reason, Then};
use runs::{answer, assert_narrow, complaint, consumed, events, json, killed, killed_while_training, read};

#[test]
fn steps_add_up_to_the_audit() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    let text = answer(0, &[&"steps", &run.path()]);
    assert_narrow(&text);
    let audit = anabranch_replay::audit(&events(run.path()));
    let json = json(0, &[&"steps", &run.path(), &"--json"]);
    let steps = json["steps"].as_array().unwrap();
    assert_eq!((steps.len() as u64, text.lines().count()), (audit.learner.batches, steps.len() + 2));
    let sum = |field: &str| steps.iter().map(|step| step[field].as_u64().unwrap_or(0)).sum::<u64>();
    assert_eq!((sum("groups"), sum("tokens")), (audit.groups.consumed, audit.tokens.consumed));
    assert_eq!((sum("wait_ns"), sum("training_ns")), (audit.learner.wait.total_ns, audit.learner.training.total_ns));
    assert!(audit.learner.wait.total_ns > 0, "the learner waited");
    let gaps = steps.iter().map(|step| step["gap_mean"].as_f64().unwrap() * step["groups"].as_f64().unwrap());
    assert!((gaps.sum::<f64>() - audit.gap.consumed.sum() as f64).abs() < 1e-9);
    assert_eq!(steps.iter().filter_map(|step| step["gap_max"].as_u64()).max(), audit.gap.consumed.max());
    // Version 0 was published before the first step.
    let pauses = audit.publications.pause;
    assert_eq!(sum("pause_ns"), pauses.total_ns - pauses.total_ns / pauses.count);
    assert_eq!(steps.last().unwrap()["published"], audit.publications.version.unwrap().0);
    assert_eq!(steps[2]["loss"], -3.0);
}

#[test]
fn a_batch_that_was_never_trained_on_has_no_loss() {
    let run = tempfile::tempdir().unwrap();
    killed_while_training(run.path());
    let json = json(0, &[&"steps", &run.path(), &"--json"]);
    let [.., trained, taken] = json["steps"].as_array().unwrap().as_slice() else { panic!("two steps") };
    assert!(trained["loss"].is_number() && trained["training_ns"] == 50_000, "{trained}");
    assert!(taken["loss"].is_null() && taken["training_ns"].is_null() && taken["published"].is_null(), "{taken}");
    let text = answer(0, &[&"steps", &run.path()]);
    let last = text.lines().last().unwrap();
    assert_eq!(last.split_whitespace().filter(|cell| *cell == "-").count(), 4, "{text}");
}

#[test]
fn a_lineage_shows_every_attempt_and_how_the_chain_ended() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    let events = events(run.path());
    let retried = events.iter().find_map(|event| match &event.kind {
        EventKind::Excluded { id, reason: Reason::Aborted, then: Then::Retry(next), .. } => {
            let again = events.iter().any(|e| matches!(&e.kind, EventKind::Completed { id, .. } if id == next));
            again.then(|| id.clone())
        }
        _ => None,
    });
    let id = retried.expect("an aborted group was retried, and the retry was completed");
    let prompt = id.prompt.to_string();
    let text = answer(0, &[&"lineage", &run.path(), &"--prompt", &prompt]);
    assert_narrow(&text);
    for shown in ["#0 ", "#1 ", "leased", "completed", "aborted, gap", "; retried as #1"] {
        assert!(text.contains(shown), "`{shown}` in\n{text}");
    }
    let answered = json(0, &[&"lineage", &run.path(), &"--prompt", &prompt, &"--json"]);
    let attempts = answered["attempts"].as_array().unwrap();
    let history = anabranch_replay::history(&events, &id).unwrap();
    assert_eq!(attempts.len(), history.lineage.len());
    for field in ["leased", "completed", "settled", "disposition", "reason", "then"] {
        assert_eq!(attempts[0][field], serde_json::to_value(&history).unwrap()[field], "{field}");
    }
    let last = &history.lineage.last().unwrap().1;
    let outcome = answered["outcome"].as_str().unwrap();
    assert!(outcome.contains(&last.to_string()) || outcome.contains("exhausted") || outcome.contains("queued"));

    let error = complaint(&[&"lineage", &run.path(), &"--prompt", &"elsewhere/0/0"]);
    assert!(error.contains("no prompt elsewhere/0/0; one of its groups is letters/0/"), "{error}");
    let error = complaint(&[&"lineage", &run.path(), &"--prompt", &"17"]);
    assert!(error.contains("such as sort4/0/17"), "{error}");
}

#[test]
fn a_chain_that_is_used_up_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let events = recorded::seal(folder.path(), 0, |_| {});
    let exhausted = events.iter().find_map(|event| match &event.kind {
        EventKind::Excluded { id, then: Then::Exhausted, .. } => Some(id.clone()),
        _ => None,
    });
    let prompt = exhausted.expect("attempts were used up").prompt.to_string();
    let text = answer(0, &[&"lineage", &folder.path(), &"--prompt", &prompt]);
    assert!(text.contains(&format!("{prompt}: 2 attempts; attempts exhausted; the last one was excluded: ")), "{text}");
    assert_narrow(&text);
}

#[test]
fn every_token_has_its_version_and_log_prob() {
    let run = tempfile::tempdir().unwrap();
    killed(run.path());
    let id = consumed(run.path()).to_string();
    let plain = answer(0, &[&"history", &run.path(), &id, &"--tokens"]);
    assert!(plain.contains("v0, age 0") && !plain.contains('\x1b'), "{plain}");
    let payload = read(run.path()).payload(&id.parse().unwrap()).unwrap();
    let json = json(0, &[&"history", &run.path(), &id, &"--tokens", &"--json"]);
    let samples = json["tokens"].as_array().unwrap();
    assert_eq!(samples.len(), payload.samples.len());
    for (told, sample) in samples.iter().zip(&payload.samples) {
        let response = told["response"].as_array().unwrap();
        let ids: Vec<u64> = response.iter().map(|token| token["id"].as_u64().unwrap()).collect();
        assert_eq!(ids, sample.response().iter().map(|id| u64::from(*id)).collect::<Vec<_>>());
        for (token, logprob) in response.iter().zip(&sample.logprobs) {
            assert!((token["logprob"].as_f64().unwrap() - f64::from(*logprob)).abs() < 1e-6);
            assert!(plain.contains(&format!("{} {logprob:.3}", token["id"])), "{token} in\n{plain}");
        }
    }
    let coloured = answer(0, &[&"history", &run.path(), &id, &"--tokens", &"--color", &"always"]);
    assert!(coloured.contains("\x1b[38;5;34m100 -0.100\x1b[0m"), "{coloured}");
    let mut stripped = coloured.replace("\x1b[0m", "");
    while let Some(at) = stripped.find("\x1b[") {
        let end = at + stripped[at..].find('m').unwrap();
        stripped.replace_range(at..=end, "");
    }
    assert_eq!(stripped, plain, "colours change nothing else");
}

#[test]
fn a_diff_shows_the_settings_that_differ_and_what_came_of_them() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let audits = [(one.path(), 0), (other.path(), 1)]
        .map(|(folder, limit)| anabranch_replay::audit(&recorded::seal(folder, limit, |_| {})));
    let text = answer(0, &[&"diff", &one.path(), &other.path()]);
    assert_narrow(&text.lines().skip(2).collect::<Vec<_>>().join("\n"));
    let json = json(0, &[&"diff", &one.path(), &other.path(), &"--json"]);
    let settings = json["settings"].as_array().unwrap();
    assert_eq!(settings.len(), 1, "{settings:?}");
    assert_eq!(settings[0]["name"], "fresh.max_staleness");
    assert_eq!((settings[0]["one"].as_u64(), settings[0]["other"].as_u64()), (Some(0), Some(1)));
    let outcome = |name: &str| {
        let outcomes = json["outcomes"].as_array().unwrap();
        let found = outcomes.iter().find(|outcome| outcome["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name}"));
        [found["one"].as_f64(), found["other"].as_f64()]
    };
    assert_eq!(outcome("groups consumed"), audits.each_ref().map(|audit| Some(audit.groups.consumed as f64)));
    assert_eq!(outcome("gap, mean"), audits.each_ref().map(|audit| audit.gap.consumed.mean()));
    let stale = |audit: &anabranch_replay::Audit| audit.groups.excluded.get("stale").copied().unwrap_or(0) as f64;
    let stale = audits.each_ref().map(|audit| Some(stale(audit)));
    assert_eq!(outcome("groups stale"), stale);
    assert!(stale[0] > stale[1], "a smaller limit excludes more: {stale:?}");
    let same = answer(0, &[&"diff", &one.path(), &one.path()]);
    assert!(same.contains("are the same") && !same.contains("fresh.max_staleness"), "{same}");
}
