//! A learner trained again from a log alone: the same weights at every step, and a difference names the first.

use anabranch_core::{BoxError, Event, EventKind, Group, GroupId, Journal, JournalError, Learner};
use anabranch_sim::{HashChain, Sim};
use anabranch_stream::{Capacity, InFlight, MaxStaleness, Replayed, RolloutExt, Samples, replay_log, retrain};
use anabranch_testing::journals::DirJournal;
use futures::{StreamExt, TryStreamExt};

use common::{dataset, ms, trained};

mod common;

/// Two sessions, the first cut off.
async fn recorded() -> std::sync::Arc<DirJournal> {
    let journal = DirJournal::new();
    for steps in [5, usize::MAX] {
        let (run, engine) = (journal.open(), Sim::random(3, 1..=6, 1..=9).install_time(ms(3)));
        let groups = run.prompts(dataset(40)).generate(&engine, InFlight::groups(4), Samples(2));
        let groups = groups.score(|response| response.response().len() as u32).log(&run);
        let batches = groups.buffer(Capacity::groups(4)).fresh(MaxStaleness(0)).batch(3);
        let learner = run.restore(HashChain::new(7)).unwrap();
        let steps = batches.train(learner).checkpoint_every(3).publish_every(2, &engine).take(steps);
        steps.try_collect::<Vec<_>>().await.unwrap();
    }
    journal
}

fn events(journal: &DirJournal) -> impl Iterator<Item = Result<Event, BoxError>> {
    journal.memory.events().into_iter().map(Ok)
}

fn payload(journal: &DirJournal) -> impl FnMut(&GroupId) -> Result<Group, JournalError> {
    |id| journal.payload(id)
}

#[tokio::test(start_paused = true)]
async fn a_log_alone_trains_a_learner_to_the_same_weights_at_every_step() {
    let journal = recorded().await;
    let (batches, last) = trained(&journal.memory.events());
    let again: Vec<_> =
        retrain(replay_log(events(&journal), payload(&journal)), HashChain::new(7)).try_collect().await.unwrap();
    assert!(again.len() == batches.len() && again.len() > 8, "{}", again.len());
    assert!(again.iter().all(|step| step.recorded.is_some() && step.is_equal()), "{again:?}");
    assert_eq!(again.iter().map(|step| step.step.0).collect::<Vec<_>>(), (1..=again.len() as u64).collect::<Vec<_>>());
    assert_eq!(Some(again.last().unwrap().weights), last);

    let other: Vec<_> =
        retrain(replay_log(events(&journal), payload(&journal)), HashChain::new(8)).try_collect().await.unwrap();
    assert!(!other[0].is_equal(), "another beginning differs from the first step on");
}

#[tokio::test(start_paused = true)]
async fn a_difference_names_the_first_step_that_differs() {
    /// A learner that goes astray at one step.
    struct Astray(HashChain, u64);

    impl Learner for Astray {
        type Weights = u64;

        fn step(
            &mut self,
            batch: &anabranch_core::Batch,
        ) -> Result<anabranch_core::StepReport, anabranch_core::LearnerError> {
            if batch.step.0 == self.1 {
                self.0.step(batch)?;
            }
            self.0.step(batch)
        }

        fn weights(&mut self) -> Result<u64, anabranch_core::LearnerError> {
            self.0.weights()
        }

        fn digest(&mut self) -> Result<anabranch_core::Digest, anabranch_core::LearnerError> {
            self.0.digest()
        }

        fn save(&mut self, dir: &std::path::Path) -> Result<(), anabranch_core::LearnerError> {
            self.0.save(dir)
        }

        fn load(&mut self, dir: &std::path::Path) -> Result<(), anabranch_core::LearnerError> {
            self.0.load(dir)
        }
    }

    let journal = recorded().await;
    for astray in [1, 4, 7] {
        let again = retrain(replay_log(events(&journal), payload(&journal)), Astray(HashChain::new(7), astray));
        let again: Vec<_> = again.try_collect().await.unwrap();
        assert_eq!(again.iter().find(|step| !step.is_equal()).map(|step| step.step.0), Some(astray));
    }
}

#[tokio::test(start_paused = true)]
async fn dispositions_come_in_the_order_of_the_log_and_a_changed_payload_is_refused() {
    let journal = recorded().await;
    let all: Vec<Replayed> = replay_log(events(&journal), payload(&journal)).try_collect().await.unwrap();
    let excluded = all.iter().filter(|replayed| matches!(replayed, Replayed::Excluded { .. })).count();
    let in_log =
        journal.memory.events().iter().filter(|event| matches!(event.kind, EventKind::Excluded { .. })).count();
    assert!(excluded == in_log && excluded > 0, "{excluded}, {in_log}");
    for replayed in &all {
        let Replayed::Batch(batch) = replayed else { continue };
        assert!(batch.groups.iter().all(|group| *group == journal.payload(&group.id).unwrap()));
    }

    let mut changed = |id: &GroupId| {
        let mut group = journal.payload(id)?;
        group.samples[0].logprobs[0] -= 0.5;
        Ok::<_, JournalError>(group)
    };
    let mut replayed = replay_log(events(&journal), &mut changed);
    let error = loop {
        match replayed.next().await.unwrap() {
            Ok(Replayed::Batch(batch)) => panic!("{batch:?}"),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("training step 1") && error.contains("digest"), "{error}");
    assert!(replayed.next().await.is_none(), "it ends");

    // A run that died between a batch and its step: the step is made, and there is nothing to compare it with.
    let taken =
        journal.memory.events().iter().position(|event| matches!(event.kind, EventKind::BatchTaken { .. })).unwrap();
    let again = retrain(replay_log(events(&journal).take(taken + 1), payload(&journal)), HashChain::new(7));
    let again: Vec<_> = again.try_collect().await.unwrap();
    assert!(again.len() == 1 && again[0].recorded.is_none() && again[0].is_equal());
}
