//! Resuming in memory: what an earlier session left comes first, nothing is generated or trained twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use anabranch_core::{Digest, Error, EventKind, GroupId, Learner, Step, Version, WeightSync};
use anabranch_sim::{HashChain, Sim};
use anabranch_stream::{Capacity, InFlight, MaxStaleness, Order, RolloutExt, Run, Samples, Unused, publish};
use anabranch_testing::journals::DirJournal;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use tokio::time::{sleep, timeout};

use common::{Laws, dataset, ms, trained};

mod common;

const ROWS: u32 = 40;
const BATCH: usize = 3;

/// The pipeline of these tests, on the next session of a run.
fn pipeline(run: &Run, engine: &Sim, order: Order) -> impl Stream<Item = Result<Step, Error>> + Unpin + use<> {
    let learner = run.restore(HashChain::new(1)).unwrap();
    run.prompts(dataset(ROWS))
        .shuffle(5)
        .unused(Unused::Retry { max_attempts: 3 })
        .generate(engine, InFlight::groups(4), Samples(2))
        .score(|response| response.response().len() as u32)
        .admit("odd", |group| group.id.prompt.row % 7 != 3)
        .log(run)
        .buffer(Capacity::groups(5))
        .order(order)
        .fresh(MaxStaleness(2))
        .batch(BATCH)
        .then(|batch| async {
            sleep(ms(13)).await;
            batch
        })
        .train(learner)
        .checkpoint_every(2)
        .publish_every(1, engine)
}

fn engine() -> Sim {
    Sim::random(11, 1..=6, 1..=9).install_time(ms(3))
}

#[tokio::test(start_paused = true)]
async fn restored_groups_come_first_and_are_not_generated_again() {
    let journal = DirJournal::new();
    let first = engine();
    let run = journal.open();
    publish(&run, &first, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let source = |run: &Run| run.prompts(dataset(9)).shuffle(5);
    let mut groups =
        source(&run).generate(&first, InFlight::groups(2), Samples(2)).log(&run).buffer(Capacity::groups(3));
    assert!(groups.next().now_or_never().is_none());
    sleep(ms(500)).await;
    let taken_out = groups.next().await.unwrap().unwrap().id.clone();
    drop(groups);
    let completed: Vec<GroupId> = journal
        .memory
        .events()
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Completed { id, .. } => Some(id.clone()),
            _ => None,
        })
        .collect();
    let stats = run.metrics().counters;
    assert_eq!(completed[0], taken_out);

    let (run, second) = (journal.open(), engine());
    publish(&run, &second, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let groups = source(&run).generate(&second, InFlight::groups(2), Samples(2)).log(&run).buffer(Capacity::groups(3));
    let all: Vec<_> = groups.try_collect().await.unwrap();
    let ids: Vec<GroupId> = all.iter().map(|group| group.id.clone()).collect();
    assert_eq!(ids[..completed.len()], completed, "in the order of the queue, the one taken out among them");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 9, "nothing is skipped, nothing comes twice");
    assert_eq!(second.stats().started, 2 * (9 - completed.len() as u64), "what was completed is not generated again");
    assert_eq!(run.metrics().counters.reissued, stats.leased - stats.completed, "what was in flight went out again");
    assert_eq!(run.metrics().counters.admitted, 9, "no group is admitted twice");
}

/// Runs sessions that are cut off after `cuts` milliseconds each, then one to the end.
async fn cut(cuts: &[u64], order: Order) -> Arc<DirJournal> {
    let journal = DirJournal::new();
    for &after in cuts {
        let run = journal.open();
        let mut steps = pipeline(&run, &engine(), order);
        let end = async { while steps.try_next().await.unwrap().is_some() {} };
        let _ = timeout(ms(after), end).await;
    }
    let run = journal.open();
    let steps: Vec<Step> = pipeline(&run, &engine(), order).try_collect().await.unwrap();
    let replayed = steps.iter().take_while(|step| step.replayed).count();
    assert!(steps[replayed..].iter().all(|step| !step.replayed), "replayed steps come first");
    assert!(steps.iter().all(|step| step.equal != Some(false)), "a replayed step comes out the same");
    journal
}

#[tokio::test(start_paused = true)]
async fn sessions_cut_off_anywhere_train_each_consumed_group_once() {
    let orders = [Order::Fifo, Order::Freshest, Order::Stalest];
    for order in orders {
        let whole = trained(&cut(&[], order).await.memory.events());
        assert!(whole.0.len() > 8, "{order}: {}", whole.0.len());
    }
    for (seed, order) in (0..24).flat_map(|seed: u64| orders.map(|order| (seed, order))) {
        let cuts = [seed * 17 % 211 + 1, seed * 29 % 97 + 1, seed * 7 % 60 + 1];
        let journal = cut(&cuts, order).await;
        let events = journal.memory.events();
        Laws { batch: BATCH, limit: Some(2), buffered: true }.check(&events);
        let (batches, weights) = trained(&events);
        let steps = events.iter().filter(|event| matches!(event.kind, EventKind::Stepped { .. })).count();
        assert_eq!(steps, batches.len(), "each step is recorded once");
        let expected = HashChain::over(1, batches.iter().map(Vec::as_slice)).digest().unwrap();
        assert_eq!(weights, Some(expected), "the surviving weights are the chain over the recorded batches");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_published_weights_are_installed_under_the_same_version() {
    let journal = DirJournal::new();
    let first = engine();
    let run = journal.open();
    let mut steps = pipeline(&run, &first, Order::Fifo);
    for _ in 0..3 {
        steps.next().await.unwrap().unwrap();
    }
    drop(steps);
    let last = *first.stats().installs.last().unwrap();
    assert_eq!(last.version, Version(3));

    let (run, second) = (journal.open(), engine());
    let mut steps = pipeline(&run, &second, Order::Fifo);
    let step = steps.next().await.unwrap().unwrap();
    assert!(step.replayed && step.step.0 == 3 && step.equal == Some(true), "checkpoint 2, then step 3 from the log");
    assert!(second.stats().installs.is_empty(), "replayed steps are not published");
    let step = steps.next().await.unwrap().unwrap();
    assert_eq!((step.step.0, step.replayed, step.published), (4, false, Some(Version(4))));
    assert_eq!(second.stats().installs[0], last, "v3 again, the same weights");
    let reinstalled = journal.memory.events().into_iter().filter_map(|event| match event.kind {
        EventKind::Reinstalled { version, step, .. } => Some((version.0, step.0)),
        _ => None,
    });
    assert_eq!(reinstalled.collect::<Vec<_>>(), [(3, 3)]);
}

#[tokio::test(start_paused = true)]
async fn weights_that_cannot_be_had_again_are_replaced_under_the_next_version() {
    /// A learner that forgets what it published.
    struct Forgetful(HashChain);

    impl Learner for Forgetful {
        type Weights = u64;

        fn step(
            &mut self,
            batch: &anabranch_core::Batch,
        ) -> Result<anabranch_core::StepReport, anabranch_core::LearnerError> {
            self.0.step(batch)
        }

        fn weights(&mut self) -> Result<u64, anabranch_core::LearnerError> {
            self.0.weights()
        }

        fn digest(&mut self) -> Result<Digest, anabranch_core::LearnerError> {
            self.0.digest()
        }

        fn save(&mut self, dir: &std::path::Path) -> Result<(), anabranch_core::LearnerError> {
            self.0.save(dir)
        }

        fn load(&mut self, dir: &std::path::Path) -> Result<(), anabranch_core::LearnerError> {
            self.0.load(dir)
        }
    }

    // Published at steps 0 and 3, checkpoints at 4: the weights of step 3 are nowhere.
    let chain = |run: &Run, engine: &Sim| {
        let learner = run.restore(Forgetful(HashChain::new(0))).unwrap();
        let groups = run.prompts(dataset(30)).generate(engine, InFlight::groups(2), Samples(1));
        groups.batch(2).train(learner).checkpoint_every(4).publish_every(3, engine)
    };
    let journal = DirJournal::new();
    let steps = chain(&journal.open(), &engine()).take(4).count().await;
    assert_eq!(steps, 4);
    let second = engine();
    let mut steps = chain(&journal.open(), &second);
    let step = steps.next().await.unwrap().unwrap();
    assert_eq!((step.step.0, step.version), (5, Some(Version(2))), "v1 was step 3's; the current weights became v2");
    assert_eq!(second.stats().installs[0].version, Version(2));
}

#[tokio::test(start_paused = true)]
async fn other_settings_are_refused_by_name() {
    let journal = DirJournal::new();
    let chain = |run: &Run, limit: u64| {
        let (engine, learner) = (engine(), run.restore(HashChain::new(0)).unwrap());
        let groups = run.prompts(dataset(30)).generate(&engine, InFlight::groups(2), Samples(1));
        let groups = groups.buffer(Capacity::groups(2)).fresh(MaxStaleness(limit)).batch(2);
        groups.train(learner).publish_every(1, &engine)
    };
    assert!(chain(&journal.open(), 3).next().await.unwrap().is_ok());
    let mut steps = chain(&journal.open(), 4);
    let error = loop {
        match steps.next().await.unwrap() {
            Ok(step) if step.replayed => {}
            Ok(step) => panic!("{step}"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("expected fresh.max_staleness = 3, as recorded in the run, found 4"), "{error}");
}
