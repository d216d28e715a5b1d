//! The audit counts what happened, and a group's history has every record of the group.

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_core::{Event, EventKind, GroupId, MemoryJournal, Reason, Seq, Then};
use anabranch_replay::{Audit, Disposition, audit, history};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};

fn log() -> Vec<Event> {
    let journal = Arc::new(MemoryJournal::new());
    let clock = HandClock::default();
    let run = Run::builder("scripted").journal(journal.clone()).clock(clock.session_clock()).open().unwrap();
    let mut script = Script::new(run, clock);
    script.publish();
    script.play(40);
    journal.events()
}

fn count(log: &[Event], is: impl Fn(&EventKind) -> bool) -> u64 {
    log.iter().filter(|event| is(&event.kind)).count() as u64
}

#[test]
fn what_is_counted_is_what_the_log_says() {
    let log = log();
    let audit = audit(&log);
    let groups = &audit.groups;
    assert_eq!(groups.leased, count(&log, |kind| matches!(kind, EventKind::Leased { .. })));
    assert_eq!(groups.consumed, 4 * audit.learner.batches);
    let stale = count(&log, |kind| matches!(kind, EventKind::Excluded { reason: Reason::Stale { .. }, .. }));
    assert_eq!(groups.excluded["stale"], stale);
    assert_eq!(audit.filters, BTreeMap::from([("spread".to_owned(), groups.excluded["filtered"])]));
    let retried = count(&log, |kind| matches!(kind, EventKind::Leased { id, .. } if id.attempt > 0));
    assert_eq!(
        audit.attempts.iter().filter(|(attempt, _)| **attempt > 0).map(|(_, leased)| leased).sum::<u64>(),
        retried
    );
    let (mut by_group, mut consumed) = (BTreeMap::new(), 0);
    for event in &log {
        match &event.kind {
            EventKind::Completed { id, summary, .. } => {
                by_group.insert(id, summary.generated());
            }
            EventKind::BatchTaken { groups, .. } => {
                consumed += groups.iter().map(|group| by_group[&group.id]).sum::<u64>();
            }
            _ => {}
        }
    }
    assert_eq!(audit.tokens.generated, by_group.values().sum::<u64>());
    assert_eq!(audit.tokens.consumed, consumed);
    assert!(audit.tokens.wasted["stale"] > 0 && audit.tokens.wasted["aborted"] > 0);
}

#[test]
fn gaps_are_three_series_that_add_up() {
    let log = log();
    let audit = audit(&log);
    let recorded: Vec<u64> = log
        .iter()
        .filter_map(|event| if let EventKind::BatchTaken { groups, .. } = &event.kind { Some(groups) } else { None })
        .flatten()
        .filter_map(|group| group.gap)
        .collect();
    assert_eq!(audit.gap.consumed.sum(), recorded.iter().sum::<u64>());
    assert_eq!(audit.gap.consumed.count(), audit.groups.consumed);
    assert_eq!(audit.gap.consumed.max(), Some(anabranch_testing::scripted::LIMIT));
    assert_eq!(audit.gap.excluded.max() > audit.gap.consumed.max(), audit.groups.excluded["stale"] > 0);
    assert_eq!(audit.gap.buffered.count(), audit.groups.buffered);
    assert!(audit.gap.consumed_generation.sum() < audit.gap.consumed.sum(), "some of the gap arose in the queue");
}

#[test]
fn times_are_those_of_the_clock() {
    let log = log();
    let audit = audit(&log);
    assert_eq!(audit.learner.training.total_ns, 50_000 * audit.learner.steps, "the script trains 50 us a step");
    assert_eq!(audit.publications.pause.total_ns, 3_500 * audit.publications.published, "and pauses 3.5 us");
    assert_eq!(audit.open_ns, log.last().unwrap().at);
    // Each wait runs from the end of the publication before to the batch.
    let mut free = 0;
    let mut waited = 0;
    for event in &log {
        match event.kind {
            EventKind::GenerationResumed { .. } => free = event.at,
            EventKind::BatchTaken { .. } => waited += event.at - free,
            _ => {}
        }
    }
    assert_eq!(audit.learner.wait.total_ns, waited);
    assert_eq!(audit.learner.wait.count, audit.learner.batches);
}

#[test]
fn the_table_says_it_all() {
    let text = audit(&log()).to_string();
    for line in [
        "run         anabranch 0.1.0 | 1 session | ",
        "groups      ",
        "excluded    aborted ",
        "filtered ",
        "(spread ",
        "retries     attempt 2 ",
        "gap         versions between",
        "  consumed  mean ",
        "step lag    consumed: mean ",
        "  waited    ",
        "  paused    ",
        "reward      0.",
    ] {
        assert!(text.contains(line), "no `{line}` in\n{text}");
    }
}

#[test]
fn an_empty_audit_prints() {
    let text = Audit::default().to_string();
    assert!(text.contains("0 leased"), "{text}");
}

#[test]
fn a_consumed_group_tells_its_life() {
    let log = log();
    let (taken, group, batch) = log
        .iter()
        .find_map(|event| match &event.kind {
            EventKind::BatchTaken { groups, .. } => {
                Some((event.seq, groups.iter().find(|group| group.gap == Some(1))?.clone(), groups.len() as u64))
            }
            _ => None,
        })
        .unwrap();
    let history = history(&log, &group.id).unwrap();
    assert_eq!(history.settled.unwrap().seq, taken);
    assert!(matches!(history.disposition, Disposition::Consumed { of, .. } if of == batch));
    assert_eq!((history.gap_at_settlement, history.step_lag), (group.gap, group.step_lag));
    assert_eq!(history.dequeued_ns, group.dequeued);
    let (leased, completed) = (history.leased, history.completed.unwrap());
    let oldest = history.oldest.unwrap();
    assert_eq!(history.gap_at_completion, Some(completed.installed.unwrap().since(oldest)));
    assert!(leased.seq < completed.seq && completed.seq < history.admitted.unwrap().seq);
    let between = log[leased.seq.0 as usize..taken.0 as usize]
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Published { .. }))
        .count();
    assert_eq!(history.published.len(), between);
    let text = history.to_string();
    assert!(text.contains("consumed by step") && text.contains("gap 1") && text.contains("meanwhile   v"), "{text}");
}

#[test]
fn a_retried_group_names_its_attempts() {
    let log = log();
    let (id, next) = log
        .iter()
        .find_map(|event| match &event.kind {
            EventKind::Excluded { id, then: Then::Retry(next), .. } => Some((id.clone(), next.clone())),
            _ => None,
        })
        .unwrap();
    let history = history(&log, &id).unwrap();
    assert_eq!(history.lineage.iter().map(|(group, _)| group.clone()).take(2).collect::<Vec<_>>(), [id, next.clone()]);
    assert!(history.to_string().contains(&format!("retried as {next}")), "{history}");
    assert!(anabranch_replay::history(&log, &"letters/9/9#0".parse::<GroupId>().unwrap()).is_none());
}

#[test]
fn what_is_still_open_says_where_it_is() {
    let log = log();
    let settled: Vec<&GroupId> = log
        .iter()
        .flat_map(|event| match &event.kind {
            EventKind::Excluded { id, .. } => vec![id],
            EventKind::BatchTaken { groups, .. } => groups.iter().map(|group| &group.id).collect(),
            _ => Vec::new(),
        })
        .collect();
    let open = log.iter().rev().find_map(|event| event.kind.group().filter(|id| !settled.contains(id)));
    let history = history(&log, open.unwrap()).unwrap();
    assert!(matches!(history.disposition, Disposition::InFlight | Disposition::Waiting | Disposition::Buffered));
    assert_eq!((history.settled, history.gap_at_settlement), (None, None));
    assert!(history.leased.seq > Seq(0));
}

#[test]
fn all_of_it_is_json() {
    let log = log();
    let json = serde_json::to_value(audit(&log)).unwrap();
    assert_eq!(json["gap"]["consumed"]["histogram"]["1"].as_u64().unwrap(), audit(&log).gap.consumed.histogram[&1]);
    let id = log.iter().find_map(|event| event.kind.group()).unwrap();
    let json = serde_json::to_value(history(&log, id)).unwrap();
    assert!(json["disposition"].is_string(), "{json}");
}
