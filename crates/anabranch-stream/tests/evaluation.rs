//! Evaluation on shared engines: it uses one version, nothing else runs on the engines, and the run continues
//! afterwards.

use anabranch_core::{Digest, Event, EventKind, Sampling, WeightSync};
use anabranch_sim::{HashChain, Sim};
use anabranch_stream::by_hand::RunByHand;
use anabranch_stream::{Capacity, InFlight, MaxStaleness, Rollout, RolloutExt, Run, Samples, Unused, publish};
use futures::{FutureExt, StreamExt, TryStreamExt};
use tokio::time::{sleep, timeout};

use common::{Laws, Recorded, dataset, ms};

mod common;

/// The versions that an evaluation of five prompts ran on, and what else ran meanwhile.
async fn evaluate(run: &Run, engine: &Sim) -> Vec<u64> {
    let evaluation = run.evaluation().await;
    assert_eq!(run.running(), 0, "what ran has finished");
    // The evaluation is a chain on a run of its own.
    let scratch = Run::in_memory();
    let groups = scratch.prompts(dataset(5)).generate(engine, InFlight::groups(2), Samples(1));
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    let groups: Vec<Rollout> = groups.sampling(greedy).try_collect().await.unwrap();
    assert_eq!(groups.len(), 5);
    let versions = groups.iter().flat_map(|group| &group.samples[0].spans);
    let versions: Vec<u64> = versions.map(|span| span.version.lowest().unwrap().0).collect();
    assert_eq!(evaluation.version().map(|version| vec![version.0; versions.len()]), Some(versions.clone()));
    versions
}

/// While submissions are closed no lease is issued, and once nothing runs nothing is published.
fn check_holds(events: &[Event]) -> usize {
    let mut held = false;
    let mut holds = 0;
    for event in events {
        match event.kind {
            EventKind::Held => (held, holds) = (true, holds + 1),
            EventKind::Reopened => held = false,
            EventKind::Leased { .. } | EventKind::Reissued { .. } => assert!(!held, "{event:?} under a hold"),
            _ => {}
        }
    }
    assert!(!held);
    holds
}

#[tokio::test(start_paused = true)]
async fn evaluations_at_any_time_run_on_one_version_and_stop_nothing() {
    for mode in [WeightSync::Retract, WeightSync::InPlace, WeightSync::Drain, WeightSync::Abort] {
        for capacity in [1, 6] {
            let recorded = Recorded::new();
            let engine = Sim::random(5, 1..=6, 1..=20).install_time(ms(7));
            let run = &recorded.run;
            let learner = run.restore(HashChain::new(0)).unwrap();
            let mut steps = run
                .prompts(dataset(40))
                .unused(Unused::Retry { max_attempts: 3 })
                .generate(&engine, InFlight::groups(3), Samples(2))
                .log(run)
                .buffer(Capacity::groups(capacity))
                .fresh(MaxStaleness(2))
                .batch(2)
                .train(learner)
                .publish_every(1, &engine)
                .weight_sync(mode);
            let evaluating = async {
                // Not before v0 is installed: an evaluation keeps publications away.
                sleep(ms(7)).await;
                for seed in 0..12_u64 {
                    sleep(ms(seed * 37 % 61)).await;
                    evaluate(run, &engine).await;
                }
            };
            let training = async {
                let mut made = 0;
                while let Some(step) = steps.try_next().await.unwrap() {
                    made += 1;
                    // From the consumer's loop too, while the buffer may be full.
                    if step.step.0.is_multiple_of(5) {
                        evaluate(run, &engine).await;
                    }
                }
                made
            };
            let both = timeout(ms(1 << 30), futures::future::join(evaluating, training)).await;
            let ((), made) = both.expect("no deadlock");
            assert!(made > 5, "{mode:?}");
            Laws { batch: 2, limit: Some(2), buffered: true }.check(&finished(recorded.events()));
            assert!(check_holds(&recorded.events()) >= 10, "{mode:?}");
        }
    }
}

/// A log up to the end of its pipeline: evaluations may come after it.
fn finished(mut events: Vec<Event>) -> Vec<Event> {
    let end = events.iter().position(|event| matches!(event.kind, EventKind::RunClosed { .. })).unwrap();
    events.truncate(end + 1);
    events
}

#[tokio::test(start_paused = true)]
async fn a_full_buffer_holds_no_evaluation_up() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(3, ms(10)));
    publish(&recorded.run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let groups = recorded.run.prompts(dataset(50)).generate(&engine, InFlight::groups(4), Samples(2));
    let mut groups = groups.log(&recorded.run).buffer(Capacity::groups(1));
    assert!(groups.next().now_or_never().is_none());
    sleep(ms(1000)).await;
    let gauges = recorded.run.metrics().gauges;
    assert_eq!((gauges.queue, gauges.in_flight), (Some(1), 0));
    assert!(gauges.waiting > 0, "completed groups wait for room");
    timeout(ms(1 << 20), evaluate(&recorded.run, &engine)).await.expect("it waits for nobody");
}

#[tokio::test(start_paused = true)]
async fn submissions_reopen_whatever_happens_to_an_evaluation() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(3, ms(10)));
    let run = recorded.run.clone();
    publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let evaluating = {
        let run = run.clone();
        tokio::spawn(async move {
            let _evaluation = run.evaluation().await;
            panic!("the evaluation's own fault");
        })
    };
    assert!(evaluating.await.is_err());
    let given_up = timeout(ms(5), async {
        let _evaluation = run.evaluation().await;
        std::future::pending::<()>().await;
    });
    assert!(given_up.await.is_err());
    let groups: Vec<Rollout> =
        run.prompts(dataset(3)).generate(&engine, InFlight::groups(1), Samples(1)).try_collect().await.unwrap();
    assert_eq!(groups.len(), 3);
    assert_eq!(check_holds(&recorded.events()), 2);
}

#[tokio::test(start_paused = true)]
async fn turns_and_retries_wait_for_the_end_of_an_evaluation() {
    let engine = Sim::fixed(2, ms(10));
    let recorded = Recorded::new();
    let run = recorded.run.clone();
    publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let groups =
        run.prompts(dataset(1)).generate_with(&engine, InFlight::groups(1), Samples(1), |_, mut session| async move {
            session.generate().await?;
            session.generate().await?;
            Ok::<_, anabranch_stream::Stopped>(())
        });
    let evaluating = async {
        sleep(ms(5)).await;
        let evaluation = run.evaluation().await;
        assert_eq!((run.now() / 1_000_000, engine.stats().started), (20, 1), "the first turn has finished");
        sleep(ms(100)).await;
        assert_eq!(engine.stats().started, 1, "the second waits");
        drop(evaluation);
    };
    let (groups, ()) = futures::join!(groups.try_collect::<Vec<Rollout>>(), evaluating);
    let ended = groups.unwrap()[0].samples[0].times.ended.unwrap();
    assert_eq!(ended / 1_000_000, 140);
}
