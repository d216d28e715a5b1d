//! A synthetic log in a database.

use std::path::Path;

use anabranch::RunLog;
use anabranch_core::{Event, EventKind, Group};
use anabranch_log::Durability;
use futures::executor::block_on;

use crate::synthetic::{Synthetic, payload};

/// Writes the events of a run to a database, as the run itself would have, with the payloads that `payload` makes.
pub fn database(run: &Path, groups: u64, payload: impl Fn(&Event) -> Option<Group>) {
    let log = RunLog::options().unsealed().open(run, Durability::Process).unwrap();
    let journal = log.journal();
    // The opening of the log is the first event.
    let mut all = Synthetic::new(groups).skip(1);
    loop {
        let events: Vec<Event> = all.by_ref().take(4096).collect();
        if events.is_empty() {
            break;
        }
        let payloads: Vec<Group> = events.iter().filter_map(&payload).collect();
        block_on(journal.append(events, &payloads.iter().collect::<Vec<_>>())).unwrap();
    }
    log.sync().unwrap();
}

/// The payload of a completed group.
pub fn completed(event: &Event) -> Option<Group> {
    if let EventKind::Completed { id, .. } = &event.kind { Some(payload(id)) } else { None }
}
