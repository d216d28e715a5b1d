//! The log that the speed measurements use keeps the contract.

use anabranch_core::{Event, EventKind, Seq};
use anabranch_replay::{Violation, verify};
use anabranch_testing::synthetic::Synthetic;

#[test]
fn a_synthetic_log_is_sound() {
    let events: Vec<_> = Synthetic::new(1_000).collect();
    let report = verify(&events);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.balance.leased, 1_000);
    assert!(report.balance.consumed > 800 && report.balance.all_excluded() > 50, "{report}");
    let audit = anabranch_replay::audit(&events);
    assert!(audit.gap.consumed.max() == Some(1) && audit.gap.consumed.mean() > Some(0.1), "{audit}");
}

/// The verifier keeps only the name of a group that was settled long before, and that is enough.
#[test]
fn a_group_settled_long_before_is_not_taken_for_a_new_one() {
    let mut log: Vec<Event> = Synthetic::new(20_000).collect();
    let again = |event: &Event| match &event.kind {
        EventKind::Leased { id, .. } | EventKind::Admitted { id } if id.prompt.row == 1 => Some(event.kind.clone()),
        _ => None,
    };
    let again: Vec<EventKind> = log.iter().filter_map(again).collect();
    let group = again[0].group().unwrap().clone();
    for kind in again {
        let last = log.last().unwrap();
        let (seq, at) = (Seq(last.seq.0 + 1), last.at + 1);
        log.push(Event { seq, at, enablers: Vec::new(), delay: 0, kind, ..last.clone() });
    }
    let left = EventKind::RunClosed { left: vec![group.clone()] };
    let last = log.last().unwrap().clone();
    log.push(Event { seq: Seq(last.seq.0 + 1), kind: left, ..last });
    let report = verify(&log);
    let named = report.violations.iter().filter_map(|violation| match violation {
        Violation::SettledLongBefore { group: named, event, .. } if *named == group => Some(*event),
        _ => None,
    });
    assert_eq!(named.collect::<Vec<_>>(), ["leased", "admitted", "left"], "{report}");
}
