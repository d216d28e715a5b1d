//! Draws training steps and published versions, which are two clocks: with an update interval of 3, every third step
//! publishes.

use std::time::Duration;

use anabranch::Granularity;
use anabranch::sim::Reply;
use anyhow::Result;

use crate::ageing::weights;
use crate::chart::{Chart, Lane, Paint, Sign};
use crate::pipeline::{Setup, ms, record};
use crate::recording::Facts;

const INTERVAL: u64 = 3;
const STEPS: u64 = 15;
/// The figure begins with this step.
const FIRST: u64 = 8;

fn facts() -> Result<Facts> {
    let recording = record(Setup {
        rows: STEPS as u32 + 4,
        reply: |_, _| Reply::tokens(4, ms(14)),
        arrival: |_| Duration::ZERO,
        spread: false,
        samples: 1,
        in_flight: 1,
        granularity: Granularity::Group,
        capacity: Some(1),
        limit: 4,
        batch: 1,
        training: ms(90),
        installation: ms(10),
        interval: INTERVAL,
        steps: STEPS as usize,
    })?;
    Ok(Facts::of(&recording))
}

pub fn draw() -> Result<Chart> {
    let facts = facts()?;
    let shown = || facts.steps.iter().filter(|step| step.step >= FIRST);
    let mut generation = Lane::new("generation");
    for (&row, life) in &facts.lives {
        for sample in &life.samples {
            for segment in facts.segments(sample) {
                let version = segment.span.and_then(|span| span.version.lowest());
                let paint = version.map_or(Paint::Waiting, |version| Paint::Version(version.0));
                // A batch is one group here, and groups leave the buffer in the order of their rows.
                generation.bar(segment.from, segment.to, paint, format!("g{}", row + 1));
            }
        }
    }
    let [mut learner, mut gap, mut lag] = ["training step", "version gap", "step lag"].map(Lane::new);
    for step in shown() {
        learner.bar(step.taken, step.ended, Paint::Training, format!("{}", step.step));
        for &(_, version_gap, step_lag) in &step.groups {
            let middle = u64::midpoint(step.taken, step.ended);
            gap.mark(middle, Sign::Note, version_gap.to_string());
            lag.mark(middle, Sign::Note, step_lag.to_string());
        }
    }
    Ok(Chart {
        name: "versions",
        title: format!("Training steps and published versions, update interval {INTERVAL}"),
        description: "Steps 9, 12 and 15 publish v3, v4 and v5; the steps in between publish nothing. The version gap of a \
                      group grows with each publication, its step lag with each training step."
            .to_owned(),
        from: shown().next().map_or(0, |step| step.taken - 10),
        to: facts.makespan + 35,
        lanes: vec![generation, weights(&facts), learner, gap, lag],
        legend: vec![
            (Paint::Version(0), "a version, and what it writes"),
            (Paint::Training, "training step; step n trains on group gn"),
            (Paint::Pause, "publication"),
        ],
        notes: vec![
            "Gap and lag are those of the moment when the step takes its group. At step 12, 11 steps are complete and v3 is \
             installed. v3 (the weights of step 9) generated all of g12, whose gap is 0 and step lag 2."
                .to_owned(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_third_step_publishes() {
        let facts = facts().unwrap();
        let published: Vec<(u64, u64)> = (facts.publications.iter())
            .map(|publication| {
                let steps = facts.steps.iter().filter(|step| step.ended <= publication.pause_began).count();
                (publication.version, steps as u64)
            })
            .collect();
        assert_eq!(published, [(0, 0), (1, 3), (2, 6), (3, 9), (4, 12), (5, 15)]);
    }

    #[test]
    fn gap_and_step_lag_are_those_of_the_worked_example() {
        let facts = facts().unwrap();
        let judged = |step: u64| facts.steps[step as usize - 1].groups[0];
        assert_eq!(judged(12), (11, 0, 2), "11 steps complete, made wholly by v3");
        assert_eq!(judged(13), (12, 1, 3), "12 steps complete, v4 published");
        // Two groups are ready ahead of the learner: what a step trains on was begun two steps before.
        for step in 3..=STEPS {
            let version = (step - 2 - 1) / INTERVAL;
            let expected = ((step - 1) / INTERVAL - version, step - 1 - version * INTERVAL);
            let (row, gap, lag) = judged(step);
            assert_eq!((row, (gap, lag)), (step - 1, expected), "step {step}");
        }
    }
}
