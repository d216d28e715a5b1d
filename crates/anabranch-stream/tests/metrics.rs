//! The metrics of a running run equal a plain count over its log, and the values that a recorder of the `metrics`
//! facade gets.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anabranch_core::{Batch, Cause, Digest, Event, EventKind, GroupId, Learner, LearnerError, StepReport, WeightSync};
use anabranch_metrics::{Gauges, Histogram, Metrics};
use anabranch_replay::{Audit, Durations, Series, audit};
use anabranch_sim::{End, HashChain, Reply, Sim};
use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Run, Samples, Unused, publish};
use anabranch_testing::journals::DirJournal;
use futures::{FutureExt, StreamExt, TryStreamExt};
use proptest::prelude::*;
use tokio::time::sleep;

use common::recorder::Ear;
use common::{Recorded, dataset, ms};

mod common;

#[derive(Clone, Debug)]
struct Setting {
    rows: u32,
    in_flight: usize,
    samples: u32,
    capacity: Option<usize>,
    batch: usize,
    limit: Option<u64>,
    publish_every: u64,
    mode: WeightSync,
    unused: Unused,
    training: u64,
    aborts: u64,
    seed: u64,
}

fn settings() -> impl Strategy<Value = Setting> {
    let mode = prop_oneof![Just(WeightSync::Retract), Just(WeightSync::Drain), Just(WeightSync::Abort)];
    let unused = prop_oneof![Just(Unused::Drop), (1..4_u32).prop_map(|max_attempts| Unused::Retry { max_attempts })];
    (
        (1..40_u32, 1..6_usize, 1..4_u32),
        (proptest::option::of(1..7_usize), 1..6_usize, proptest::option::of(0..4_u64)),
        (1..4_u64, mode, unused),
        (0..60_u64, 3..40_u64, any::<u64>()),
    )
        .prop_map(|((rows, in_flight, samples), (capacity, batch, limit), publication, times)| {
            let ((publish_every, mode, unused), (training, aborts, seed)) = (publication, times);
            Setting {
                rows,
                in_flight,
                samples,
                capacity,
                batch,
                limit,
                publish_every,
                mode,
                unused,
                training,
                aborts,
                seed,
            }
        })
}

/// A chain that measures an effective sample size: one over its updates.
struct Measured(HashChain, u64);

impl Learner for Measured {
    type Weights = u64;

    fn step(&mut self, batch: &Batch) -> Result<StepReport, LearnerError> {
        self.1 += 1;
        let metrics = BTreeMap::from([("ess".to_owned(), 1.0 / self.1 as f64), ("entropy".to_owned(), self.1 as f64)]);
        Ok(StepReport { metrics, ..self.0.step(batch)? })
    }

    fn weights(&mut self) -> Result<u64, LearnerError> {
        self.0.weights()
    }

    fn published(&mut self) -> Result<Option<u64>, LearnerError> {
        self.0.published()
    }

    fn digest(&mut self) -> Result<Digest, LearnerError> {
        self.0.digest()
    }

    fn save(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.0.save(dir)
    }

    fn load(&mut self, dir: &Path) -> Result<(), LearnerError> {
        self.0.load(dir)
    }
}

fn engine(setting: &Setting) -> Sim {
    let (aborts, seed) = (setting.aborts, setting.seed);
    let engine = Sim::scripted(move |call| {
        let key = call.request.key;
        let drawn = (key.lease ^ seed).wrapping_mul(u64::from(key.sample) + 0x9e37_79b9).rotate_left(23);
        let end = if drawn % aborts == 0 { End::Abort("script".to_owned()) } else { End::Stop };
        Reply::tokens(1 + (drawn >> 8) as u32 % 9, ms((drawn >> 16) % 12)).ending(end)
    });
    engine.install_time(ms(seed % 9))
}

/// Trains up to `steps` steps, and looks at the run after each of them. The streams are gone afterwards.
async fn train(run: &Run, setting: &Setting, steps: usize, mut look: impl FnMut()) {
    let engine = engine(setting);
    let training = setting.training;
    let groups = run
        .prompts(dataset(setting.rows))
        .unused(setting.unused)
        .generate(&engine, InFlight::groups(setting.in_flight), Samples(setting.samples))
        .score(|response| response.response().len() as u32)
        .admit("most", |group| group.id.prompt.row % 11 != 5)
        .log(run)
        .boxed();
    let groups = match setting.capacity {
        Some(capacity) => groups.buffer(Capacity::groups(capacity)).boxed(),
        None => groups,
    };
    let groups = match setting.limit {
        Some(limit) => groups.fresh(MaxStaleness(limit)).boxed(),
        None => groups,
    };
    let batches = groups.batch(setting.batch).emit_partial().then(move |batch| async move {
        sleep(ms(training)).await;
        batch
    });
    let learner = run.restore(Measured(HashChain::new(0), 0)).unwrap();
    let trained = batches
        .train(learner)
        .checkpoint_every(2)
        .publish_every(setting.publish_every, &engine)
        .weight_sync(setting.mode);
    let mut trained = trained.take(steps);
    while trained.try_next().await.unwrap().is_some() {
        look();
    }
}

fn virtually<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(work)
}

fn same_series(name: &str, found: &Histogram, expected: &Series) {
    assert_eq!(found.count(), expected.count(), "{name}: {found:?} {expected:?}");
    assert_eq!((found.sum(), found.max()), (expected.sum(), expected.max()), "{name}");
    assert_eq!(found.unknown(), expected.unknown, "{name}");
    let mut above = None;
    for (bound, count) in found.buckets() {
        let inside = |value: u64| above.is_none_or(|above| value > above) && bound.is_none_or(|bound| value <= bound);
        let expected: u64 =
            expected.histogram.iter().filter(|(value, _)| inside(**value)).map(|(_, count)| count).sum();
        assert_eq!(count, expected, "{name}: bucket {bound:?}");
        above = bound;
    }
}

fn same_durations(name: &str, found: &Histogram, expected: &Durations) {
    let longest = (expected.count > 0).then_some(expected.max_ns);
    assert_eq!((found.count(), found.sum(), found.max()), (expected.count, expected.total_ns, longest), "{name}");
}

/// The snapshot equals the audit of the log, which counts independently.
fn same_as_audit(metrics: &Metrics, audit: &Audit) {
    let Metrics { counters, gauges, histograms, .. } = metrics;
    assert_eq!(counters.leased, audit.groups.leased);
    assert_eq!(counters.reissued, audit.reissued);
    assert_eq!(counters.consumed, audit.groups.consumed);
    assert_eq!(counters.excluded, audit.groups.excluded);
    assert_eq!(counters.filtered, audit.filters);
    assert_eq!(counters.exhausted, audit.exhausted);
    assert_eq!(counters.generated_tokens, audit.tokens.generated);
    assert_eq!(counters.consumed_tokens, audit.tokens.consumed);
    assert_eq!(counters.wasted_tokens, audit.tokens.wasted);
    assert_eq!(counters.batches, audit.learner.batches);
    assert_eq!(counters.publications, audit.publications.published);
    assert_eq!(gauges.version, audit.publications.version);
    assert_eq!(gauges.updates, audit.learner.updates);
    same_series("consumed gap", &histograms.consumed.gap, &audit.gap.consumed);
    same_series("generation part", &histograms.consumed.generation, &audit.gap.consumed_generation);
    same_series("consumed step lag", &histograms.consumed.step_lag, &audit.step_lag);
    same_series("excluded gap", &histograms.excluded.gap, &audit.gap.excluded);
    same_series("buffered gap", &gauges.buffered_gap, &audit.gap.buffered);
    same_durations("learner wait", &histograms.learner_wait, &audit.learner.wait);
    same_durations("training", &histograms.training, &audit.learner.training);
    same_durations("paused", &histograms.paused, &audit.publications.pause);
    for gaps in [&histograms.consumed, &histograms.excluded] {
        assert_eq!(gaps.generation.sum() + gaps.queue.sum(), gaps.gap.sum(), "the parts add up to the gap");
        assert_eq!(gaps.queue.count(), gaps.gap.count());
    }
}

/// At every moment a lease is in exactly one place.
fn conserved(metrics: &Metrics) {
    let Metrics { counters, gauges, .. } = metrics;
    let open = gauges.in_flight + gauges.waiting + gauges.queue.unwrap_or(0) + gauges.taken;
    assert_eq!(
        counters.leased,
        counters.consumed + counters.excluded.values().sum::<u64>() + open as u64,
        "{metrics:?}"
    );
}

/// The time in which the buffer was empty, was full, and made a group wait, computed from a log that leaves no group in
/// the buffer.
fn queue_times(events: &[Event], capacity: usize) -> [Duration; 3] {
    let mut completed: BTreeMap<&GroupId, u64> = BTreeMap::new();
    // (time, groups in the buffer, groups that wait for room)
    let mut changes: Vec<(u64, i64, i64)> = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::Completed { id, .. } => {
                completed.insert(id, event.at);
            }
            EventKind::Admitted { id } => {
                changes.push((event.at, 1, 0));
                if event.enablers.iter().any(|enabler| enabler.cause == Cause::Room) {
                    changes.extend([(completed[id], 0, 1), (event.at, 0, -1)]);
                }
            }
            EventKind::Excluded { dequeued: Some(left), .. } => changes.push((*left, -1, 0)),
            EventKind::BatchTaken { groups, .. } => {
                changes.extend(groups.iter().map(|group| (group.dequeued.expect("it was in the buffer"), -1, 0)));
            }
            _ => {}
        }
    }
    let end = events.last().map_or(0, |event| event.at);
    changes.push((end, 0, 0));
    changes.sort_unstable_by_key(|(at, ..)| *at);
    let (mut before, mut inside, mut waiting) = (events[0].at, 0, 0);
    let mut times = [0; 3];
    for (at, entered, arrived) in changes {
        let passed = at - before;
        times[0] += if inside == 0 { passed } else { 0 };
        times[1] += if inside >= capacity as i64 { passed } else { 0 };
        times[2] += if waiting > 0 { passed } else { 0 };
        (before, inside, waiting) = (at, inside + entered, waiting + arrived);
    }
    assert_eq!((inside, waiting), (0, 0), "all that entered has left");
    times.map(Duration::from_nanos)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_says_what_the_log_and_a_recorder_say(setting in settings()) {
        let ear = Ear::default();
        metrics::with_local_recorder(&ear, || virtually(async {
            let recorded = Recorded::new();
            let run = &recorded.run;
            train(run, &setting, usize::MAX, || {
                let metrics = run.metrics();
                same_as_audit(&metrics, &audit(&recorded.events()));
                conserved(&metrics);
                assert_eq!(metrics.gauges.effective_sample_size, Some(1.0 / metrics.gauges.step.0 as f64));
                assert_eq!(metrics.gauges.learner["entropy"] as u64, metrics.gauges.step.0);
                ear.agrees_with(run);
            }).await;
            // What follows the end of the run counts for nothing.
            sleep(ms(1000)).await;
            let (metrics, events) = (run.metrics(), recorded.events());
            same_as_audit(&metrics, &audit(&events));
            conserved(&metrics);
            let counters = &metrics.counters;
            let times = [counters.queue_empty, counters.queue_full, counters.producer_blocked];
            let entered = counters.admitted > 0;
            let expected = setting.capacity.filter(|_| entered).map(|capacity| queue_times(&events, capacity));
            assert_eq!(times, expected.map_or([None; 3], |times| times.map(Some)));
            assert_eq!(metrics.gauges.queue_capacity, setting.capacity.filter(|_| entered));
            ear.agrees_with(run);
        }));
    }

    /// A session ends at any point and the next one continues: metrics from the log count over both.
    #[test]
    fn a_resumed_run_goes_on_counting(setting in settings(), steps in 0..5_usize) {
        virtually(async {
            let journal = DirJournal::new();
            let run = journal.open();
            train(&run, &setting, steps, || {}).await;
            let before = run.metrics();
            drop(run);
            let ear = Ear::default();
            let run = metrics::with_local_recorder(&ear, || journal.open());
            let after = run.metrics();
            let (leased, batches) = (before.counters.leased, before.counters.batches);
            let told = ["anabranch_leased_total", "anabranch_batches_total"].map(|name| ear.counter(name));
            assert_eq!(told, [leased, batches], "a recorder is told at once what earlier sessions counted");
            assert_eq!((&after.counters.leased, &after.histograms), (&before.counters.leased, &before.histograms));
            assert_eq!((after.gauges.in_flight, after.counters.queue_empty), (0, None), "of this session");
            train(&run, &setting, usize::MAX, || {}).await;
            same_as_audit(&run.metrics(), &audit(&journal.memory.events()));
        });
    }
}

/// Two slots of 10 ms, a buffer for two, and a consumer that looks into it every 30 ms through an adaptor that keeps each
/// group for another 20 ms.
#[tokio::test(start_paused = true)]
async fn the_places_of_groups_between_two_operators() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(10)));
    let run = &recorded.run;
    publish(run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let groups = run.prompts(dataset(6)).generate(&engine, InFlight::groups(2), Samples(1));
    let groups = groups.buffer(Capacity::groups(2)).then(|group| async {
        sleep(ms(20)).await;
        group
    });
    let mut groups = std::pin::pin!(groups);
    assert_eq!(run.metrics().gauges.queue, None, "the buffer is not known yet");
    let places = || {
        let Gauges { in_flight, waiting, queue, taken, .. } = run.metrics().gauges;
        (in_flight, waiting, queue, taken)
    };
    // The first poll starts the chain. Both slots fill the buffer at 10 ms, and at 20 ms two groups wait for room.
    assert!(groups.next().now_or_never().is_none());
    sleep(ms(5)).await;
    assert_eq!((places(), run.metrics().gauges.queue_capacity), ((2, 0, None, 0), None));
    sleep(ms(10)).await;
    assert_eq!((places(), run.metrics().gauges.queue_capacity), ((2, 0, Some(2), 0), Some(2)));
    sleep(ms(15)).await;
    assert_eq!(places(), (0, 2, Some(2), 0));
    // At 30 ms one leaves, is held by the adaptor until 50 ms, and lets one in.
    let first = groups.next();
    let mut first = std::pin::pin!(first);
    assert!(first.as_mut().now_or_never().is_none());
    sleep(ms(5)).await;
    assert_eq!(places(), (0, 1, Some(2), 1), "out of the buffer, in no batch");
    let first = first.await.unwrap().unwrap();
    let counters = run.metrics().counters;
    let times = [counters.queue_empty, counters.queue_full, counters.producer_blocked];
    assert_eq!(times, [Some(ms(10)), Some(ms(40)), Some(ms(30))], "from 0, from 10 and from 20 ms, until 50 ms");
    assert_eq!(places(), (0, 1, Some(2), 1));
    drop(first);
    assert_eq!(places(), (0, 1, Some(2), 0), "dropped by its user");
}

/// A buffer bounded by bytes is full while a group waits, however few groups it holds.
#[tokio::test(start_paused = true)]
async fn a_buffer_without_room_for_the_next_group_is_full() {
    let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(10)));
    let run = &recorded.run;
    publish(run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    // A group of one sample with two tokens and one log-prob takes 13 bytes.
    let capacity = Capacity::groups(10).and_bytes(20);
    let mut groups = run.prompts(dataset(3)).generate(&engine, InFlight::groups(1), Samples(1)).buffer(capacity);
    assert!(groups.next().now_or_never().is_none());
    sleep(ms(45)).await;
    let Metrics { counters, gauges, .. } = run.metrics();
    assert_eq!((gauges.queue, gauges.waiting, gauges.queue_capacity), (Some(1), 1, Some(10)));
    let times = [counters.queue_empty, counters.queue_full, counters.producer_blocked];
    assert_eq!(times, [Some(ms(10)), Some(ms(25)), Some(ms(25))], "one enters at 10 ms, the next waits from 20 ms on");
}
