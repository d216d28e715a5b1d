//! Errors, panics and drops: each reaches the consumer at once, and everything stops.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;

use anabranch_core::{
    Batch, Digest, Engine, Error, EventKind, Learner, LearnerError, Reason, Status, StepReport, Then, WeightSync,
};
use anabranch_sim::{Call, End, HashChain, Reply, Sim};
use anabranch_stream::by_hand::RunByHand;
use anabranch_stream::{Capacity, InFlight, RolloutExt, Run, Samples, Unused, publish};
use futures::{FutureExt, StreamExt, TryStreamExt};
use tokio::time::sleep;

use common::{Recorded, dataset, ms};

mod common;

async fn installed(run: &Run, engine: &Sim) {
    publish(run, engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
}

fn row(call: &Call<'_>) -> u32 {
    call.request.tokens[0]
}

#[tokio::test(start_paused = true)]
async fn an_error_overtakes_what_is_queued_and_stops_what_runs() {
    let engine = Sim::scripted(|call| match row(call) {
        0 | 1 => Reply::tokens(1, ms(10)),
        2 => Reply::tokens(1, ms(50)).ending(End::Fatal("the device is gone".to_owned())),
        _ => Reply::tokens(1, ms(10_000)),
    });
    let recorded = Recorded::new();
    installed(&recorded.run, &engine).await;
    let groups = recorded.run.prompts(dataset(9)).generate(&engine, InFlight::groups(4), Samples(1));
    let mut groups = groups.log(&recorded.run).buffer(Capacity::groups(8));
    assert!(groups.next().now_or_never().is_none());
    sleep(ms(100)).await;
    assert_eq!(recorded.run.metrics().gauges.queue, Some(2), "two good groups are queued");
    let error = groups.next().await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Engine(fault) if fault.to_string() == "engine: the device is gone"), "{error}");
    assert!(groups.next().await.is_none(), "then the stream ends");
    sleep(ms(1)).await;
    assert_eq!(engine.stats().running, 0);
    assert_eq!(engine.stats().cancelled, 3, "rows 3, 4 and 5 were running");
    assert_eq!(recorded.run.metrics().counters.completed, 2, "what was queued stays in the log");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_stops_everything() {
    for polled_for in [0, 25] {
        let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(10)));
        let learner = recorded.run.restore(HashChain::new(0)).unwrap();
        let groups = recorded.run.prompts(dataset(99)).generate(&engine, InFlight::groups(3), Samples(2));
        let groups = groups.log(&recorded.run).buffer(Capacity::groups(4)).batch(200);
        let mut steps = groups.train(learner).publish_every(1, &engine);
        let _ = tokio::time::timeout(ms(polled_for), steps.next()).await;
        let stats = engine.stats();
        assert_eq!(stats.running, if polled_for == 0 { 0 } else { 6 });
        drop(steps);
        sleep(ms(1)).await;
        assert_eq!((engine.stats().running, engine.stats().cancelled), (0, stats.running as u64));
        let before = recorded.events().len();
        sleep(ms(1000)).await;
        assert_eq!(recorded.events().len(), before, "nothing is recorded after it");
        assert_eq!(recorded.run.upstream(), 0);
    }
}

/// If the task were only asked to stop, it could continue to write records on another thread after the run was
/// finished.
#[tokio::test(start_paused = true)]
async fn everything_upstream_is_gone_when_the_drop_returns() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(3, ms(10)));
    let learner = recorded.run.restore(HashChain::new(0)).unwrap();
    let (here, upstream) = (Arc::new(()), Arc::new(()));
    let (watched, watched_upstream) = (here.clone(), upstream.clone());
    let groups = recorded.run.prompts(dataset(100)).generate(&engine, InFlight::groups(3), Samples(1));
    let groups = groups.inspect(move |_| assert!(Arc::strong_count(&watched_upstream) > 0)).log(&recorded.run);
    let batches =
        groups.buffer(Capacity::groups(9)).batch(2).inspect(move |_| assert!(Arc::strong_count(&watched) > 0));
    let mut steps = batches.train(learner).publish_every(1, &engine);
    steps.next().await.unwrap().unwrap();
    assert_eq!((Arc::strong_count(&here), Arc::strong_count(&upstream)), (2, 2));
    drop(steps);
    assert_eq!((Arc::strong_count(&here), Arc::strong_count(&upstream)), (1, 1));
    assert_eq!((recorded.run.upstream(), recorded.run.metrics().gauges.queue), (0, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_panicking_reward_is_an_error_that_names_the_group_and_leaves_it_in_the_log() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
    installed(&recorded.run, &engine).await;
    let groups = recorded.run.prompts(dataset(5)).generate(&engine, InFlight::groups(1), Samples(2));
    let mut groups = groups
        .score(|response| {
            assert!(response.prompt.id.row != 1, "no verdict on row {}", response.prompt.id.row);
            1.0
        })
        .buffer(Capacity::groups(9));
    let first = groups.next().await.unwrap().unwrap();
    assert_eq!(first.reward_mean(), Some(1.0));
    let error = groups.next().await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "score failed on group d/0/1#0, which stays in the log: panicked: no verdict on row 1"
    );
    assert!(groups.next().await.is_none());
    let stored = recorded.run.payload(&"d/0/1#0".parse().unwrap()).unwrap();
    assert_eq!(stored.samples[0].status, Status::Aborted);
    assert_eq!(stored.samples[0].cause.as_deref(), Some("reward: panicked: no verdict on row 1"));
}

#[tokio::test(start_paused = true)]
async fn a_panicking_filter_is_an_error_and_no_verdict() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
    installed(&recorded.run, &engine).await;
    let groups = recorded.run.prompts(dataset(5)).generate(&engine, InFlight::groups(1), Samples(2));
    let mut groups = groups.admit("strict", |_| panic!("undecided")).log(&recorded.run);
    let error = groups.next().await.unwrap().unwrap_err();
    assert!(error.to_string().starts_with("admit(\"strict\") failed on group d/0/0#0"), "{error}");
    assert!(groups.next().await.is_none());
    assert!(recorded.excluded().is_empty());
    assert!(recorded.run.payload(&"d/0/0#0".parse().unwrap()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn async_rewards_are_retried_then_abort_their_sample() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
    installed(&recorded.run, &engine).await;
    let calls = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = calls.clone();
    let groups = recorded.run.prompts(dataset(4)).generate(&engine, InFlight::groups(4), Samples(1));
    let groups = groups
        .score_async(move |response| {
            let (row, tries) = (response.prompt.id.row, {
                let mut calls = seen.lock();
                calls.push(response.prompt.id.row);
                calls.iter().filter(|&&row| row == response.prompt.id.row).count()
            });
            async move {
                match (row, tries) {
                    (1, 1) => Err("try again"),
                    (2, _) => Err("never"),
                    (3, _) => {
                        sleep(ms(60_000)).await;
                        Ok(0.0)
                    }
                    _ => Ok(row as f64),
                }
            }
        })
        .concurrency(2)
        .retries(1)
        .timeout(ms(100));
    let groups: Vec<_> = groups.log(&recorded.run).try_collect().await.unwrap();
    let rewards: Vec<_> = groups.iter().map(|group| (group.id.prompt.row, group.reward_mean())).collect();
    assert_eq!(rewards, [(0, Some(0.0)), (1, Some(1.0))]);
    assert_eq!(recorded.excluded(), [("Aborted".to_owned(), 2)].into());
    let cause =
        |row: u32| recorded.run.payload(&format!("d/0/{row}").parse().unwrap()).unwrap().samples[0].cause.clone();
    assert_eq!(cause(2).as_deref(), Some("reward: never"));
    assert_eq!(cause(3).as_deref(), Some("reward: no answer within 100ms"));
    let mut calls = calls.lock().clone();
    calls.sort_unstable();
    assert_eq!(calls, [0, 1, 1, 2, 2, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_async_reward_reaches_the_consumer() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
    installed(&recorded.run, &engine).await;
    let groups = recorded.run.prompts(dataset(4)).generate(&engine, InFlight::groups(4), Samples(1));
    let mut groups = groups.score_async(|response| async move {
        sleep(ms(1)).await;
        assert!(response.prompt.id.row > 0, "zero");
        Ok::<f64, Error>(1.0)
    });
    let error = groups.next().await.unwrap().unwrap_err();
    assert!(error.to_string().ends_with("panicked: zero"), "{error}");
    assert!(groups.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn rewards_after_the_log_are_refused() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
    installed(&recorded.run, &engine).await;
    let groups = recorded.run.prompts(dataset(4)).generate(&engine, InFlight::groups(1), Samples(1));
    let error = groups.log(&recorded.run).score(|_| 1.0).try_next().await.unwrap_err();
    assert!(error.to_string().contains("move .score before .log"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn another_runs_log_is_refused() {
    let (recorded, other, engine) = (Recorded::new(), Recorded::new(), Sim::fixed(1, ms(1)));
    installed(&recorded.run, &engine).await;
    let groups = recorded.run.prompts(dataset(4)).generate(&engine, InFlight::groups(1), Samples(1));
    let error = groups.log(&other.run).try_next().await.unwrap_err();
    assert!(error.to_string().contains("leased by another run"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn transient_faults_are_retried_from_the_tokens_already_there() {
    let engine = Sim::scripted(|call| match call.retry {
        0 => Reply::tokens(3, ms(10)).ending(End::Transient("busy".to_owned())),
        1 => Reply::default().after(ms(10)).ending(End::Transient("busy".to_owned())),
        _ => Reply::tokens(4, ms(10)),
    });
    let recorded = Recorded::new();
    installed(&recorded.run, &engine).await;
    let groups = recorded.run.prompts(dataset(1)).generate(&engine, InFlight::groups(1), Samples(1));
    let groups: Vec<_> = groups.retries(2, ms(100)).try_collect().await.unwrap();
    let sample = &groups[0].samples[0];
    assert_eq!((sample.generated(), sample.status), (7, Status::Completed));
    assert!(groups[0].check().is_ok());
    assert_eq!(sample.times.ended, Some(1_000_000 * (30 + 100 + 10 + 200 + 40)));
    assert_eq!(engine.stats().started, 3);
}

#[tokio::test(start_paused = true)]
async fn past_the_limit_of_retries_the_sample_is_aborted() {
    let engine = Sim::scripted(|_| Reply::tokens(1, ms(1)).ending(End::Transient("busy".to_owned())));
    let recorded = Recorded::new();
    installed(&recorded.run, &engine).await;
    let groups = recorded.run.prompts(dataset(1)).unused(Unused::Retry { max_attempts: 1 });
    let groups = groups.generate(&engine, InFlight::groups(1), Samples(1)).retries(1, ms(1)).log(&recorded.run);
    assert_eq!(groups.count().await, 0);
    let last = recorded.events().pop().unwrap().kind;
    assert!(matches!(last, EventKind::Excluded { reason: Reason::Aborted, then: Then::Exhausted, .. }), "{last:?}");
    let sample = &recorded.run.payload(&"d/0/0#0".parse().unwrap()).unwrap().samples[0];
    assert_eq!(sample.cause.as_deref(), Some("engine, after 1 retries: busy"));
}

/// Steps `good` times, then fails as told.
struct Failing {
    good: u64,
    panics: bool,
    inner: HashChain,
}

impl Learner for Failing {
    type Weights = u64;

    fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError> {
        if batch.step.0 <= self.good {
            return self.inner.step(batch);
        }
        assert!(!self.panics, "the learner panicked at step {}", batch.step);
        Err(LearnerError::new("out of memory"))
    }

    fn weights(&mut self) -> Result<u64, LearnerError> {
        self.inner.weights()
    }

    fn digest(&mut self) -> Result<Digest, LearnerError> {
        self.inner.digest()
    }

    fn save(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.inner.save(dir)
    }

    fn load(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.inner.load(dir)
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_or_panicking_learner_reaches_the_consumer() {
    for panics in [false, true] {
        let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
        let learner = Failing { good: 1, panics, inner: HashChain::new(0) };
        let learner = recorded.run.restore(learner).unwrap();
        let groups = recorded.run.prompts(dataset(9)).generate(&engine, InFlight::groups(2), Samples(1));
        let mut steps = groups.buffer(Capacity::groups(2)).batch(2).train(learner).publish_every(1, &engine);
        assert_eq!(steps.next().await.unwrap().unwrap().step.0, 1);
        let second = AssertUnwindSafe(steps.next()).catch_unwind().await;
        match second {
            Ok(error) => {
                assert!(!panics);
                assert_eq!(error.unwrap().unwrap_err().to_string(), "learner: out of memory");
            }
            Err(panic) => {
                assert_eq!(panic.downcast_ref::<String>().unwrap(), "the learner panicked at step 2");
            }
        }
        assert!(steps.next().await.is_none(), "then the stream ends");
        drop(steps);
        sleep(ms(1)).await;
        assert_eq!(engine.stats().running, 0);
        assert_eq!(recorded.run.metrics().counters.batches, 2, "the batch was taken: it is trained again on resume");
        assert!(!recorded.names().contains(&"run_closed"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_upstream_of_the_buffer_goes_on_in_the_consumer() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
    installed(&recorded.run, &engine).await;
    let groups = recorded.run.prompts(dataset(9)).generate(&engine, InFlight::groups(1), Samples(1));
    let groups = groups.inspect(|group| assert!(group.as_ref().unwrap().id.prompt.row < 2, "row 2 came"));
    let mut groups = groups.buffer(Capacity::groups(9));
    assert!(groups.next().await.is_some());
    sleep(ms(10)).await;
    let panic = AssertUnwindSafe(groups.next()).catch_unwind().await.unwrap_err();
    assert_eq!(*panic.downcast_ref::<&str>().unwrap(), "row 2 came", "it overtakes row 1");
    assert!(groups.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn dropping_a_pending_next_loses_nothing() {
    for buffered in [false, true] {
        let (recorded, engine) = (Recorded::new(), Sim::random(9, 1..=4, 1..=5));
        let run = &recorded.run;
        let learner = run.restore(HashChain::new(0)).unwrap();
        let groups = run.prompts(dataset(12)).generate(&engine, InFlight::groups(3), Samples(2));
        let groups = groups
            .score_async(|_| async {
                sleep(ms(3)).await;
                Ok::<_, Error>(1.0)
            })
            .log(run)
            .boxed();
        let groups = if buffered { groups.buffer(Capacity::groups(4)).boxed() } else { groups };
        let mut steps = groups.batch(3).train(learner).checkpoint_every(1).publish_every(1, &engine);
        let mut count = 0;
        loop {
            match tokio::time::timeout(ms(2), steps.next()).await {
                Ok(Some(step)) => count += usize::from(step.is_ok()),
                Ok(None) => break,
                Err(_) => {}
            }
        }
        assert_eq!(count, 4);
        let batches = recorded.batches();
        assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), 12);
    }
}

#[tokio::test]
async fn an_engine_behind_an_arc_works() {
    let recorded = Recorded::new();
    let sim = Sim::fixed(1, ms(0));
    let engine: Arc<dyn Engine<Weights = u64>> = Arc::new(sim);
    let learner = recorded.run.restore(HashChain::new(0)).unwrap();
    let groups = recorded.run.prompts(dataset(4)).generate(&engine, InFlight::groups(2), Samples(1));
    let steps: Vec<_> = groups.batch(2).train(learner).publish_every(1, &engine).try_collect().await.unwrap();
    assert_eq!(steps.len(), 2);
    assert!(
        steps[0].to_string().starts_with("step    1  reward     -  loss +0.5000  gap 0.00 (max 0)  v1"),
        "{}",
        steps[0]
    );
}
