//! Random pipelines on random scripts: whatever the settings, the laws hold and the pipeline ends.

use anabranch_core::{Error, Event, EventKind, Step, WeightSync};
use anabranch_sim::{End, HashChain, Reply, Sim};
use anabranch_stream::{Capacity, Granularity, InFlight, MaxStaleness, Order, RolloutExt, Samples, Unused};
use futures::{Stream, StreamExt};
use proptest::prelude::*;
use tokio::time::{sleep, timeout};

use common::{Laws, Recorded, dataset, ms};

mod common;

#[derive(Clone, Debug)]
struct Setting {
    rows: u32,
    in_flight: usize,
    samples: u32,
    granularity: Granularity,
    capacity: Option<usize>,
    order: Order,
    batch: usize,
    limit: Option<u64>,
    publish_every: u64,
    mode: WeightSync,
    unused: Unused,
    training: u64,
    /// One request in so many is aborted.
    aborts: u64,
    /// One request in so many fails at first, after some of its tokens.
    faults: u64,
    /// The buffer's bound in bytes.
    bytes: Option<u64>,
    /// The consumer drops each pending `next()` after so many milliseconds, and asks again.
    patience: Option<u64>,
    /// Rewards take up to so many milliseconds.
    scoring: Option<u64>,
    /// Submissions are closed for so long, and open for so long, by turns.
    holds: Option<(u64, u64)>,
    seed: u64,
}

fn settings() -> impl Strategy<Value = Setting> {
    let mode = prop_oneof![
        Just(WeightSync::Retract),
        Just(WeightSync::InPlace),
        Just(WeightSync::Drain),
        Just(WeightSync::Abort)
    ];
    let unused = prop_oneof![Just(Unused::Drop), (1..4_u32).prop_map(|max_attempts| Unused::Retry { max_attempts })];
    let granularity = prop_oneof![Just(Granularity::Sample), Just(Granularity::Group)];
    let order = prop_oneof![Just(Order::Fifo), Just(Order::Freshest), Just(Order::Stalest)];
    (
        (1..40_u32, 1..6_usize, 1..4_u32, granularity),
        ((proptest::option::of(1..7_usize), order), 1..6_usize, proptest::option::of(0..4_u64)),
        (1..4_u64, mode, unused),
        (0..60_u64, 3..40_u64, any::<u64>()),
        (proptest::option::of(1..50_u64), proptest::option::of((1..40_u64, 1..90_u64))),
        (2..20_u64, proptest::option::of(1..900_u64), proptest::option::of(1..50_u64)),
    )
        .prop_map(
            |(
                (rows, in_flight, samples, granularity),
                ((capacity, order), batch, limit),
                publication,
                times,
                waits,
                more,
            )| {
                let ((publish_every, mode, unused), (training, aborts, seed)) = (publication, times);
                let (scoring, holds) = waits;
                let (faults, bytes, patience) = more;
                Setting {
                    rows,
                    in_flight,
                    samples,
                    granularity,
                    capacity,
                    order,
                    batch,
                    limit,
                    publish_every,
                    mode,
                    unused,
                    training,
                    aborts,
                    faults,
                    bytes,
                    patience,
                    scoring,
                    holds,
                    seed,
                }
            },
        )
}

fn engine(setting: &Setting) -> Sim {
    let (aborts, faults, seed) = (setting.aborts, setting.faults, setting.seed);
    let engine = Sim::scripted(move |call| {
        let key = call.request.key;
        let drawn = (key.lease ^ seed).wrapping_mul(u64::from(key.sample) + 0x9e37_79b9).rotate_left(23);
        let end = match (call.retry, drawn % aborts, drawn % faults) {
            (0, _, 0) => End::Transient("script".to_owned()),
            (_, 0, _) => End::Abort("script".to_owned()),
            _ => End::Stop,
        };
        Reply::tokens(1 + (drawn >> 8) as u32 % 9, ms((drawn >> 16) % 12)).ending(end)
    });
    engine.install_time(ms(seed % 9))
}

fn capacity(groups: usize, bytes: Option<u64>) -> Capacity {
    let capacity = Capacity::groups(groups);
    bytes.map_or(capacity, |bytes| capacity.and_bytes(bytes))
}

/// All steps, whatever the consumer's patience.
async fn collect(mut steps: impl Stream<Item = Result<Step, Error>> + Unpin, patience: Option<u64>) -> Vec<Step> {
    let mut all = Vec::new();
    loop {
        let next = match patience {
            None => steps.next().await,
            Some(patience) => match timeout(ms(patience), steps.next()).await {
                Ok(next) => next,
                Err(_) => continue,
            },
        };
        match next {
            Some(step) => all.push(step.expect("no error")),
            None => return all,
        }
    }
}

async fn run(setting: &Setting) -> Vec<Event> {
    let (recorded, engine) = (Recorded::new(), engine(setting));
    let run = &recorded.run;
    let learner = run.restore(HashChain::new(0)).unwrap();
    let training = setting.training;
    let groups = run
        .prompts(dataset(setting.rows))
        .unused(setting.unused)
        .generate(&engine, InFlight::groups(setting.in_flight), Samples(setting.samples))
        .granularity(setting.granularity)
        .retries(2, ms(13))
        .boxed();
    let groups = match setting.scoring {
        Some(slowest) => groups
            .score_async(move |response| async move {
                let length = response.response().len() as u64;
                sleep(ms(length * 7 % slowest)).await;
                Ok::<_, std::io::Error>(length as f64)
            })
            .boxed(),
        None => groups.score(|response| response.response().len() as u32).boxed(),
    };
    let groups = groups.admit("most", |group| group.id.prompt.row % 11 != 5).log(run).boxed();
    let groups = match setting.capacity {
        Some(most) => groups.buffer(capacity(most, setting.bytes)).order(setting.order).boxed(),
        None => groups,
    };
    let groups = match setting.limit {
        Some(limit) => groups.fresh(MaxStaleness(limit)).boxed(),
        None => groups,
    };
    let steps = groups
        .batch(setting.batch)
        .then(move |batch| async move {
            sleep(ms(training)).await;
            batch
        })
        .train(learner)
        .publish_every(setting.publish_every, &engine)
        .weight_sync(setting.mode);
    let holding = async {
        let Some((closed, open)) = setting.holds else { return std::future::pending().await };
        loop {
            sleep(ms(open)).await;
            let hold = run.hold();
            sleep(ms(closed)).await;
            drop(hold);
        }
    };
    let steps = tokio::select! {
        steps = timeout(ms(1 << 30), collect(steps, setting.patience)) => steps.expect("the pipeline ends"),
        () = holding => unreachable!("it goes on for ever"),
    };
    assert!(steps.iter().all(|step| step.groups == setting.batch));
    let mut events = recorded.events();
    // A hold may outlive the pipeline.
    events.truncate(1 + events.iter().position(|event| event.kind.name() == "run_closed").expect("it was closed"));
    assert_eq!(engine.stats().running, 0);
    events
}

/// Groups outside the buffer, and in it, never exceed their bounds.
fn check_memory(setting: &Setting, events: &[Event]) {
    let outside = match setting.granularity {
        Granularity::Group => setting.in_flight,
        Granularity::Sample => (setting.in_flight - 1) * setting.samples as usize + 1,
    };
    let (mut upstream, mut downstream) = (0_usize, 0_usize);
    let mut admitted = std::collections::BTreeSet::new();
    for event in events {
        match &event.kind {
            EventKind::Leased { .. } => upstream += 1,
            EventKind::Admitted { id } => {
                (upstream, downstream) = (upstream - 1, downstream + 1);
                admitted.insert(id.clone());
            }
            EventKind::Excluded { id, .. } if admitted.contains(id) => downstream -= 1,
            EventKind::Excluded { .. } => upstream -= 1,
            EventKind::BatchTaken { groups, .. } if setting.capacity.is_some() => downstream -= groups.len(),
            EventKind::BatchTaken { groups, .. } => upstream -= groups.len(),
            _ => {}
        }
        if let Some(capacity) = setting.capacity {
            assert!(upstream <= outside, "{upstream} groups outside the buffer at {}", event.seq);
            assert!(downstream <= capacity + setting.batch, "{downstream} groups buffered or held at {}", event.seq);
        } else {
            assert!(upstream <= setting.batch, "the synchronous schedule had {upstream} groups at {}", event.seq);
        }
    }
}

/// In virtual time work takes no time, so that each event happens when the last of its enablers did, unless something
/// was scripted in between: an enabler that is missing shows as a delay.
fn check_enablers(setting: &Setting, events: &[Event]) {
    for event in events {
        let expected = match &event.kind {
            EventKind::Leased { .. }
            | EventKind::Admitted { .. }
            | EventKind::BatchTaken { .. }
            | EventKind::Publishing { .. }
            | EventKind::GenerationResumed { .. }
            | EventKind::Excluded { .. } => ms(0),
            EventKind::Stepped { .. } => ms(setting.training),
            EventKind::Published { .. } if setting.mode != WeightSync::Drain => ms(setting.seed % 9),
            _ => continue,
        };
        assert!(!event.enablers.is_empty(), "nothing enabled {event:?}");
        assert_eq!(u128::from(event.delay), expected.as_nanos(), "{event:?}");
        for moment in event.enablers.iter().filter_map(|enabler| enabler.moment.event()) {
            assert!(moment < event.seq, "{event:?} was enabled by what came after it");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold_for_random_pipelines(setting in settings()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let events = runtime.block_on(run(&setting));
        let limit = if setting.capacity.is_none() { Some(0) } else { setting.limit };
        Laws { batch: setting.batch, limit, buffered: setting.capacity.is_some() }.check(&events);
        check_memory(&setting, &events);
        check_enablers(&setting, &events);
    }

    /// Without a buffer nothing runs beside the learner's thread, so that the whole log is determined, ties included.
    #[test]
    fn the_same_synchronous_settings_give_the_same_log(setting in settings()) {
        let setting = Setting { capacity: None, holds: None, ..setting };
        let once = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            let mut events = runtime.block_on(run(&setting));
            for event in &mut events {
                event.wall_ms = 0;
            }
            events
        };
        prop_assert_eq!(once(), once());
    }
}
