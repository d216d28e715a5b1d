//! A sound log in two sessions, and how to look for what is wrong with a copy of it.

#![allow(dead_code, unused_macros, reason = "each test file uses its own part")]

use std::sync::Arc;

use anabranch_core::{Event, EventKind, MemoryJournal, ResumeState, Seq, TakenGroup, resume};
use anabranch_metrics::Meter;
use anabranch_replay::{Violation, verify};
use anabranch_stream::Run;
use anabranch_testing::scripted::{HandClock, Script};

pub fn open(journal: &Arc<MemoryJournal>, past: ResumeState) -> Script {
    let clock = HandClock::default();
    Script::new(
        Run::builder("scripted")
            .journal(journal.clone())
            .resume(past, Meter::of(&journal.events()))
            .clock(clock.session_clock())
            .open()
            .unwrap(),
        clock,
    )
}

/// Two sessions: the first ends with groups in flight and buffered, and a batch taken but not trained.
pub fn log() -> Vec<Event> {
    let journal = Arc::new(MemoryJournal::new());
    let mut script = open(&journal, ResumeState::default());
    script.publish();
    script.play(31);
    while !script.take() {
        script.fill();
        script.complete(0);
    }
    script.fill();
    drop(script);
    let past = resume(journal.events()).unwrap();
    let (version, step, weights) = past.published.unwrap();
    let unmade = past.batches.iter().find(|batch| batch.stepped.is_none()).unwrap().step;
    let mut script = open(&journal, past);
    script.restep(unmade);
    script.reinstall(version, step, weights);
    script.play(26);
    drop(script.run.finish());
    journal.events()
}

pub fn violations(log: &[Event]) -> Vec<Violation> {
    verify(log).violations
}

/// Asserts that such a violation, among whatever follows from it, is reported at `seq` with its group named.
#[macro_export]
macro_rules! caught {
    ($log:expr, $pattern:pat $(if $guard:expr)?) => {{
        let found = $crate::sound::violations(&$log);
        assert!(
            found.iter().any(|violation| matches!(violation, $pattern $(if $guard)?)),
            "expected {}, found:\n{}",
            stringify!($pattern),
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        );
        found
    }};
}

pub fn position(log: &[Event], is: impl Fn(&EventKind) -> bool) -> usize {
    log.iter().position(|event| is(&event.kind)).expect("the scripted log has one")
}

pub fn positions(log: &[Event], is: impl Fn(&EventKind) -> bool) -> Vec<usize> {
    (0..log.len()).filter(|&index| is(&log[index].kind)).collect()
}

pub fn renumber(log: &mut [Event]) {
    log.iter_mut().zip(0..).for_each(|(event, seq)| event.seq = Seq(seq));
}

pub fn taken(log: &mut [Event], index: usize) -> &mut Vec<TakenGroup> {
    match &mut log[index].kind {
        EventKind::BatchTaken { groups, .. } => groups,
        other => panic!("{} is no batch", other.name()),
    }
}
