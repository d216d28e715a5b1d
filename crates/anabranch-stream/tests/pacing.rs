//! Pacing: the lead stays within its bound at every lease, whatever happens, over restarts too.

use anabranch_core::{Event, EventKind, Step};
use anabranch_sim::{End, HashChain, Reply, Sim};
use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Run, Samples, Unused};
use anabranch_testing::journals::DirJournal;
use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;
use tokio::time::{sleep, timeout};

use common::{Laws, Recorded, dataset, ms, trained};

mod common;

#[derive(Clone, Debug)]
struct Setting {
    lead: u64,
    interval: u64,
    batch: usize,
    limit: Option<u64>,
    training: u64,
    aborts: u64,
    seed: u64,
}

fn settings() -> impl Strategy<Value = Setting> {
    let limits = (0..3_u64, 1..4_u64, 1..5_usize, proptest::option::of(0..3_u64));
    (limits, (0..80_u64, 4..30_u64, any::<u64>())).prop_map(|((lead, interval, batch, limit), times)| {
        let (training, aborts, seed) = times;
        Setting { lead, interval, batch, limit, training, aborts, seed }
    })
}

async fn steps(run: &Run, setting: &Setting, rows: u32, take: usize) -> Vec<Step> {
    let (aborts, seed, training) = (setting.aborts, setting.seed, setting.training);
    let engine = Sim::scripted(move |call| {
        let key = call.request.key;
        let drawn = (key.lease ^ seed).wrapping_mul(u64::from(key.sample) + 0x9e37_79b9).rotate_left(23);
        let end = if drawn % aborts == 0 { End::Abort("script".to_owned()) } else { End::Stop };
        Reply::tokens(1 + (drawn >> 8) as u32 % 9, ms((drawn >> 16) % 12)).ending(end)
    });
    let learner = run.restore(HashChain::new(0)).unwrap();
    let groups = run
        .prompts(dataset(rows))
        .unused(Unused::Retry { max_attempts: 2 })
        .pace(MaxStaleness(setting.lead), setting.batch)
        .update_interval(setting.interval)
        .generate(&engine, InFlight::groups(20), Samples(2))
        .log(run)
        .buffer(Capacity::groups(50));
    let groups = match setting.limit {
        Some(limit) => groups.fresh(MaxStaleness(limit)).boxed(),
        None => groups.boxed(),
    };
    let steps = groups.batch(setting.batch).then(move |batch| async move {
        sleep(ms(training)).await;
        batch
    });
    let steps = steps.train(learner).checkpoint_every(2).publish_every(setting.interval, &engine);
    timeout(ms(1 << 40), steps.take(take).try_collect()).await.expect("it ends").expect("no error")
}

/// At every lease: leased − excluded ≤ (s + (η + 1)·k)·B, s the training step of the installed weights.
fn check_bound(setting: &Setting, events: &[Event]) {
    let (mut lead, mut step) = (0_u64, 0);
    for event in events {
        match &event.kind {
            EventKind::Leased { .. } => {
                lead += 1;
                let bound = (step + (setting.lead + 1) * setting.interval) * setting.batch as u64;
                assert!(lead <= bound, "{lead} groups lead at {}, the bound is {bound}", event.seq);
                assert!(event.delay == 0, "an enabler is missing: {event:?}");
            }
            EventKind::Excluded { .. } => lead -= 1,
            EventKind::Published { step: installed, .. } | EventKind::Reinstalled { step: installed, .. } => {
                step = installed.0;
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_lead_is_bounded_at_every_lease(setting in settings()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let recorded = Recorded::new();
            let made = steps(&recorded.run, &setting, 60, usize::MAX).await;
            assert!(!made.is_empty() || setting.limit.is_some());
            Laws { batch: setting.batch, limit: setting.limit, buffered: true }.check(&recorded.events());
            check_bound(&setting, &recorded.events());
        });
    }

    /// A session cut off anywhere counts its restored work, and never waits for itself.
    #[test]
    fn a_resumed_run_goes_on_under_the_same_bound(setting in settings(), cuts in proptest::collection::vec(0..6_usize, 1..3)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let dir = DirJournal::new();
            for cut in cuts {
                steps(&dir.open(), &setting, 40, cut).await;
            }
            let run = dir.open();
            steps(&run, &setting, 40, usize::MAX).await;
            let events = dir.memory.events();
            Laws { batch: setting.batch, limit: setting.limit, buffered: true }.check(&events);
            check_bound(&setting, &events);
            assert_eq!(run.metrics().counters.consumed as usize, trained(&events).0.concat().len());
        });
    }
}

/// With nothing but the bound in the way, the lead is used to the full: generation is (η + 1)·k·B groups ahead.
#[tokio::test(start_paused = true)]
async fn the_bound_is_used_to_the_full_and_keeps_groups_fresh() {
    let setting = Setting { lead: 1, interval: 1, batch: 4, limit: None, training: 100, aborts: u64::MAX, seed: 3 };
    let recorded = Recorded::new();
    let made = steps(&recorded.run, &setting, 80, usize::MAX).await;
    assert_eq!(made.len(), 20);
    let leads: Vec<u64> = made.iter().map(|step| step.gap_max.unwrap()).collect();
    assert!(leads.iter().all(|&gap| gap <= 1) && leads.contains(&1), "{leads:?}");
    assert_eq!(recorded.excluded().len(), 0, "nothing was thrown away");
    // Before the first training step: exactly (η + 1)·B leases.
    let events = recorded.events();
    let stepped = events.iter().position(|event| matches!(event.kind, EventKind::Stepped { .. })).unwrap();
    let leased = events[..stepped].iter().filter(|event| matches!(event.kind, EventKind::Leased { .. })).count();
    assert_eq!(leased, 8);
}
