//! Draws two schedules of one chain: with `.buffer`, generation continues while the learner trains.

use std::time::Duration;

use anabranch::Granularity;
use anabranch::sim::Reply;
use anyhow::Result;

use crate::chart::{Chart, Lane, Paint, Sign};
use crate::pipeline::{Setup, ms, record};
use crate::recording::Facts;

/// How long each group's generation takes, in milliseconds.
const GENERATION: [u64; 12] = [184, 112, 88, 216, 148, 124, 232, 96, 164, 136, 204, 116];
const BATCH: usize = 2;
const STEPS: usize = GENERATION.len() / BATCH;
const TRAINING: Duration = ms(190);
const INSTALLATION: Duration = ms(15);
/// The distance between a publication and its name, in milliseconds.
const BESIDE: u64 = 26;

fn setup(capacity: Option<usize>) -> Setup {
    Setup {
        rows: GENERATION.len() as u32,
        reply: |row, _| Reply::tokens(4, ms(GENERATION[row as usize] / 4)),
        arrival: |_| Duration::ZERO,
        spread: false,
        samples: 1,
        in_flight: 2,
        granularity: Granularity::Group,
        capacity,
        limit: 4,
        batch: BATCH,
        training: TRAINING,
        installation: INSTALLATION,
        interval: 1,
        steps: STEPS,
    }
}

/// The letter of a row.
pub fn letter(row: u64) -> char {
    char::from(b'A' + (row % 26) as u8)
}

fn lanes(facts: &Facts, heading: &str, buffered: bool) -> Vec<Lane> {
    let mut lanes = vec![Lane::heading(heading)];
    for (rows, slot) in facts.slots().iter().zip(1..) {
        let mut lane = Lane::new(format!("slot {slot}"));
        for row in rows {
            for sample in &facts.lives[row].samples {
                let segments = facts.segments(sample);
                let widest = segments.iter().map(|segment| segment.to - segment.from).max();
                for segment in segments {
                    let version = segment.span.and_then(|span| span.version.lowest());
                    let paint = version.map_or(Paint::Waiting, |version| Paint::Version(version.0));
                    let is_widest = Some(segment.to - segment.from) == widest;
                    let label = if is_widest { letter(*row).to_string() } else { String::new() };
                    lane.bar(segment.from, segment.to, paint, label);
                }
            }
        }
        lanes.push(lane);
    }
    if buffered {
        let mut lane = Lane::new("buffer holds");
        for pair in facts.buffered().windows(2).filter(|pair| pair[0].1 > 0) {
            lane.bar(pair[0].0, pair[1].0, Paint::Waiting, pair[0].1.to_string());
        }
        lanes.push(lane);
    }
    let mut lane = Lane::new("learner");
    for step in &facts.steps {
        let groups: String = step.groups.iter().map(|&(row, ..)| letter(row)).collect();
        lane.bar(step.taken, step.ended, Paint::Training, format!("{}: {groups}", step.step));
    }
    lanes.push(lane);
    let mut lane = Lane::new("publication");
    for publication in &facts.publications {
        lane.bar(publication.pause_began, publication.resumed, Paint::Pause, "");
        lane.mark(publication.resumed + BESIDE, Sign::Note, format!("v{}", publication.version));
    }
    lanes.push(lane);
    lanes
}

pub fn draw() -> Result<Chart> {
    let synchronous = Facts::of(&record(setup(None))?);
    let overlapping = Facts::of(&record(setup(Some(BATCH)))?);
    let mut all = lanes(&synchronous, "Without .buffer: generation and training take turns", false);
    all.extend(lanes(&overlapping, "With .buffer: generation runs ahead while the learner trains", true));
    let gaps = |facts: &Facts| facts.steps.iter().flat_map(|step| &step.groups).map(|&(_, gap, _)| gap).max();
    let note = |name: &str, facts: &Facts| {
        format!("{name}: {STEPS} steps in {} ms, largest version gap {}.", facts.makespan, gaps(facts).unwrap_or(0))
    };
    Ok(Chart {
        name: "schedules",
        title: "Two schedules of one chain".to_owned(),
        description:
            "Twelve groups in two slots and six training steps, without and with a buffer. Without the buffer the slots \
                      are idle while the learner trains. With the buffer they stay busy, and the run takes less time."
                .to_owned(),
        from: 0,
        to: synchronous.makespan + 2 * BESIDE,
        lanes: all,
        legend: vec![
            (Paint::Version(0), "generation, by version"),
            (Paint::Training, "training step: its groups"),
            (Paint::Waiting, "groups in the buffer"),
            (Paint::Pause, "publication"),
        ],
        notes: vec![note("Without .buffer", &synchronous), note("With .buffer", &overlapping)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_synchronous_makespan_is_the_sum_and_the_overlapping_one_is_below_it() {
        let synchronous = Facts::of(&record(setup(None)).unwrap());
        let slowest: u64 = GENERATION.chunks(BATCH).map(|batch| batch.iter().max().unwrap()).sum();
        let training = TRAINING.as_millis() as u64 * STEPS as u64;
        let publications = INSTALLATION.as_millis() as u64 * (STEPS as u64 + 1);
        assert_eq!(synchronous.makespan, slowest + training + publications);
        assert!(synchronous.steps.iter().flat_map(|step| &step.groups).all(|&(_, gap, lag)| (gap, lag) == (0, 0)));

        let overlapping = Facts::of(&record(setup(Some(BATCH))).unwrap());
        let least = GENERATION[..BATCH].iter().max().unwrap() + training + publications;
        assert!((least..synchronous.makespan).contains(&overlapping.makespan), "{}", overlapping.makespan);
        assert_eq!(overlapping.slots().len(), 2, "never more groups at once than slots");
    }
}
