//! Draws the entry and exit checks: A starts first, B and C complete before A, and A is found stale when it is taken out.

use anabranch::Granularity;
use anabranch::sim::{End as Script, Reply};
use anyhow::Result;

use crate::ageing::{learner, verdict, weights};
use crate::chart::{Chart, Lane, Paint};
use crate::pipeline::{Setup, ms, record};
use crate::recording::Facts;

/// The groups that the figure follows, in the order of their leases; all others keep the learner busy.
const NAMED: [(u64, &str); 6] = [(12, "A"), (16, "B"), (17, "C"), (18, "D"), (19, "E"), (20, "F")];
const LIMIT: u64 = 1;
/// When each prompt becomes available, in milliseconds.
const ARRIVALS: [u64; 21] =
    [20, 20, 20, 170, 170, 170, 320, 320, 320, 470, 470, 470, 484, 620, 620, 620, 632, 638, 644, 650, 781];

fn name(row: u64) -> Option<&'static str> {
    NAMED.iter().find(|named| named.0 == row).map(|named| named.1)
}

fn reply(row: u32, sample: u32) -> Reply {
    match name(u64::from(row)) {
        Some("A") => Reply::tokens(6 + sample, ms(35)),
        Some("B") => Reply::tokens(3 + sample, ms(16)),
        Some("C") => Reply::tokens(5 + sample, ms(15)),
        Some("D") => Reply::tokens(2 + sample, ms(13)).ending(Script::Abort("tool".to_owned())),
        Some("E") => Reply::tokens(3, ms(18)),
        Some("F") => Reply::tokens(2 + sample, ms(14)),
        _ => Reply::tokens(3 + sample, ms(u64::from(8 + row % 3))),
    }
}

fn facts() -> Result<Facts> {
    let recording = record(Setup {
        rows: ARRIVALS.len() as u32,
        reply,
        arrival: |row| ms(ARRIVALS[row as usize]),
        spread: true,
        samples: 2,
        in_flight: 16,
        granularity: Granularity::Group,
        capacity: Some(8),
        limit: LIMIT,
        batch: 3,
        training: ms(100),
        installation: ms(10),
        interval: 1,
        steps: 6,
    })?;
    Ok(Facts::of(&recording))
}

pub fn draw() -> Result<Chart> {
    let facts = facts()?;
    let mut lanes = vec![weights(&facts)];
    for (row, name) in NAMED {
        let life = &facts.lives[&row];
        let mut lane = Lane::new(format!("group {name}"));
        // A group lasts as long as its longest sample.
        if let Some(sample) = life.samples.iter().max_by_key(|sample| sample.ended) {
            for segment in facts.segments(sample) {
                let version = segment.span.and_then(|span| span.version.lowest());
                let (paint, label) = match version {
                    Some(version) => (Paint::Version(version.0), version.to_string()),
                    None => (Paint::Waiting, String::new()),
                };
                lane.bar(segment.from, segment.to, paint, label);
            }
        }
        let consumed = facts.steps.iter().flat_map(|step| &step.groups).find(|group| group.0 == row);
        if let Some((at, sign, label)) = verdict(life, consumed.map(|group| group.1)) {
            life.admitted.into_iter().for_each(|admitted| lane.bar(admitted, at, Paint::Waiting, ""));
            lane.mark(at, sign, label);
        }
        lanes.push(lane);
    }
    lanes.push(learner(&facts, |row| name(row).map(str::to_owned).unwrap_or_default()));
    Ok(Chart {
        name: "checks",
        title: "Entry checks, buffer and exit check".to_owned(),
        description: "Groups A, B and C start in this order. They complete, and leave the buffer, in the order B, C, A. D is \
                      aborted and E is filtered when they arrive. After v5 is published, B and C of v4 pass a limit of 1. A \
                      began under v3 and is excluded, so the batch waits for F."
            .to_owned(),
        from: 470,
        to: 920,
        lanes,
        legend: vec![
            (Paint::Version(3), "a version, and its tokens"),
            (Paint::Waiting, "in the buffer, or held by the batch"),
            (Paint::Pause, "publication"),
            (Paint::Training, "training step"),
        ],
        notes: vec![
            format!(
                "First in, first out by completion: B, C, A. D and E are judged when they arrive and never enter the buffer. A \
                 is judged when it is taken out: v5 is installed, A's oldest version is v3, and the limit is {LIMIT}."
            ),
        ],
    })
}

#[cfg(test)]
mod tests {
    use anabranch::Reason;

    use super::*;
    use crate::recording::{End, Life};

    fn named(facts: &Facts, time: impl Fn(&Life) -> Option<u64>) -> String {
        let mut order: Vec<_> =
            NAMED.iter().filter_map(|&(row, name)| Some((time(&facts.lives[&row])?, name))).collect();
        order.sort_by_key(|&(at, _)| at);
        order.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn groups_leave_in_the_order_in_which_they_complete() {
        let facts = facts().unwrap();
        assert_eq!(named(&facts, |life| Some(life.leased)), "ABCDEF");
        assert_eq!(named(&facts, |life| life.admitted), "BCAF", "D and E never enter");
        assert_eq!(named(&facts, |life| life.completed), "DBECAF");
        let step = facts.steps.last().unwrap();
        let taken: String = step.groups.iter().filter_map(|&(row, ..)| name(row)).collect();
        assert_eq!((step.step, taken.as_str()), (6, "BCF"), "dequeue order, A excluded");
        assert_eq!(step.groups.iter().map(|group| group.1).collect::<Vec<_>>(), [1, 1, 0]);
    }

    #[test]
    fn every_check_excludes_by_its_reason() {
        let facts = facts().unwrap();
        let end = |row: u64| facts.lives[&row].settled.clone().map(|(_, end)| end);
        assert_eq!(end(12), Some(End::Excluded(Reason::Stale { gap: 2 })), "v5 is installed, A's oldest version is v3");
        assert_eq!(end(18), Some(End::Excluded(Reason::Aborted)));
        assert_eq!(end(19), Some(End::Excluded(Reason::Filtered { name: "spread".to_owned() })));
        for row in [16, 17, 20] {
            assert_eq!(end(row), Some(End::Consumed { step: 6 }));
        }
        let out = facts.lives[&12].dequeued.unwrap();
        let installed = facts.publications.iter().rfind(|publication| publication.resumed <= out).unwrap();
        assert_eq!(installed.version, 5);
        assert!(facts.steps[5].taken > out, "the batch waits for F");
    }
}
