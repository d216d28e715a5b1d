use super::*;
use anabranch_core::{Digest, Enabler, Fields, SampleSummary, SampleTimes, Status};

use crate::{GapHistograms, Histogram};

/// A meter that gets events at chosen times.
#[derive(Default)]
struct Log {
    meter: Meter,
    next: u64,
}

impl Log {
    fn at(&mut self, at: u64, kind: EventKind, enablers: Vec<Enabler>) -> Seq {
        let seq = Seq(self.next);
        self.next += 1;
        self.meter.apply(&Event { seq, session: 0, at, wall_ms: 0, enablers, delay: 0, kind });
        seq
    }

    fn publish(&mut self, version: u64, step: u64) {
        let (version, step) = (Version(version), TrainingStep(step));
        let kind =
            EventKind::Published { version, step, updates: 0, weights: Digest::default(), pause_began: 0, paused: 0 };
        self.at(0, kind, Vec::new());
    }

    fn step(&mut self, step: u64, metrics: &[(&str, f64)]) {
        let metrics = metrics.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let (step, weights) = (TrainingStep(step), Digest::default());
        self.at(0, EventKind::Stepped { step, updates: step.0, loss: 0.5, metrics, weights }, Vec::new());
    }

    fn complete(&mut self, row: u64, oldest: Option<OldestVersion>) {
        let sample = SampleSummary {
            status: Status::Completed,
            generated: 10,
            reward: None,
            oldest,
            newest: None,
            times: SampleTimes::default(),
        };
        let summary = GroupSummary { expected: 1, samples: vec![sample] };
        self.at(0, EventKind::Completed { id: id(row), summary, payload: Digest::default() }, Vec::new());
    }

    fn exclude(&mut self, row: u64, reason: Reason, then: Then) {
        self.at(0, EventKind::Excluded { id: id(row), reason, then, dequeued: None }, Vec::new());
    }

    fn take(&mut self, at: u64, row: u64, gap: Option<u64>, free: Seq) {
        let groups = vec![TakenGroup { id: id(row), dequeued: None, gap, step_lag: gap.map(|gap| 3 * gap) }];
        let kind = EventKind::BatchTaken { step: TrainingStep(1), version: None, groups, digest: Digest::default() };
        self.at(at, kind, vec![Enabler { cause: Cause::LearnerFree, moment: Moment::Event(free) }]);
    }
}

fn id(row: u64) -> GroupId {
    format!("d/0/{row}").parse().unwrap()
}

/// The worked example of `docs/semantics.md`: begun under v3, finished under v4, v5 published while the group waits.
#[test]
fn a_gap_has_a_generation_part_and_a_queue_part() {
    let mut log = Log::default();
    for version in 0..5 {
        log.publish(version, 3 * version);
    }
    let v3 = Some(OldestVersion::Known(Version(3)));
    for (row, oldest) in (0..).zip([v3, v3, Some(OldestVersion::Unknown), None]) {
        log.complete(row, oldest);
    }
    log.publish(5, 15);
    log.step(16, &[]);
    log.take(0, 0, Some(2), Seq(0));
    log.exclude(1, Reason::Stale { gap: 2 }, Then::Drop);
    log.exclude(2, Reason::UnknownVersion, Then::Drop);
    log.exclude(3, Reason::Aborted, Then::Drop);
    let Metrics { counters, histograms: Histograms { consumed, excluded, .. }, .. } = log.meter.metrics();
    let values = |histogram: &Histogram| (histogram.count(), histogram.sum(), histogram.unknown());
    let all = |gaps: &GapHistograms| [&gaps.gap, &gaps.generation, &gaps.queue, &gaps.step_lag].map(values);
    assert_eq!(all(&consumed), [(1, 2, 0), (1, 1, 0), (1, 1, 0), (1, 6, 0)]);
    assert_eq!(all(&excluded), [(1, 2, 1), (1, 1, 1), (1, 1, 1), (1, 16 - 9, 1)], "no token, no version: in none");
    assert_eq!((counters.consumed_tokens, counters.wasted_tokens.values().sum::<u64>()), (10, 30));
    assert_eq!(log.meter.unsettled().count(), 0);
}

#[test]
fn the_wait_counts_from_what_the_batch_names() {
    let mut log = Log::default();
    let opened = EventKind::RunOpened { library: String::new(), format: 1, settings: Fields::new() };
    let opened = log.at(5, opened, Vec::new());
    log.at(40, EventKind::GenerationResumed { version: Version(0) }, Vec::new());
    log.take(100, 0, None, opened);
    log.take(200, 0, None, opened);
    let histograms = log.meter.metrics().histograms;
    assert_eq!((histograms.learner_wait.count(), histograms.learner_wait.sum()), (1, 95), "unknown is absent, not 0");
    assert_eq!(histograms.consumed.gap.unknown(), 2);
}

#[test]
fn labels_are_bounded_and_what_is_no_longer_measured_is_absent() {
    let mut log = Log::default();
    for attempt in [1, 2, 2, 16, 900] {
        log.exclude(0, Reason::Aborted, Then::Retry(GroupId { attempt, ..id(0) }));
    }
    assert_eq!(log.meter.metrics().counters.retried, BTreeMap::from([(1, 1), (2, 2), (16, 2)]));
    log.step(1, &[("ess", 0.25), ("entropy", 1.5)]);
    let gauges = log.meter.metrics().gauges;
    assert_eq!((gauges.effective_sample_size, gauges.learner["entropy"], gauges.loss), (Some(0.25), 1.5, Some(0.5)));
    log.step(2, &[("entropy", 1.25)]);
    let gauges = log.meter.metrics().gauges;
    assert_eq!((gauges.effective_sample_size, gauges.learner), (None, BTreeMap::from([("entropy".to_owned(), 1.25)])));
    let names: Vec<String> = (0..100).map(|index| index.to_string()).collect();
    log.step(3, &names.iter().map(|name| (name.as_str(), 0.0)).collect::<Vec<_>>());
    assert_eq!(log.meter.learner.len(), LEARNER_METRICS);
}

#[test]
fn times_of_an_earlier_session_mean_nothing() {
    let mut log = Log::default();
    log.take(1000, 0, None, Seq(9));
    let resumed = log.at(0, EventKind::RunResumed { library: String::new(), lost: 0 }, Vec::new());
    log.step(1, &[]);
    assert_eq!(log.meter.metrics().histograms.training.count(), 0);
    log.take(30, 1, None, resumed);
    log.at(70, EventKind::GenerationResumed { version: Version(0) }, Vec::new());
    let histograms = log.meter.metrics().histograms;
    assert_eq!((histograms.learner_wait.sum(), histograms.paused.count()), (30, 0));
}
