//! Pipelines on a scripted engine in virtual time, with settings as what-if questions name them.

use std::sync::Arc;
use std::time::Duration;

use anabranch_core::{Dataset, Event, Fields, Journal, WeightSync};
use anabranch_replay::{Recorder, Recording, Settings};
use anabranch_sim::{Chunking, End, HashChain, Reply, Sim};
use anabranch_stream::{Capacity, Granularity, InFlight, MaxStaleness, RolloutExt, Samples, Unused};
use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;
use tokio::time::sleep;

use crate::journals::{DirJournal, Intercepted, OnAppend};

mod happened;

pub use happened::{Happened, first_difference, happened, predicted, steps};

/// What a scripted run does, whatever its settings.
#[derive(Clone, Debug)]
pub struct Script {
    /// Rows of the dataset.
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
    /// What everything is drawn from.
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

/// Milliseconds.
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

    /// The events of a run with these settings, killed so many milliseconds into each session but the last. If there
    /// are `modes`, each session publishes under the next one of them.
    pub async fn run(&self, settings: &Settings, kills: &[u64], modes: &[WeightSync]) -> Vec<Event> {
        let kept = DirJournal::new();
        // A run that is never killed makes no checkpoints.
        let inner: Arc<dyn Journal> = if kills.is_empty() { kept.memory.clone() } else { kept.clone() };
        let ack = self.delays.ack;
        let late = move |events: &[Event]| {
            let first = events.first().map_or(0, |event| event.seq.0);
            mix(first).checked_rem(ack).map_or(OnAppend::Pass, |delay| OnAppend::AcknowledgeAfter(ms(delay)))
        };
        let journal = Arc::new(Intercepted::new(inner).on_append(late));
        let changed = modes.len() > 1;
        let mut modes = modes.iter().copied().cycle();
        let mut settings = || Settings { mode: modes.next().or(settings.mode), ..settings.clone() };
        for &kill in kills {
            let settings = settings();
            let session = self.session(&settings, changed, &kept, journal.clone());
            if tokio::time::timeout(ms(kill), session).await.is_ok() {
                return kept.memory.events();
            }
        }
        self.session(&settings(), changed, &kept, journal).await;
        kept.memory.events()
    }

    async fn session(&self, settings: &Settings, changed: bool, kept: &DirJournal, journal: Arc<dyn Journal>) {
        let run = &kept.next_session(journal).accept_changes(changed).open().unwrap();
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
