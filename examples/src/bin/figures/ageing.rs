//! Draws a response that ages: begun under v3, finished under v4, trained on under v5.

use anabranch::sim::Reply;
use anabranch::{Granularity, Reason};
use anyhow::Result;

use crate::chart::{Chart, Lane, Paint, Sign};
use crate::pipeline::{Setup, ms, record};
use crate::recording::{End, Facts, Life};

/// The rows of the two groups that the figure follows; all others keep the learner busy.
const Y: u64 = 3;
const X: u64 = 5;
const LIMIT: u64 = 2;
/// When each prompt becomes available, in milliseconds.
const ARRIVALS: [u64; 7] = [20, 170, 320, 400, 470, 500, 620];

fn reply(row: u32, sample: u32) -> Reply {
    match (u64::from(row), sample) {
        (X, 0) => Reply::tokens(7, ms(33)),
        (X, _) => Reply::tokens(4, ms(17)).after(ms(130)),
        (Y, 0) => Reply::tokens(8, ms(38)),
        (Y, _) => Reply::tokens(3, ms(29)).after(ms(82)),
        (_, sample) => Reply::tokens(3 + sample, ms(10)),
    }
}

fn facts() -> Result<Facts> {
    let recording = record(Setup {
        rows: ARRIVALS.len() as u32,
        reply,
        arrival: |row| ms(ARRIVALS[row as usize]),
        spread: false,
        samples: 2,
        in_flight: 8,
        granularity: Granularity::Group,
        capacity: Some(8),
        limit: LIMIT,
        batch: 1,
        training: ms(100),
        installation: ms(10),
        interval: 1,
        steps: 6,
    })?;
    Ok(Facts::of(&recording))
}

/// The weights on the engines over time.
pub fn weights(facts: &Facts) -> Lane {
    let mut lane = Lane::new("on the engines");
    let ends = facts.publications.iter().skip(1).map(|publication| publication.pause_began).chain([u64::MAX]);
    for (publication, end) in facts.publications.iter().zip(ends) {
        lane.bar(publication.resumed, end, Paint::Version(publication.version), format!("v{}", publication.version));
        lane.bar(publication.pause_began, publication.resumed, Paint::Pause, "");
    }
    lane
}

/// How a group ended, for a mark beside it.
pub fn verdict(life: &Life, gap: Option<u64>) -> Option<(u64, Sign, String)> {
    let (at, end) = life.settled.as_ref()?;
    Some(match end {
        End::Consumed { step } => (*at, Sign::Consumed, format!("step {step}, gap {}", gap?)),
        End::Excluded(Reason::Stale { gap }) => (*at, Sign::Excluded, format!("stale, gap {gap}")),
        End::Excluded(Reason::Filtered { name }) => (*at, Sign::Excluded, format!("filtered: {name}")),
        End::Excluded(reason) => (*at, Sign::Excluded, reason.name().to_owned()),
    })
}

/// One lane per sample, then one for the group.
fn group(facts: &Facts, name: &str, row: u64) -> Vec<Lane> {
    let life = &facts.lives[&row];
    let mut lanes = Vec::new();
    for (sample, index) in life.samples.iter().zip(1..) {
        let mut lane = Lane::new(format!("{name}, sample {index}"));
        for segment in facts.segments(sample) {
            match segment.span.and_then(|span| Some((span, span.version.lowest()?))) {
                Some((span, version)) => {
                    let label = format!("{version}[{},{})", span.start, span.end);
                    lane.bar(segment.from, segment.to, Paint::Version(version.0), label);
                }
                None => lane.bar(segment.from, segment.to, Paint::Waiting, "no token yet"),
            }
        }
        lanes.push(lane);
    }
    let mut lane = Lane::new(format!("{name}'s gap"));
    let spans = life.samples.iter().flat_map(|sample| &sample.spans);
    let oldest = spans.filter_map(|span| span.version.lowest()).min().map_or(0, |version| version.0);
    let until = life.dequeued.unwrap_or(facts.makespan);
    let ends = facts.publications.iter().skip(1).map(|publication| publication.resumed).chain([facts.makespan]);
    for (publication, end) in
        facts.publications.iter().zip(ends).filter(|(publication, _)| publication.version >= oldest)
    {
        let (from, to) = (publication.resumed.max(life.leased), end.min(until));
        if from < to {
            lane.bar(from, to, Paint::Waiting, format!("{}", publication.version - oldest));
        }
    }
    let consumed = facts.steps.iter().flat_map(|step| &step.groups).find(|group| group.0 == row);
    if let Some((at, sign, label)) = verdict(life, consumed.map(|group| group.1)) {
        lane.mark(at, sign, label);
    }
    lanes.push(lane);
    lanes
}

/// The training steps over time.
pub fn learner(facts: &Facts, label: impl Fn(u64) -> String) -> Lane {
    let mut lane = Lane::new("learner");
    for step in &facts.steps {
        let groups: String = step.groups.iter().map(|&(row, ..)| label(row)).collect();
        let colon = if groups.is_empty() { "" } else { ": " };
        lane.bar(step.taken, step.ended, Paint::Training, format!("step {}{colon}{groups}", step.step));
    }
    lane
}

pub fn draw() -> Result<Chart> {
    let facts = facts()?;
    let mut lanes = vec![weights(&facts)];
    lanes.extend(group(&facts, "X", X));
    lanes.extend(group(&facts, "Y", Y));
    lanes.push(learner(&facts, |row| if row == X { "X".to_owned() } else { String::new() }));
    Ok(Chart {
        name: "ageing",
        title: "A response that ages through v3, v4 and v5".to_owned(),
        description: "Group X begins under v3 and finishes under v4: its gap is 1. While it waits, v5 is published: its gap is \
                      2 when it is taken out, and the limit of 2 lets it pass. One sample of group Y has a token of v2: its \
                      gap is 3, so Y is excluded."
            .to_owned(),
        from: 330,
        to: 912,
        lanes,
        legend: vec![
            (Paint::Version(2), "a version, and its tokens [start,end)"),
            (Paint::Waiting, "before a token; the group's gap"),
            (Paint::Pause, "publication"),
            (Paint::Training, "training step"),
        ],
        notes: vec![
            format!(
                "A group's gap counts from the oldest version in any span of any of its samples to the version now on the \
                 engines. It is judged when the group is taken out, here against a limit of {LIMIT}: X passes, Y does not."
            ),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(life: &Life) -> Vec<Vec<(u32, u32, u64)>> {
        let spans = |spans: &[anabranch::VersionSpan]| {
            spans.iter().map(|span| (span.start, span.end, span.version.lowest().unwrap().0)).collect()
        };
        life.samples.iter().map(|sample| spans(&sample.spans)).collect()
    }

    #[test]
    fn a_group_is_as_old_as_the_oldest_span_of_any_sample() {
        let facts = facts().unwrap();
        let (x, y) = (&facts.lives[&X], &facts.lives[&Y]);
        assert_eq!(
            spans(x),
            [vec![(0, 3, 3), (3, 7, 4)], vec![(0, 4, 4)]],
            "a change before the first token leaves no span"
        );
        assert_eq!(spans(y), [vec![(0, 1, 2), (1, 5, 3), (5, 8, 4)], vec![(0, 3, 3)]]);
        let installed =
            |at: u64| facts.publications.iter().rfind(|publication| publication.resumed <= at).unwrap().version;
        assert_eq!((installed(x.leased), installed(x.completed.unwrap()), installed(x.dequeued.unwrap())), (3, 4, 5));
        let step = facts.steps.last().unwrap();
        assert_eq!((step.step, &step.groups), (6, &vec![(X, 2, 2)]), "gap 2 passes a limit of 2");
        assert_eq!(y.settled.as_ref().unwrap().1, End::Excluded(Reason::Stale { gap: 3 }));
        assert!(y.completed < x.completed && y.dequeued == x.dequeued, "both leave at once, the older first");
    }
}
