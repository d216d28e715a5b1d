//! What the fuzz targets call: whatever the events say, nothing that judges them panics.

use anabranch_core::Event;

use crate::{Auditor, Recompute, Schedule, Verifier};

/// Gives `events` to everything that folds a log in this crate.
pub fn judge(events: &[Event]) {
    let (mut verifier, mut auditor) = (Verifier::new(), Auditor::new());
    let (mut schedule, mut recompute) = (Schedule::new(), Recompute::new());
    for event in events {
        verifier.push(event);
        schedule.push(event);
        recompute.push(event);
        auditor.push(event);
    }
    drop((verifier.finish(), auditor.finish(), schedule.finish(), recompute.finish()));
}
