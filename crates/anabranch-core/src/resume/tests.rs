use std::collections::VecDeque;

use crate::{Digest, Fields, GroupSummary, OldestVersion, PromptId, Reason, TakenGroup, Value, Version, WeightSync};
use proptest::prelude::*;

use super::*;

/// A simple model of where each group is: groups move between lists. It writes the events of the moves.
#[derive(Default)]
struct Model {
    events: Vec<Event>,
    session: u32,
    rows: u64,
    in_flight: Vec<(GroupId, Seq, u32)>,
    waiting: Vec<(GroupId, Seq, Seq)>,
    buffer: Vec<(GroupId, Seq, Seq, Seq)>,
    retries: VecDeque<(GroupId, Seq)>,
    batches: Vec<(Seq, Vec<GroupId>, Option<Digest>)>,
    begun: u64,
    installed: Option<u64>,
    publishing: Option<u64>,
    closed: bool,
}

fn digest(of: u64) -> Digest {
    Digest::of(&of.to_le_bytes())
}

fn group_id(row: u64, attempt: u32) -> GroupId {
    GroupId { prompt: PromptId { dataset: "d".into(), epoch: 0, row }, attempt }
}

impl Model {
    fn record(&mut self, kind: EventKind) -> Seq {
        let seq = Seq(self.events.len() as u64);
        let session = self.session;
        self.events.push(Event { seq, session, at: 0, wall_ms: 0, enablers: Vec::new(), delay: 0, kind });
        seq
    }

    fn lease(&mut self, id: GroupId, position: Option<u64>) {
        let seq = self.record(EventKind::Leased { id: id.clone(), position });
        self.in_flight.push((id, seq, 0));
        self.closed = false;
    }

    fn exclude(&mut self, id: GroupId, reason: Reason, again: bool) {
        let next = id.retry();
        let then = if again { Then::Retry(next.clone()) } else { Then::Drop };
        let seq = self.record(EventKind::Excluded { id, reason, then, dequeued: None });
        if again {
            self.retries.push_back((next, seq));
        }
    }

    fn take(&mut self, size: usize) {
        let groups: Vec<GroupId> = self.buffer.drain(..size).map(|(id, ..)| id).collect();
        let step = TrainingStep(self.batches.len() as u64 + 1);
        let taken = |id: &GroupId| TakenGroup { id: id.clone(), dequeued: None, gap: Some(0), step_lag: None };
        let kind = EventKind::BatchTaken {
            step,
            version: self.installed.map(Version),
            groups: groups.iter().map(taken).collect(),
            digest: digest(step.0),
        };
        let seq = self.record(kind);
        self.batches.push((seq, groups, None));
        self.closed = false;
    }

    /// Makes the move `action` if it is possible; `pick` chooses the group.
    fn act(&mut self, action: u8, pick: usize) {
        let steps = self.batches.iter().filter(|(.., stepped)| stepped.is_some()).count() as u64;
        match action {
            0..=2 => {
                self.rows += 1;
                self.lease(group_id(self.rows, 0), Some(self.rows - 1));
            }
            3..=5 if !self.in_flight.is_empty() => {
                let (id, leased, _) = self.in_flight.remove(pick % self.in_flight.len());
                let summary = GroupSummary { expected: 0, samples: Vec::new() };
                let completed = self.record(EventKind::Completed { id: id.clone(), summary, payload: digest(0) });
                self.waiting.push((id, leased, completed));
            }
            6 | 7 if !self.waiting.is_empty() => {
                let (id, leased, completed) = self.waiting.remove(pick % self.waiting.len());
                let admitted = self.record(EventKind::Admitted { id: id.clone() });
                self.buffer.push((id, leased, completed, admitted));
            }
            8 if !self.waiting.is_empty() => {
                let (id, ..) = self.waiting.remove(pick % self.waiting.len());
                self.exclude(id, Reason::Aborted, pick.is_multiple_of(2));
            }
            9 if !self.buffer.is_empty() => {
                let (id, ..) = self.buffer.remove(pick % self.buffer.len());
                self.exclude(id, Reason::Stale { gap: 2 }, !pick.is_multiple_of(3));
            }
            10 if self.buffer.len() > 1 && steps == self.batches.len() as u64 => self.take(2),
            11 if steps < self.batches.len() as u64 => {
                let weights = digest(100 + steps);
                let kind = EventKind::Stepped {
                    step: TrainingStep(steps + 1),
                    updates: 2 * steps + 2,
                    loss: 0.0,
                    metrics: std::collections::BTreeMap::new(),
                    weights,
                };
                self.record(kind);
                self.batches[steps as usize].2 = Some(weights);
            }
            12 if self.publishing.is_none() => {
                let (version, step, weights) = (Version(self.begun), TrainingStep(steps), digest(self.begun));
                let mode = WeightSync::Retract;
                self.record(EventKind::Publishing { version, step, updates: 2 * steps, weights, mode });
                self.publishing = Some(self.begun);
                self.begun += 1;
            }
            13 => {
                if let Some(begun) = self.publishing.take() {
                    let (version, step, weights) = (Version(begun), TrainingStep(steps), digest(begun));
                    let (pause_began, paused, updates) = (0, 0, 2 * steps);
                    self.record(EventKind::Published { version, step, updates, weights, pause_began, paused });
                    self.installed = Some(begun);
                }
            }
            14 => {
                if let Some((id, _)) = self.retries.pop_front() {
                    self.lease(id, None);
                }
            }
            15 if pick.is_multiple_of(4) => {
                self.record(EventKind::RunClosed { left: Vec::new() });
                self.closed = true;
            }
            16 => self.resume(pick),
            _ => {}
        }
    }

    /// Kills the process and starts it again with some of the leases in flight.
    fn resume(&mut self, pick: usize) {
        self.session += 1;
        self.publishing = None;
        self.record(EventKind::RunResumed { library: String::new(), lost: 0 });
        for index in 0..self.in_flight.len().min(pick % 4) {
            let (id, _, reissues) = self.in_flight[index].clone();
            let seq = self.record(EventKind::Reissued { id: id.clone(), reissue: reissues + 1 });
            self.in_flight[index] = (id, seq, reissues + 1);
            self.closed = false;
        }
    }
}

fn history(actions: &[(u8, usize)]) -> Model {
    let mut model = Model::default();
    let settings = Fields::from([("seed".to_owned(), Value::Int(7))]);
    model.record(EventKind::RunOpened { library: String::new(), format: FORMAT, settings });
    for &(action, pick) in actions {
        model.act(action, pick);
    }
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// For every history, cut at any point, the fold finds every group where the model has it.
    #[test]
    fn the_fold_agrees_with_a_plain_model(actions in proptest::collection::vec((0..17_u8, 0..100_usize), 0..250)) {
        let model = history(&actions);
        let past = resume(model.events.clone()).unwrap();
        prop_assert_eq!(past.next_seq, Seq(model.events.len() as u64));
        let unsettled = past.open.len() + past.queued.len();
        prop_assert_eq!((past.session, past.position, past.closed), (model.session + 1, model.rows, model.closed));
        let open = model.in_flight.into_iter().map(|(id, leased, reissues)| OpenLease { id, leased, reissues });
        prop_assert_eq!(past.open, open.collect::<Vec<_>>());
        let retries = model.retries.into_iter().map(|(lease, excluded)| Retry { lease, excluded, at: 0 });
        prop_assert_eq!(past.retries, retries.collect::<VecDeque<_>>());
        let admitted = model.buffer.into_iter().map(|(id, leased, completed, admitted)| {
            QueuedGroup { id, leased, completed, admitted: Some(admitted) }
        });
        let mut waiting = model.waiting;
        waiting.sort_by_key(|(.., completed)| *completed);
        let waiting = waiting.into_iter().map(|(id, leased, completed)| {
            QueuedGroup { id, leased, completed, admitted: None }
        });
        prop_assert_eq!(past.queued, admitted.chain(waiting).collect::<Vec<_>>());
        let batches = past.batches.into_iter().map(|batch| {
            (batch.taken, batch.groups.into_iter().map(|group| group.id).collect(), batch.stepped)
        });
        prop_assert_eq!(batches.collect::<Vec<_>>(), model.batches.clone());
        prop_assert_eq!(past.clock.version(), model.installed.map(Version));
        prop_assert_eq!(past.clock.next_version(), Version(model.begun));
        prop_assert_eq!(past.published.map(|(version, ..)| version), model.installed.map(Version));
        let steps = model.batches.iter().filter(|(.., stepped)| stepped.is_some()).count() as u64;
        prop_assert_eq!((past.clock.step(), past.clock.updates()), (TrainingStep(steps), 2 * steps));
        prop_assert_eq!(unsettled, open_count(&model.events));
    }

    #[test]
    fn a_missing_event_is_named(actions in proptest::collection::vec((0..17_u8, 0..100_usize), 2..60), at: prop::sample::Index) {
        let mut events = history(&actions).events;
        prop_assume!(events.len() > 2);
        let missing = 1 + at.index(events.len() - 2);
        events.remove(missing);
        let (expected, found) = (Seq(missing as u64), Seq(missing as u64 + 1));
        prop_assert_eq!(resume(events).unwrap_err(), ResumeError::NotDense { expected, found });
    }
}

/// The leases without a settlement, counted in the simplest way.
fn open_count(events: &[Event]) -> usize {
    let settles = |event: &Event, lease: &GroupId| match &event.kind {
        EventKind::Excluded { id, .. } => id == lease,
        EventKind::BatchTaken { groups, .. } => groups.iter().any(|group| group.id == *lease),
        _ => false,
    };
    let leased = events.iter().filter_map(|event| match &event.kind {
        EventKind::Leased { id, .. } => Some(id),
        _ => None,
    });
    leased.filter(|id| !events.iter().any(|event| settles(event, id))).count()
}

fn log(kinds: Vec<EventKind>) -> Vec<Event> {
    let opened = EventKind::RunOpened { library: String::new(), format: FORMAT, settings: Fields::new() };
    let event =
        |(kind, seq)| Event { seq: Seq(seq), session: 0, at: 0, wall_ms: 0, enablers: Vec::new(), delay: 0, kind };
    std::iter::once(opened).chain(kinds).zip(0..).map(event).collect()
}

fn completed(id: &GroupId) -> EventKind {
    let summary = GroupSummary { expected: 0, samples: Vec::new() };
    EventKind::Completed { id: id.clone(), summary, payload: digest(0) }
}

#[test]
fn records_that_earlier_ones_rule_out_are_refused() {
    let id = group_id(1, 0);
    let leased = || EventKind::Leased { id: id.clone(), position: Some(0) };
    let admitted = || EventKind::Admitted { id: id.clone() };
    let dropped = || EventKind::Excluded { id: id.clone(), reason: Reason::Aborted, then: Then::Drop, dequeued: None };
    let taken = || EventKind::BatchTaken {
        step: TrainingStep(1),
        version: None,
        groups: vec![TakenGroup { id: id.clone(), dequeued: None, gap: None, step_lag: None }],
        digest: digest(0),
    };
    let cases = [
        vec![admitted()],
        vec![completed(&id)],
        vec![leased(), admitted()],
        vec![leased(), taken()],
        vec![leased(), completed(&id), completed(&id)],
        vec![leased(), completed(&id), admitted(), admitted()],
        vec![leased(), completed(&id), taken(), dropped()],
        vec![leased(), completed(&id), taken(), taken()],
        vec![leased(), completed(&id), EventKind::Reissued { id: id.clone(), reissue: 1 }],
    ];
    for case in cases {
        let last = Seq(case.len() as u64);
        let error = resume(log(case.clone())).unwrap_err();
        let named = matches!(&error, ResumeError::Contradiction { seq, group, .. } if *seq == last && *group == id);
        assert!(named, "{error} for {case:?}");
    }
    let stepped = EventKind::Stepped {
        step: TrainingStep(3),
        updates: 0,
        loss: 0.0,
        metrics: std::collections::BTreeMap::new(),
        weights: digest(0),
    };
    let error = resume(log(vec![stepped])).unwrap_err();
    assert_eq!(error, ResumeError::NoBatch { seq: Seq(1), step: TrainingStep(3) });
}

#[test]
fn a_newer_format_and_a_log_without_its_beginning_are_refused() {
    let mut events = log(Vec::new());
    events[0].kind = EventKind::RunOpened { library: String::new(), format: FORMAT + 1, settings: Fields::new() };
    let error = resume(events.clone()).unwrap_err();
    assert!(
        error.to_string().contains(&format!("expected an event format up to {FORMAT}, found {}", FORMAT + 1)),
        "{error}"
    );
    events[0].kind = EventKind::RunClosed { left: Vec::new() };
    assert_eq!(resume(events).unwrap_err(), ResumeError::NotOpened("run_closed"));
}

#[test]
fn settings_are_the_last_ones_and_gaps_survive_the_restart() {
    let configured = |value: i64| EventKind::Configured {
        operator: "fresh".to_owned(),
        settings: Fields::from([("limit".to_owned(), Value::Int(value))]),
    };
    let publish = |version, step| EventKind::Published {
        version: Version(version),
        step: TrainingStep(step),
        updates: 0,
        weights: digest(version),
        pause_began: 0,
        paused: 0,
    };
    let past = resume(log(vec![configured(1), publish(0, 0), publish(1, 4), configured(2)])).unwrap();
    assert_eq!(past.settings["fresh"]["limit"], Value::Int(2));
    assert!(past.settings.contains_key(RUN_SETTINGS));
    let oldest = OldestVersion::Known(Version(0));
    assert_eq!((past.clock.gap(oldest), past.clock.step_of(Version(1))), (Some(1), Some(TrainingStep(4))));
    assert_eq!(past.published, Some((Version(1), TrainingStep(4), digest(1))));
}

/// A group that is adopted again after a kill keeps its name. Its lease begins again; it is not counted twice.
#[test]
fn a_lease_of_the_same_name_begins_anew() {
    let id = group_id(1, 0);
    let leased = || EventKind::Leased { id: id.clone(), position: None };
    let past = resume(log(vec![leased(), completed(&id), leased()])).unwrap();
    assert_eq!(past.open, [OpenLease { id: id.clone(), leased: Seq(3), reissues: 0 }]);
    assert!(past.queued.is_empty());
}
