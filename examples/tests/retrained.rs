//! Training again on the policy's own kernels: the demo's log alone gives the same weights, bit for bit, at every step, and
//! an interrupted run gives the same weights as an uninterrupted one. If a record was changed, the error names its step.

#[path = "../src/bin/async_grpo/optimizer.rs"]
mod optimizer;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anabranch::policy::{Device, DeviceChoice, Policy, PolicyLearner};
use anabranch::prelude::*;
use anabranch::{Batch, BoxError, Digest, Event, EventKind, Group, GroupId, ReadLog, Retrained, replay_log, retrain};

use demo::{demo, events, kill_after, succeeded};

mod demo;

const STEPS: u64 = 7;

type Change = fn(&mut Group);

/// The records of a run, in memory, so that a test can change them.
#[derive(Clone)]
struct Recording {
    events: Vec<Event>,
    payloads: BTreeMap<GroupId, Group>,
}

impl Recording {
    fn read(run_dir: &Path) -> Self {
        let log = ReadLog::open(run_dir).unwrap();
        let events: Vec<Event> = log.events().collect::<Result<_, _>>().unwrap();
        let taken = events.iter().filter_map(|event| match &event.kind {
            EventKind::BatchTaken { groups, .. } => Some(groups),
            _ => None,
        });
        let payloads = taken.flatten().map(|taken| (taken.id.clone(), log.payload(&taken.id).unwrap())).collect();
        Self { events, payloads }
    }

    /// Changes the first group of the batch of `step`, and the digest of the batch to match.
    fn change(&mut self, step: u64, change: impl FnOnce(&mut Group)) {
        for event in &mut self.events {
            if let EventKind::BatchTaken { step: taken, groups, digest, .. } = &mut event.kind
                && taken.0 == step
            {
                change(self.payloads.get_mut(&groups[0].id).unwrap());
                let payloads = groups.iter().map(|taken| (&taken.id, self.payloads[&taken.id].digest()));
                *digest = Batch::digest_of(payloads);
                return;
            }
        }
        panic!("no batch of step {step}");
    }

    /// Trains `learner` again on the records until the first error.
    async fn again(&self, learner: PolicyLearner) -> (Vec<Retrained>, Option<String>) {
        let payload = |id: &GroupId| self.payloads.get(id).cloned().ok_or_else(|| BoxError::from("not consumed"));
        let events = self.events.iter().cloned().map(Ok::<_, BoxError>);
        let mut steps = std::pin::pin!(retrain(replay_log(events, payload), learner));
        let mut made = Vec::new();
        loop {
            match steps.try_next().await {
                Ok(Some(step)) => made.push(step),
                Ok(None) => return (made, None),
                Err(error) => return (made, Some(error.to_string())),
            }
        }
    }
}

/// The learner as it was before the first step.
fn beginning(run_dir: &Path, device: Device) -> PolicyLearner {
    let past = ReadLog::open(run_dir).unwrap().resume_state().unwrap();
    let begun = past.checkpoints.iter().find(|checkpoint| checkpoint.cursor.step.0 == 0).unwrap();
    let mut learner = Policy::read(&begun.path, &device).unwrap().learner(optimizer::adamw()).unwrap();
    learner.load(&begun.path).unwrap();
    learner
}

/// The steps whose weights are not those recorded.
fn differing(made: &[Retrained]) -> Vec<u64> {
    made.iter().filter(|step| !step.is_equal()).map(|step| step.step.0).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_alone_trains_the_same_weights_and_a_changed_record_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("run");
    let flags = ["--steps", "7", "--in-flight", "4", "--capacity", "6", "--checkpoint-every", "4"];
    kill_after(&run_dir, 3, &flags);
    succeeded(&demo(&run_dir, &flags).output().unwrap());

    let again = Command::new(env!("CARGO_BIN_EXE_retrain_from_log"))
        .args(["--device", "wgpu", "--run-dir"])
        .arg(&run_dir)
        .output()
        .unwrap();
    let text = succeeded(&again);
    assert!(text.contains("7 steps trained again from the log; the weights are equal after every step"), "{text}");

    let device = Device::open(DeviceChoice::Wgpu).unwrap();
    let recording = Recording::read(&run_dir);
    let (made, error) = recording.again(beginning(&run_dir, device)).await;
    assert_eq!((made.len() as u64, error), (STEPS, None));
    assert!(made.iter().all(|step| step.recorded == Some(step.weights)), "{made:?}");

    let changes: [(u64, Change); 3] = [
        (3, |group| *group.samples[0].reward.as_mut().unwrap() += 0.25),
        (4, |group| group.samples[0].logprobs[0] -= 0.01),
        (5, |group| *group.samples[0].tokens.last_mut().unwrap() ^= 1),
    ];
    for (step, change) in changes {
        let mut changed = recording.clone();
        changed.change(step, change);
        let (made, error) = changed.again(beginning(&run_dir, device)).await;
        assert_eq!((differing(&made), error), ((step..=STEPS).collect(), None), "changed at step {step}");
    }

    // If the digest of the batch does not match, the batch is refused before a step is trained on it.
    let mut changed = recording.clone();
    let before = changed.events.clone();
    changed.change(3, |group| *group.samples[0].reward.as_mut().unwrap() += 0.25);
    changed.events = before;
    let (made, error) = changed.again(beginning(&run_dir, device)).await;
    assert_eq!((made.len(), differing(&made)), (2, Vec::new()));
    assert!(error.as_ref().is_some_and(|error| error.contains("training step 3")), "{error:?}");

    // If the recorded weights of one step are wrong, only that step differs.
    let mut changed = recording;
    for event in &mut changed.events {
        if let EventKind::Stepped { step, weights, .. } = &mut event.kind
            && step.0 == 5
        {
            weights.0[0] ^= 1;
        }
    }
    let (made, error) = changed.again(beginning(&run_dir, device)).await;
    assert_eq!((differing(&made), error), (vec![5], None));
}

/// The weights recorded after each step.
fn weights(run_dir: &Path) -> Vec<(u64, Digest)> {
    let stepped = |event: Event| match event.kind {
        EventKind::Stepped { step, weights, .. } => Some((step.0, weights)),
        _ => None,
    };
    events(run_dir).into_iter().filter_map(stepped).collect()
}

/// A run for which equality is promised: one group in flight, so that groups are admitted in the order of submission; no
/// buffer, so that each publication comes after the same leases; the drain mode; a checkpoint at each publication.
#[test]
fn an_interrupted_demo_trains_the_weights_of_the_uninterrupted_one() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["--steps", "6", "--sync", "--in-flight", "1", "--in-flight-mode", "drain", "--checkpoint-every", "1"];
    let whole = dir.path().join("whole");
    succeeded(&demo(&whole, &flags).output().unwrap());

    let killed = dir.path().join("killed");
    kill_after(&killed, 2, &flags);
    kill_after(&killed, 4, &flags);
    succeeded(&demo(&killed, &flags).output().unwrap());
    let resumed = events(&killed).iter().filter(|event| event.kind.name() == "run_resumed").count();
    assert_eq!(resumed, 2);

    let expected = weights(&whole);
    assert_eq!(expected.iter().map(|(step, _)| *step).collect::<Vec<_>>(), (1..=6).collect::<Vec<_>>());
    assert_eq!(weights(&killed), expected);
}
