//! How much of the shorter of generation and training the buffer hides behind the longer, on a scripted engine with
//! samples of uneven lengths, in virtual time.

use std::time::Duration;

use anabranch_core::{Event, EventKind};
use anabranch_engine::{HashChain, Reply, Sim};
use anabranch_replay::{audit, verify};
use anabranch_stream::{Capacity, Granularity, InFlight, RolloutExt, Samples};
use futures::{StreamExt, TryStreamExt};
use tokio::time::{Instant, sleep};

use common::{Laws, Recorded, dataset, ms};

mod common;

const STEPS: u32 = 200;
const BATCH: usize = 32;
const SAMPLES: u32 = 4;
const INSTALLATION: Duration = ms(5);

/// What sample `sample` of group `row` takes: 1 to 16 tokens, a token 100 to 199 ms.
fn length(row: u32, sample: u32) -> (u32, Duration) {
    let mut bits = (u64::from(row) << 8 | u64::from(sample)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^= bits >> 29;
    (1 + (bits >> 8) as u32 % 16, ms(100 + (bits >> 32) % 100))
}

fn time(row: u32, sample: u32) -> Duration {
    let (tokens, each) = length(row, sample);
    each * tokens
}

/// What a group keeps its slots for, all of them together.
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

/// Slot time over slots: what generation takes where no slot is ever idle.
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

/// A chain's makespan in virtual time and its log, with a buffer of so many batches or none.
async fn run(granularity: Granularity, training: Duration, batches: Option<usize>) -> (Duration, Vec<Event>) {
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
    let groups = match batches {
        Some(batches) => groups.buffer(Capacity::groups(batches * BATCH)).boxed(),
        None => groups.boxed(),
    };
    let steps: Vec<_> = groups
        .batch(BATCH)
        // Scripted training time passes here: paused time stands still while the learner's thread runs.
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
    Laws { batch: BATCH, limit: batches.map_or(Some(0), |_| None), buffered: batches.is_some() }.check(&events);
    (makespan, events)
}

/// The most slots that are idle at once from the first lease to the last.
fn most_idle(events: &[Event], granularity: Granularity) -> usize {
    let mut slots = match granularity {
        Granularity::Sample => BATCH * SAMPLES as usize,
        Granularity::Group => BATCH,
    };
    // Ends before submissions of the same moment: a slot may be taken again at once.
    let mut changes: Vec<(u64, bool)> = Vec::new();
    for event in events {
        let EventKind::Completed { summary, .. } = &event.kind else { continue };
        let submitted = summary.samples.iter().map(|sample| sample.times.submitted.unwrap());
        let ended = summary.samples.iter().map(|sample| sample.times.ended.unwrap());
        match granularity {
            Granularity::Sample => {
                changes.extend(submitted.map(|at| (at, true)));
                changes.extend(ended.map(|at| (at, false)));
            }
            Granularity::Group => changes.extend([(submitted.min().unwrap(), true), (ended.max().unwrap(), false)]),
        }
    }
    changes.sort_unstable();
    let last = changes.iter().rposition(|&(_, taken)| taken).unwrap();
    let mut most = 0;
    for (index, &(at, taken)) in changes[..=last].iter().enumerate() {
        slots = if taken { slots - 1 } else { slots + 1 };
        if changes[index + 1..=last].first().is_some_and(|&(next, _)| next > at) {
            most = most.max(slots);
        }
    }
    most
}

const RATES: [(u32, u32); 3] = [(1, 2), (1, 1), (2, 1)];

#[tokio::test(start_paused = true)]
async fn a_buffer_of_four_batches_hides_the_shorter_of_generation_and_training() {
    for granularity in [Granularity::Sample, Granularity::Group] {
        for rate in [(1, 2), (2, 1)] {
            let training = training(rate, granularity);
            let (makespan, events) = run(granularity, training, Some(4)).await;
            let longer = generation(granularity).max(training * STEPS);
            let over = makespan.as_secs_f64() / longer.as_secs_f64();
            assert!((1.0..=1.03).contains(&over), "{granularity:?} {rate:?}: {makespan:?} is {over:.4} of {longer:?}");
            let report = verify(&events);
            assert!(report.is_clean(), "{report}");
            let wait = audit(&events).learner.wait;
            if rate == (2, 1) {
                assert_eq!(wait.total_ns, wait.max_ns, "training is slow: the learner waits for its first batch alone");
            } else {
                let group = if granularity == Granularity::Sample { SAMPLES as usize } else { 1 };
                let idle = most_idle(&events, granularity);
                assert!(idle < group, "generation is slow: {idle} slots were idle, a group needs {group}");
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
