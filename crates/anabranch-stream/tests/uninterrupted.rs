//! An interrupted run equals the uninterrupted one, bit for bit, if groups are admitted in the order of submission,
//! publications drain the samples in flight after fixed numbers of leases, each publication has a checkpoint, and
//! engine and learner are deterministic.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anabranch_core::{
    Digest, Error, Event, EventKind, GroupId, Journal, JournalError, SampleTimes, SpanVersion, Step, TrainingStep,
    Version, WeightSync,
};
use anabranch_sim::{HashChain, Sim};
use anabranch_stream::{InFlight, RolloutExt, Run, Samples};
use anabranch_testing::journals::{DirJournal, Intercepted, OnAppend};
use futures::{Stream, TryStreamExt};
use tokio::sync::Notify;

use common::{dataset, ms};

mod common;

const BATCH: usize = 3;

/// The death of a process: after this many events the journal records nothing, answers nothing, and writes no checkpoint.
struct Kill {
    left: AtomicU64,
    /// Whether a checkpoint that comes right after the last of them is still made.
    saves: bool,
    dead: AtomicBool,
    killed: Notify,
}

impl Kill {
    fn after(events: u64, saves: bool) -> Arc<Self> {
        let (left, dead) = (AtomicU64::new(events), AtomicBool::new(false));
        Arc::new(Self { left, saves, dead, killed: Notify::new() })
    }

    fn die(&self) {
        self.left.store(0, Ordering::SeqCst);
        self.dead.store(true, Ordering::SeqCst);
        self.killed.notify_one();
    }

    fn append(&self, events: &[Event]) -> OnAppend {
        if let Some(left) = self.left.load(Ordering::SeqCst).checked_sub(events.len() as u64) {
            self.left.store(left, Ordering::SeqCst);
            return OnAppend::Pass;
        }
        self.die();
        OnAppend::Lose
    }

    fn checkpoint(&self) -> Result<(), JournalError> {
        if self.dead.load(Ordering::SeqCst) || (self.left.load(Ordering::SeqCst) == 0 && !self.saves) {
            self.die();
            return Err(JournalError::new("killed"));
        }
        Ok(())
    }

    /// The next session of the run in `journal`, which dies so.
    fn open(self: &Arc<Self>, journal: &Arc<DirJournal>) -> Run {
        let (append, checkpoint) = (self.clone(), self.clone());
        let cut = Intercepted::new(journal.clone())
            .on_append(move |events| append.append(events))
            .on_checkpoint(move |_| checkpoint.checkpoint());
        journal.next_session(Arc::new(cut)).open().unwrap()
    }
}

/// A pipeline within the scope: without a buffer every publication comes after exactly the leases of the batches before it.
#[derive(Copy, Clone, Debug)]
enum Scope {
    /// One group in flight, whatever it takes; some are filtered.
    One,
    /// A batch of groups in flight that all take as long.
    EqualTimes,
}

impl Scope {
    fn engine(self) -> Sim {
        match self {
            Self::One => Sim::random(5, 1..=6, 1..=9).install_time(ms(3)),
            Self::EqualTimes => Sim::fixed(4, ms(5)).install_time(ms(3)),
        }
    }

    fn pipeline(self, run: &Run, engine: &Sim) -> impl Stream<Item = Result<Step, Error>> + Unpin + use<> {
        let (in_flight, every) = match self {
            Self::One => (1, 5),
            Self::EqualTimes => (BATCH, u64::MAX),
        };
        run.prompts(dataset(24))
            .shuffle(5)
            .generate(engine, InFlight::groups(in_flight), Samples(2))
            .score(|response| response.response().len() as u32)
            .admit("some", move |group| group.id.prompt.row % every != 3)
            .log(run)
            .batch(BATCH)
            .train(run.restore(HashChain::new(1)).unwrap())
            .checkpoint_every(1)
            .publish_every(1, engine)
            .weight_sync(WeightSync::Drain)
    }
}

/// Everything about a run that an interruption must not change: each batch with all its groups' data, the training step
/// of the weights that wrote each span in place of the version's number (one that was begun and never installed is used
/// up), and the weights after each step. Times are those of the session that a group was made in.
fn outcome(journal: &DirJournal) -> Vec<(Vec<String>, Digest)> {
    let events = journal.memory.events();
    let (mut steps_of, mut batches, mut weights) = (BTreeMap::<Version, TrainingStep>::new(), Vec::new(), Vec::new());
    for event in &events {
        match &event.kind {
            EventKind::Published { version, step, .. } => drop(steps_of.insert(*version, *step)),
            EventKind::Stepped { weights: after, .. } => weights.push(*after),
            EventKind::BatchTaken { groups, .. } => {
                let data = |id: &GroupId| {
                    let mut group = journal.memory.payload(id).unwrap();
                    for sample in &mut group.samples {
                        sample.times = SampleTimes::default();
                        for span in &mut sample.spans {
                            let SpanVersion::Exact(version) = span.version else { panic!("{:?}", span.version) };
                            span.version = SpanVersion::Exact(Version(steps_of[&version].0));
                        }
                    }
                    format!("{:?} {:?} {:?}", group.id, group.prompt, group.samples)
                };
                batches.push(groups.iter().map(|taken| data(&taken.id)).collect::<Vec<_>>());
            }
            _ => {}
        }
    }
    assert_eq!(batches.len(), weights.len(), "each batch is stepped once");
    batches.into_iter().zip(weights).collect()
}

/// Kills the run after each of these numbers of events (counted by session), then lets it continue to its end.
async fn interrupted(scope: Scope, kills: &[u64], saves: bool) -> Vec<(Vec<String>, Digest)> {
    let journal = DirJournal::new();
    for &events in kills {
        let kill = Kill::after(events, saves);
        let (run, engine) = (kill.open(&journal), scope.engine());
        let mut steps = scope.pipeline(&run, &engine);
        let end = async { while let Ok(Some(_)) = steps.try_next().await {} };
        tokio::select! {
            biased;
            () = kill.killed.notified() => {}
            () = end => {}
        }
    }
    let (run, engine) = (journal.open(), scope.engine());
    let steps: Vec<Step> = scope.pipeline(&run, &engine).try_collect().await.unwrap();
    assert!(steps.iter().all(|step| step.equal != Some(false)));
    let report = anabranch_replay::verify(&journal.memory.events());
    assert!(report.is_clean(), "{report}");
    anabranch_replay::recompute(&journal.memory.events()).unwrap();
    outcome(&journal)
}

async fn killed_at_each_event(scope: Scope) {
    let whole = interrupted(scope, &[], true).await;
    assert!(whole.len() > 5, "{} batches", whole.len());
    let journal = DirJournal::new();
    let (run, engine) = (journal.open(), scope.engine());
    scope.pipeline(&run, &engine).try_collect::<Vec<_>>().await.unwrap();
    let events = journal.memory.events().len() as u64;
    for (kill, saves) in (1..events).flat_map(|kill| [(kill, true), (kill, false)]) {
        let again = interrupted(scope, &[kill], saves).await;
        let same = whole.iter().zip(&again).position(|(whole, again)| whole != again);
        assert_eq!(same, None, "killed after {kill} events: {:#?}", same.map(|at| (&whole[at], &again[at])));
        assert_eq!(whole.len(), again.len(), "killed after {kill} events");
    }
    for kill in (3..events / 2).step_by(7) {
        let again = interrupted(scope, &[kill, 5 + kill % 11, 3 + kill % 5], kill % 2 == 0).await;
        assert!(whole == again, "killed three times, first after {kill} events");
    }
}

#[tokio::test(start_paused = true)]
async fn one_group_in_flight_killed_at_each_event_gives_the_same_run() {
    killed_at_each_event(Scope::One).await;
}

#[tokio::test(start_paused = true)]
async fn equal_times_killed_at_each_event_give_the_same_run() {
    killed_at_each_event(Scope::EqualTimes).await;
}
