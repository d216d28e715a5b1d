//! If a question needs work that the log does not have, the answer is within a stated band of what happens.

use anabranch_replay::{Outcome, Settings};
use anabranch_testing::pipeline::{Script, record, settings};

/// Bands around what really happens, where half of the groups rest on drawn durations.
const GROUPS: f64 = 0.10;
const TOKENS: f64 = 0.12;
const GAP: f64 = 0.30;
const WALL: f64 = 0.15;
/// Of the wall time.
const WAIT: f64 = 0.08;
/// Mean over all seeds: the answers lean to no side.
const MEAN: f64 = 0.01;

const SEEDS: u64 = 200;

/// How far the answer is off: consumed groups, wasted groups and wasted tokens, each as a part of what happens, mean
/// gap in versions, wall time and learner wait as parts of the wall time.
fn errors(answer: &Outcome, real: &Outcome) -> [f64; 6] {
    let part = |answer: u64, real: u64| answer as f64 / real as f64 - 1.0;
    [
        part(answer.consumed.groups, real.consumed.groups),
        part(answer.wasted_total().groups, real.wasted_total().groups),
        part(answer.wasted_total().tokens, real.wasted_total().tokens),
        answer.gap.mean().unwrap() - real.gap.mean().unwrap(),
        part(answer.wall_ns, real.wall_ns),
        (answer.learner_wait.total_ns as f64 - real.learner_wait.total_ns as f64) / real.wall_ns as f64,
    ]
}

/// The log is of a run without a limit and without retries. The question: a limit of 2, and up to three attempts.
#[test]
fn answers_lie_within_the_band_for_200_seeds() {
    let recorded = Settings { in_flight: 8, capacity: Some(16), batch: 4, ..settings() };
    let asked = Settings { max_staleness: Some(2), max_attempts: Some(3), ..recorded.clone() };
    let mut sums = [0.0; 6];
    let mut modelled = 0.0;
    for seed in 0..SEEDS {
        let script = Script {
            rows: 250,
            pace: 100_000,
            tokens: 12,
            training: 1_500_000,
            steady: false,
            install: 40_000,
            aborts: 60,
            filter: 15,
            seed,
            delays: anabranch_testing::pipeline::Delays::default(),
        };
        let answer = record(&script.events(&recorded)).outcome(&asked, seed).unwrap();
        let real = record(&script.events(&asked));
        let real = real.outcome(real.settings(), 0).unwrap();
        assert_eq!(real.modelled.groups.part, 0, "what the log has is not drawn");
        let errors = errors(&answer, &real);
        for (error, band) in errors.into_iter().zip([GROUPS, GROUPS, TOKENS, GAP, WALL, WAIT]) {
            assert!(error.abs() <= band, "seed {seed}: {errors:?}, of {real:?}");
        }
        sums.iter_mut().zip(errors).for_each(|(sum, error)| *sum += error);
        modelled += answer.modelled.groups.ratio() / SEEDS as f64;
    }
    let means = sums.map(|sum| sum / SEEDS as f64);
    assert!(means.iter().all(|mean| mean.abs() <= MEAN), "{means:?}");
    assert!((0.3..0.7).contains(&modelled), "{modelled} of the groups are modelled");
}
