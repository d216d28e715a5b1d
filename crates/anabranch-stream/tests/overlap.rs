//! How much of the shorter of generation and training the buffer hides behind the longer, on a scripted engine with
//! samples of uneven lengths, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use anabranch_core::Event;
use anabranch_replay::{audit, recompute, verify};
use anabranch_sim::{HashChain, Reply, Sim};
use anabranch_stream::{Capacity, Granularity, InFlight, RolloutExt, Samples};
use futures::{StreamExt, TryStreamExt};
use tokio::time::{Instant, sleep};

use common::{Laws, Recorded, dataset, ms};

mod common;

const STEPS: u32 = 200;
const BATCH: usize = 32;
const SAMPLES: u32 = 4;
const INSTALLATION: Duration = ms(5_000);

/// The script of sample `sample` of group `row`: 1 to 8 tokens, each taking 100 to 199 seconds. Times have millisecond
/// precision, so that two samples hardly ever end at the same moment: ties have no defined order.
fn length(row: u32, sample: u32) -> (u32, Duration) {
    let mut bits = (u64::from(row) << 8 | u64::from(sample)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^= bits >> 29;
    (1 + (bits >> 8) as u32 % 8, ms(100_000 + (bits >> 32) % 100_000))
}

fn time(row: u32, sample: u32) -> Duration {
    let (tokens, each) = length(row, sample);
    each * tokens
}

/// The total time for which a group keeps its slots.
fn slot_time(row: u32, granularity: Granularity) -> Duration {
    match granularity {
        Granularity::Sample => (0..SAMPLES).map(|sample| time(row, sample)).sum(),
        Granularity::Group => slowest(row),
    }
}

fn slowest(row: u32) -> Duration {
    (0..SAMPLES).map(|sample| time(row, sample)).max().unwrap()
}

fn rows() -> Vec<u32> {
    (0..BATCH as u32 * STEPS).collect()
}

/// Slot time divided by the slots: the time of generation if no slot is ever idle.
fn generation(granularity: Granularity) -> Duration {
    let slots = match granularity {
        Granularity::Sample => BATCH as u32 * SAMPLES,
        Granularity::Group => BATCH as u32,
    };
    rows().into_iter().map(|row| slot_time(row, granularity)).sum::<Duration>() / slots
}

/// A training step that takes `numerator / denominator` of a step's generation, in whole milliseconds.
fn training((numerator, denominator): (u32, u32), granularity: Granularity) -> Duration {
    ms((generation(granularity) * numerator / denominator / STEPS).as_millis() as u64)
}

/// A chain's makespan in virtual time and its log, with a buffer of so many groups or none.
async fn run(granularity: Granularity, training: Duration, capacity: Option<usize>) -> (Duration, Vec<Event>) {
    let recorded = Recorded::new();
    let run = &recorded.run;
    let engine = Sim::scripted(|call| {
        let (tokens, each) = length(call.request.tokens[0], call.request.key.sample);
        Reply::tokens(tokens, each)
    });
    let engine = engine.install_time(INSTALLATION);
    let learner = run.restore(HashChain::new(0)).unwrap();
    let began = Instant::now();
    let groups = run.prompts(dataset(BATCH as u32 * STEPS));
    let groups = groups.generate(&engine, InFlight::groups(BATCH), Samples(SAMPLES)).granularity(granularity);
    let groups = match capacity {
        Some(capacity) => groups.buffer(Capacity::groups(capacity)).boxed(),
        None => groups.boxed(),
    };
    let steps: Vec<_> = groups
        .batch(BATCH)
        // The scripted training time passes here, because paused time does not advance while the learner's thread runs.
        .then(|batch| async move {
            sleep(training).await;
            batch
        })
        .train(learner)
        .publish_every(1, &engine)
        .try_collect()
        .await
        .unwrap();
    let makespan = began.elapsed();
    assert_eq!(steps.len() as u32, STEPS);
    let events = recorded.events();
    Laws { batch: BATCH, limit: capacity.map_or(Some(0), |_| None), buffered: capacity.is_some() }.check(&events);
    (makespan, events)
}

/// Computes the makespan and the learner's waits from the rules, event by event: a free slot is usable while no
/// completed group waits for room, the learner takes a batch as soon as it is complete, and nothing happens while
/// weights are installed. `groups` are the times for which each group keeps each of its slots.
fn ideal(groups: &[Vec<Duration>], slots: usize, capacity: usize, training: Duration) -> (Duration, Duration) {
    let (mut free, mut next, mut waiting, mut buffered, mut held, mut steps) = (slots, 0, 0, 0, 0, 0);
    // Ends as they would be without the installations.
    let mut running: BinaryHeap<Reverse<(Duration, usize)>> = BinaryHeap::new();
    let mut missing: Vec<usize> = groups.iter().map(Vec::len).collect();
    let (mut now, mut installed, mut waited) = (INSTALLATION, INSTALLATION, Duration::ZERO);
    let (mut since, mut trained): (Duration, Option<Duration>) = (now, None);
    loop {
        loop {
            if waiting > 0 && buffered < capacity {
                (waiting, buffered) = (waiting - 1, buffered + 1);
            } else if trained.is_none() && held < BATCH && buffered > 0 {
                (buffered, held) = (buffered - 1, held + 1);
            } else if waiting == 0 && next < groups.len() && free >= groups[next].len() {
                free -= groups[next].len();
                running.extend(groups[next].iter().map(|&time| Reverse((now.saturating_sub(installed) + time, next))));
                next += 1;
            } else if held == BATCH {
                (held, waited, trained) = (0, waited + now.saturating_sub(since), Some(now + training));
            } else {
                break;
            }
        }
        let end = running.peek().map(|&Reverse((end, _))| end + installed);
        match (end, trained) {
            (Some(end), trained) if trained.is_none_or(|trained| end <= trained) => {
                let group = running.pop().map(|Reverse((_, group))| group).unwrap();
                (now, free, missing[group]) = (end, free + 1, missing[group] - 1);
                waiting += usize::from(missing[group] == 0);
            }
            (_, Some(at)) => {
                (now, since, trained) = (at + INSTALLATION, at + INSTALLATION, None);
                (installed, steps) = (installed + INSTALLATION, steps + 1);
                if steps == STEPS {
                    return (now, waited);
                }
            }
            (_, None) => panic!("the rules stand still"),
        }
    }
}

const RATES: [(u32, u32); 3] = [(1, 2), (1, 1), (2, 1)];

#[tokio::test(start_paused = true)]
async fn a_buffer_of_four_batches_hides_the_shorter_of_generation_and_training() {
    for granularity in [Granularity::Sample, Granularity::Group] {
        for rate in [(1, 2), (2, 1)] {
            let training = training(rate, granularity);
            let (makespan, events) = run(granularity, training, Some(4 * BATCH)).await;
            let longer = generation(granularity).max(training * STEPS);
            let over = makespan.as_secs_f64() / longer.as_secs_f64();
            assert!((1.0..=1.03).contains(&over), "{granularity:?} {rate:?}: {makespan:?} is {over:.4} of {longer:?}");
            let report = verify(&events);
            assert!(report.is_clean(), "{report}");
            recompute(&events).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_schedule_is_to_the_millisecond_the_one_that_the_rules_give() {
    for granularity in [Granularity::Sample, Granularity::Group] {
        let times = |row: u32| match granularity {
            Granularity::Sample => (0..SAMPLES).map(|sample| time(row, sample)).collect(),
            Granularity::Group => vec![slowest(row)],
        };
        let groups: Vec<Vec<Duration>> = rows().into_iter().map(times).collect();
        for rate in RATES {
            let training = training(rate, granularity);
            for capacity in [1, BATCH / 4, 4 * BATCH] {
                let (makespan, events) = run(granularity, training, Some(capacity)).await;
                let waited = Duration::from_nanos(audit(&events).learner.wait.total_ns);
                let expected = ideal(&groups, BATCH * groups[0].len(), capacity, training);
                assert_eq!((makespan, waited), expected, "{granularity:?} {rate:?} capacity {capacity}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_buffer_the_makespan_is_the_sum() {
    let rows = rows();
    let generation: Duration = rows.chunks(BATCH).map(|rows| rows.iter().map(|&row| slowest(row)).max().unwrap()).sum();
    for granularity in [Granularity::Sample, Granularity::Group] {
        for rate in RATES {
            let training = training(rate, granularity);
            let (makespan, _) = run(granularity, training, None).await;
            assert_eq!(
                makespan,
                generation + training * STEPS + INSTALLATION * (STEPS + 1),
                "{granularity:?} {rate:?}"
            );
        }
    }
}
