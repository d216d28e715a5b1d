//! Pipelines on a scripted engine in virtual time, with settings as what-if questions name them.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anabranch_core::{
    Dataset, Event, EventKind, Fields, GroupId, MemoryJournal, OldestVersion, ResumeState, WeightSync,
};
use anabranch_metrics::Meter;
use anabranch_replay::{Fate, Recorder, Recording, Settings};
use anabranch_sim::{Chunking, End, HashChain, Reply, Sim};
use anabranch_stream::{Capacity, Granularity, InFlight, MaxStaleness, RolloutExt, Run, Samples, Unused, tokio_clock};
use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;
use tokio::time::sleep;

use journal::SlowJournal;

mod journal;

/// What a scripted run does, whatever its settings.
#[derive(Clone, Debug)]
pub struct Script {
    pub rows: u32,
    /// Milliseconds a token takes, from 1; a large bound keeps moments apart.
    pub pace: u64,
    /// Tokens of a sample, from 1.
    pub tokens: u32,
    /// Milliseconds a step takes, from 1.
    pub training: u64,
    /// Whether all steps take as long.
    pub steady: bool,
    /// Milliseconds an installation takes.
    pub install: u64,
    /// One sample in so many is aborted.
    pub aborts: u64,
    /// One row in so many is filtered.
    pub filter: u32,
    pub seed: u64,
    /// How else time passes.
    pub delays: Delays,
}

/// What takes time beside generation, training and installation: up to so many milliseconds each.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    /// A reward, from a call.
    pub scoring: u64,
    /// The journal's acknowledgement.
    pub ack: u64,
    /// The loop around the pipeline, between two steps.
    pub between: u64,
    /// Whether chunks end at publications only, so that first tokens are told late.
    pub late_tokens: bool,
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn mix(mut state: u64) -> u64 {
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

impl Script {
    fn engine(&self) -> Sim {
        let script = self.clone();
        Sim::scripted(move |call| {
            let key = call.request.key;
            let drawn = mix(key.lease ^ mix(script.seed ^ u64::from(key.sample)));
            let end = if drawn.is_multiple_of(script.aborts) { End::Abort("script".to_owned()) } else { End::Stop };
            let tokens = 1 + (drawn >> 8) as u32 % script.tokens;
            let time = |token: u32| ms(1 + mix(drawn ^ mix(u64::from(token) + 1)) % script.pace);
            Reply::timed((0..tokens).map(time).collect()).ending(end)
        })
        .chunking(if self.delays.late_tokens { Chunking::Publication } else { Chunking::Token })
        .install_time(ms(self.install))
    }

    fn training(&self, step: u64) -> Duration {
        if self.steady { ms(self.training) } else { ms(1 + mix(self.seed ^ mix(step)) % self.training) }
    }

    /// The events of a run with these settings, killed so many milliseconds into each session but the last. Where there
    /// are `modes`, each session publishes under the next one of them.
    pub async fn run(&self, settings: &Settings, kills: &[u64], modes: &[WeightSync]) -> Vec<Event> {
        let dir = (!kills.is_empty()).then(|| tempfile::tempdir().unwrap());
        let (memory, checkpoints) = (MemoryJournal::new(), Mutex::default());
        let journal = Arc::new(SlowJournal { memory, ack: self.delays.ack, dir, checkpoints });
        let changed = modes.len() > 1;
        let mut modes = modes.iter().copied().cycle();
        let mut settings = || Settings { mode: modes.next().or(settings.mode), ..settings.clone() };
        for &kill in kills {
            let settings = settings();
            let session = self.session(&settings, changed, journal.clone());
            if tokio::time::timeout(ms(kill), session).await.is_ok() {
                return journal.memory.events();
            }
        }
        self.session(&settings(), changed, journal.clone()).await;
        journal.memory.events()
    }

    async fn session(&self, settings: &Settings, changed: bool, journal: Arc<SlowJournal>) {
        let events = journal.memory.events();
        let meter = Meter::of(&events);
        let mut past = if events.is_empty() { ResumeState::default() } else { anabranch_core::resume(events).unwrap() };
        past.checkpoints = journal.checkpoints.lock().unwrap().iter().rev().cloned().collect();
        let run = &Run::builder("test")
            .journal(journal)
            .resume(past, meter)
            .clock(tokio_clock())
            .accept_changes(changed)
            .open()
            .unwrap();
        let engine = self.engine();
        let learner = run.restore(HashChain::new(0)).unwrap();
        let rows = (0..self.rows).map(|row| (vec![row], Fields::new())).collect();
        let unused = settings.max_attempts.map_or(Unused::Drop, |max_attempts| Unused::Retry { max_attempts });
        let (filter, script) = (self.filter, self.clone());
        let groups = run
            .prompts(Dataset::new("d", rows).unwrap())
            .unused(unused)
            .generate(&engine, InFlight::groups(settings.in_flight), Samples(settings.samples as u32))
            .sampling(anabranch_core::Sampling { max_tokens: 1000, ..Default::default() })
            .granularity(if settings.slot_per_sample { Granularity::Sample } else { Granularity::Group })
            .boxed();
        let scoring = self.delays.scoring;
        let groups = if scoring > 0 {
            let judge = move |response: anabranch_stream::OwnedResponse| async move {
                sleep(ms(
                    mix(u64::from(response.sample.tokens[0]) ^ mix(response.sample.tokens.len() as u64)) % scoring
                ))
                .await;
                Ok::<_, String>(1.0)
            };
            groups.score_async(judge).boxed()
        } else {
            groups.score(|response| response.response().len() as u32).boxed()
        };
        let groups = groups
            .admit("most", move |group| group.id.prompt.row % u64::from(filter) != u64::from(filter) - 1)
            .log(run)
            .boxed();
        let groups = match settings.capacity {
            Some(capacity) => groups.buffer(Capacity::groups(capacity)).boxed(),
            None => groups,
        };
        let groups = match settings.max_staleness {
            Some(limit) => groups.fresh(MaxStaleness(limit)).boxed(),
            None => groups,
        };
        let batches = groups.batch(settings.batch);
        let batches = if settings.emit_partial { batches.emit_partial() } else { batches };
        let steps = batches
            .then(move |batch| {
                let training = batch.as_ref().map_or(Duration::ZERO, |batch| script.training(batch.step.0));
                async move {
                    sleep(training).await;
                    batch
                }
            })
            .train(learner)
            .checkpoint_every(3)
            .publish_every(settings.update_interval.unwrap(), &engine)
            .weight_sync(settings.mode.unwrap());
        let between = self.delays.between;
        let steps = steps.and_then(|step| async move {
            if between > 0 {
                sleep(ms(mix(step.step.0) % between)).await;
            }
            Ok(step)
        });
        steps.try_collect::<Vec<_>>().await.unwrap();
    }

    /// The same on a runtime of its own.
    pub fn events(&self, settings: &Settings) -> Vec<Event> {
        self.sessions(settings, &[], &[])
    }

    /// The same, killed on the way.
    pub fn sessions(&self, settings: &Settings, kills: &[u64], modes: &[WeightSync]) -> Vec<Event> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(self.run(settings, kills, modes))
    }
}

/// What a what-if question needs of a log.
pub fn record(events: &[Event]) -> Recording {
    let mut recorder = Recorder::new();
    for event in events {
        recorder.push(event);
    }
    recorder.finish().unwrap()
}

/// Scripts whose tokens take up to `pace` ms: a large bound keeps moments apart, a small one makes them fall together.
pub fn script(pace: u64) -> impl Strategy<Value = Script> {
    let sizes = (20..120_u32, 1..9_u32);
    let training = (1..4 * pace, any::<bool>(), 0..1 + pace / 3);
    (sizes, training, 3..40_u64, 2..12_u32, any::<u64>()).prop_map(
        move |((rows, tokens), (training, steady, install), aborts, filter, seed)| Script {
            rows,
            pace,
            tokens,
            training,
            steady,
            install,
            aborts,
            filter,
            seed,
            delays: Delays::default(),
        },
    )
}

/// Which samples an aborting publication strikes depends on the order in which the engine wakes them, which no log tells:
/// that mode has tests of its own.
pub fn any_mode() -> impl Strategy<Value = WeightSync> {
    prop_oneof![Just(WeightSync::Retract), Just(WeightSync::InPlace), Just(WeightSync::Drain)]
}

/// Settings of all kinds.
pub fn any_settings() -> impl Strategy<Value = Settings> {
    let generation = (1..6_usize, 1..4_usize, any::<bool>(), proptest::option::of(1..7_usize));
    let training = (proptest::option::of(0..4_u64), 1..6_usize, any::<bool>(), 1..4_u64);
    (generation, training, any_mode(), proptest::option::of(1..4_u32)).prop_map(
        |(generation, (max_staleness, batch, emit_partial, interval), mode, max_attempts)| {
            let (in_flight, samples, slot_per_sample, capacity) = generation;
            Settings {
                in_flight,
                samples,
                slot_per_sample,
                capacity,
                max_staleness,
                batch,
                emit_partial,
                update_interval: Some(interval),
                mode: Some(mode),
                max_attempts,
                ..settings()
            }
        },
    )
}

/// A configuration of property tests.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Settings that a pipeline may well have.
pub fn settings() -> Settings {
    Settings {
        in_flight: 4,
        samples: 2,
        slot_per_sample: true,
        capacity: Some(4),
        order: anabranch_replay::Order::Fifo,
        max_staleness: None,
        allow_unknown: false,
        batch: 3,
        emit_partial: false,
        update_interval: Some(1),
        mode: Some(WeightSync::Retract),
        max_attempts: None,
        steps: None,
    }
}

/// What happened to a group, by the log: its prompt's position and attempt, times, oldest version and fate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Happened {
    pub leased: u64,
    pub completed: Option<u64>,
    pub admitted: Option<u64>,
    pub dequeued: Option<u64>,
    pub settled: Option<u64>,
    pub oldest: Option<u64>,
    pub fate: Option<Fate>,
}

/// All groups of a log, by position and attempt.
pub fn happened(events: &[Event]) -> BTreeMap<(u64, u32), Happened> {
    let mut groups: BTreeMap<(u64, u32), Happened> = BTreeMap::new();
    let key = |id: &GroupId| (id.prompt.row, id.attempt);
    for event in events {
        match &event.kind {
            EventKind::Leased { id, .. } => {
                groups.insert(key(id), Happened { leased: event.at, fate: Some(Fate::Left), ..Happened::default() });
            }
            EventKind::Completed { id, summary, .. } => {
                let group = groups.get_mut(&key(id)).unwrap();
                group.completed = Some(event.at);
                group.oldest = summary.oldest().map(|oldest| match oldest {
                    OldestVersion::Known(version) => version.0,
                    OldestVersion::Unknown => panic!("the scripted engine knows its versions"),
                });
            }
            EventKind::Reissued { id, .. } => groups.get_mut(&key(id)).unwrap().leased = event.at,
            EventKind::Admitted { id } => groups.get_mut(&key(id)).unwrap().admitted = Some(event.at),
            EventKind::Excluded { id, reason, then, dequeued } => {
                let group = groups.get_mut(&key(id)).unwrap();
                (group.settled, group.dequeued) = (Some(event.at), *dequeued);
                let gap = if let anabranch_core::Reason::Stale { gap } = reason { Some(*gap) } else { None };
                let retried = matches!(then, anabranch_core::Then::Retry(_));
                group.fate = Some(Fate::Excluded { reason: reason.name(), gap, retried });
            }
            EventKind::BatchTaken { step, groups: taken, .. } => {
                for taken in taken {
                    let group = groups.get_mut(&key(&taken.id)).unwrap();
                    (group.settled, group.dequeued) = (Some(event.at), taken.dequeued);
                    group.fate = Some(Fate::Consumed { step: step.0, gap: taken.gap });
                }
            }
            _ => {}
        }
    }
    groups
}

/// The same of a prediction.
pub fn predicted(prediction: &anabranch_replay::Prediction) -> BTreeMap<(u64, u32), Happened> {
    let group = |group: &anabranch_replay::PredictedGroup| Happened {
        leased: group.leased_ns,
        completed: group.completed_ns,
        admitted: group.admitted_ns,
        // Of a group left in an unfinished batch the log does not tell it.
        dequeued: group.dequeued_ns.filter(|_| group.fate != Fate::Left),
        settled: group.settled_ns,
        oldest: group.oldest,
        fate: Some(group.fate),
    };
    prediction.groups.iter().map(|predicted| ((predicted.position, predicted.attempt), group(predicted))).collect()
}

/// The first group, by lease, that the two tell differently.
pub fn first_difference(
    happened: &BTreeMap<(u64, u32), Happened>,
    predicted: &BTreeMap<(u64, u32), Happened>,
) -> Option<String> {
    let mut differing: Vec<_> = happened
        .iter()
        .filter(|(key, group)| predicted.get(key) != Some(group))
        .map(|(key, group)| (group.leased.min(predicted.get(key).map_or(u64::MAX, |other| other.leased)), key))
        .chain(predicted.iter().filter(|(key, _)| !happened.contains_key(key)).map(|(key, group)| (group.leased, key)))
        .collect();
    differing.sort_unstable();
    let (_, key) = differing.first()?;
    Some(format!(
        "{} groups differ; the first, {key:?}:\nhappened {:?}\npredicted {:?}",
        differing.len(),
        happened.get(key),
        predicted.get(key)
    ))
}

/// Steps of a log: batch, step, installation.
pub fn steps(events: &[Event]) -> Vec<(u64, u64, Option<u64>)> {
    let mut steps = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::BatchTaken { .. } => steps.push((event.at, 0, None)),
            EventKind::Stepped { .. } => steps.last_mut().unwrap().1 = event.at,
            EventKind::Published { step, .. } if step.0 > 0 => steps.last_mut().unwrap().2 = Some(event.at),
            _ => {}
        }
    }
    steps
}
