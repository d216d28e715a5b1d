//! From events to a recording.

use std::collections::BTreeMap;

use anabranch_core::{
    Event, EventKind, Fields, GroupId, GroupSummary, OldestVersion, Reason, SampleSummary, Seq, Status, Then,
    WeightSync,
};

use super::WhatIfError;
use super::pauses::{Pauses, waits};
use super::recording::{NONE, PublicationCost, Session, Settlement, Spec, StepCost, Verdict};
use crate::group_map::ById;
use crate::schedule::Schedule;

mod learner;
mod sessions;

/// A lease not yet settled.
#[derive(Copy, Clone, Debug)]
struct Open {
    spec: u32,
    leased: u64,
    completed: Option<u64>,
    /// When, and the record: it tells the order of those admitted at one time.
    admitted: Option<(u64, Seq)>,
    /// Operators work on it.
    worked_on: bool,
    /// An earlier session issued it.
    earlier: bool,
}

/// A departure from the buffer.
#[derive(Copy, Clone, Debug)]
struct Departure {
    at: u64,
    admitted: (u64, Seq),
    spec: u32,
}

/// Reads a log, event by event, checking its schedule on the way (see [`self_check`](crate::self_check)).
#[derive(Debug, Default)]
pub struct Recorder {
    first_session: bool,
    schedule: Schedule,
    known: BTreeMap<String, Fields>,
    samples: usize,
    bound: usize,
    refused: Option<WhatIfError>,
    pauses: Pauses,
    publishing: Option<(PublicationCost, u64)>,
    installing: Option<(PublicationCost, u64, u64)>,
    open: ById<Open>,
    /// Retries queued, and the lease before each.
    queued: ById<u32>,
    working: usize,
    /// When they last did not work on as many groups as they may.
    unblocked: u64,
    departures: Vec<Departure>,
    /// Completed groups that no record has placed yet, and the last lease since.
    arriving: Vec<(u32, Option<u64>)>,
    /// The end of what the learner did last.
    free: u64,
    /// When the last batch was taken, until it is trained on.
    taken: Option<u64>,
    closed: bool,
    session: Session,
    sessions: Vec<Session>,
    /// Whether groups have moved in this session.
    moved: bool,
    /// Weights of an earlier session, installed again as this version, and when.
    reinstalled: Option<(u64, u64)>,
    specs: Vec<Spec>,
    ends: Vec<u64>,
    fresh: Vec<u32>,
    steps: Vec<StepCost>,
    publications: Vec<PublicationCost>,
    /// For each of them: the pause, when the engines stood still, and the last sample's end between the two.
    drains: Vec<(u64, u64, u64)>,
    /// Ends of samples since the last publication began.
    ended_since: Vec<u64>,
    /// Groups completed during it: what they are, when they were leased and completed, and their samples.
    deferred: Vec<(u32, u64, u64, Vec<SampleSummary>)>,
}

fn int(fields: &Fields, field: &str) -> u64 {
    fields.get(field).and_then(anabranch_core::Value::as_int).map_or(0, |int| int.max(0) as u64)
}

impl Recorder {
    /// A recorder that has read nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A recorder that reads the first session of a run only, up to where it was cut off.
    pub fn of_first_session() -> Self {
        Self { first_session: true, ..Self::default() }
    }

    /// Takes the next event.
    pub fn push(&mut self, event: &Event) {
        if self.first_session && event.session > 0 {
            return;
        }
        self.schedule.push(event);
        match &event.kind {
            EventKind::RunOpened { .. } => self.session.opened = event.at,
            EventKind::RunResumed { .. } => self.turn(event),
            EventKind::Reissued { id, .. } => self.reissued(event, id),
            EventKind::Configured { operator, settings } => self.configured(event.at, operator, settings),
            EventKind::Leased { id, position } => self.leased(event, id, *position),
            EventKind::Completed { id, summary, .. } => self.completed(event, id, summary),
            EventKind::Admitted { id } => self.admitted(event, id),
            EventKind::Excluded { id, reason, then, dequeued } => self.excluded(event, id, reason, then, *dequeued),
            EventKind::BatchTaken { step, groups, .. } => self.batch(event, step.0, groups),
            EventKind::Stepped { step, .. } => {
                let retrained = self.taken.is_none();
                let train = self.taken.take().map(|taken| event.at.saturating_sub(taken));
                if let Some(cost) = self.step(step.0) {
                    cost.train = train.unwrap_or(cost.train);
                    (cost.key, cost.made, cost.retrained) = (event.seq.0, true, retrained);
                }
                self.free = event.at;
            }
            EventKind::Checkpointed { step, .. } => {
                let took = event.at.saturating_sub(self.free);
                self.step(step.0).into_iter().for_each(|cost| cost.checkpoint = took);
                self.free = event.at;
            }
            EventKind::RunClosed { .. } => self.closed = true,
            _ => self.publication(event),
        }
        self.session.last = self.session.last.max(event.at);
    }

    fn refuse(&mut self, message: &str) {
        self.refused.get_or_insert_with(|| WhatIfError::Unsupported(message.to_owned()));
    }

    fn configured(&mut self, at: u64, operator: &str, settings: &Fields) {
        if operator == "generate" {
            let (in_flight, samples) = (int(settings, "in_flight") as usize, int(settings, "samples") as usize);
            let per_group = settings.get("granularity").and_then(|value| value.as_text()) == Some("group");
            self.bound = if per_group { in_flight } else { in_flight.saturating_sub(1) * samples + 1 };
            self.samples = samples;
        }
        if operator == "batch" && !self.known.contains_key("buffer") {
            // A buffer would have told of itself before: the groups completed so far are in the batch.
            let completed = self.open.values_mut().filter(|open| open.completed.is_some());
            let departed = completed.filter(|open| open.worked_on).map(|open| open.worked_on = false).count();
            for _ in 0..departed {
                self.departed(at);
            }
        }
        if operator == "publish"
            && let Some(mode) = settings.get("mode").and_then(|value| value.as_text()?.parse().ok())
        {
            self.session.mode = mode;
        }
        let before = self.known.insert(operator.to_owned(), settings.clone()).unwrap_or_else(|| settings.clone());
        // The mode may be another in each session.
        let own = |field: &String| operator == "publish" && field == "mode";
        let changed = settings.keys().chain(before.keys()).find(|&f| settings.get(f) != before.get(f) && !own(f));
        if let Some(field) = changed {
            let shown = |value: Option<&anabranch_core::Value>| value.map_or("nothing".to_owned(), ToString::to_string);
            self.refuse(&format!(
                "the settings of the run changed on the way (`{field}` of .{operator} from {} to {}): ask about its first \
                 session alone (--first-session)",
                shown(before.get(field)),
                shown(settings.get(field))
            ));
        }
    }

    /// The cost of training step `number`, from 1.
    fn step(&mut self, number: u64) -> Option<&mut StepCost> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        if index == self.steps.len() {
            self.steps.push(StepCost { key: u64::MAX, ..StepCost::default() });
        }
        self.steps.get_mut(index)
    }

    fn leased(&mut self, event: &Event, id: &GroupId, position: Option<u64>) {
        let spec = self.specs.len() as u32;
        match (position, self.queued.remove(id)) {
            (Some(position), _) if position <= self.specs.len() as u64 => {
                let index = position as usize;
                if index >= self.fresh.len() {
                    self.fresh.resize(index + 1, NONE);
                }
                self.fresh[index] = spec;
            }
            (None, Some(before)) => self.last_issue(before).next = spec,
            _ => return self.refuse("the log has leases that no source of prompts issued: they cannot be replayed"),
        }
        self.issued(event, id);
    }

    /// The last issue of a lease.
    fn last_issue(&mut self, mut spec: u32) -> &mut Spec {
        while self.specs[spec as usize].again != NONE {
            spec = self.specs[spec as usize].again;
        }
        &mut self.specs[spec as usize]
    }

    fn reissued(&mut self, event: &Event, id: &GroupId) {
        let spec = self.specs.len() as u32;
        let Some(open) = self.open.get(id).copied() else {
            return self.refuse("the log re-issues leases that it does not have: it cannot be replayed");
        };
        self.specs[open.spec as usize].again = spec;
        self.issued(event, id);
    }

    fn issued(&mut self, event: &Event, id: &GroupId) {
        let spec = self.specs.len() as u32;
        // It also waited until operators worked on fewer groups than they may.
        let delay = event.delay.min(event.at.saturating_sub(self.unblocked));
        self.working += 1;
        self.arriving.iter_mut().for_each(|(_, lease)| *lease = Some(event.at));
        self.moved = true;
        self.specs.push(Spec {
            next: NONE,
            again: NONE,
            verdict: Verdict::Passed,
            known: true,
            cut: true,
            tokens: 0,
            key: u64::MAX,
            first: u64::MAX,
            lease: delay,
            completion: 0,
            arrival: 0,
            room: 0,
            dequeue: 0,
            exit: 0,
            leased_at: event.at,
            settled_at: 0,
            settlement: Settlement::Left,
        });
        self.ends.extend(std::iter::repeat_n(0, self.samples));
        let open = Open { spec, leased: event.at, completed: None, admitted: None, worked_on: true, earlier: false };
        self.open.insert(id.clone(), open);
    }

    /// A group is no longer worked on.
    fn departed(&mut self, at: u64) {
        if self.working == self.bound {
            self.unblocked = at;
        }
        self.working -= 1;
    }

    fn completed(&mut self, event: &Event, id: &GroupId, summary: &GroupSummary) {
        let buffered = self.known.contains_key("buffer") || !self.known.contains_key("batch");
        let Some(open) = self.open.get_mut(id) else { return };
        open.completed = Some(event.at);
        if !open.worked_on {
            // Lost too often to be issued again: it never was generated.
            return;
        }
        // Before a buffer it is worked on until its record is durable, which is when it is admitted or waits for room.
        open.worked_on = buffered;
        let Open { spec: index, leased, .. } = *open;
        self.arriving.push((index, None));
        if !buffered {
            self.departed(event.at);
        }
        let spec = &mut self.specs[index as usize];
        (spec.key, spec.cut, spec.tokens) = (event.seq.0, false, summary.generated());
        let mut last = leased;
        for sample in &summary.samples {
            let ended = sample.times.ended.unwrap_or(event.at);
            last = last.max(ended);
            let drain = self.drains.partition_point(|&(_, paused, _)| paused < ended);
            match self.drains.get_mut(drain) {
                Some((began, _, until)) if *began < ended => *until = ended.max(*until),
                Some(_) => {}
                None => self.ended_since.push(ended),
            }
            let aborted = self.session.mode == WeightSync::Abort && sample.status == Status::Aborted;
            spec.cut |= aborted && (self.publishing.is_some() || self.pauses.lie_around(ended));
            spec.known &= sample.oldest != Some(OldestVersion::Unknown);
        }
        spec.completion = event.at.saturating_sub(last);
        if self.publishing.is_some() || self.installing.is_some() {
            self.deferred.push((index, leased, event.at, summary.samples.clone()));
        } else {
            self.measure(index, leased, event.at, &summary.samples);
        }
    }

    /// Measures what was completed during a publication, once it has ended: when generation stood still is known then.
    fn measure_deferred(&mut self) {
        for (index, leased, completed, samples) in std::mem::take(&mut self.deferred) {
            self.measure(index, leased, completed, &samples);
        }
    }

    /// How long each sample of a group took, and its first token, without pauses.
    fn measure(&mut self, index: u32, leased: u64, completed: u64, samples: &[SampleSummary]) {
        let ends = &mut self.ends[index as usize * self.samples..][..self.samples];
        let spec = &mut self.specs[index as usize];
        for (sample, end) in samples.iter().zip(ends.iter_mut()) {
            let (ended, first_token) = (sample.times.ended, sample.times.first_token);
            let began = self.pauses.begun(leased, first_token.or(ended).unwrap_or(u64::MAX));
            let ended = ended.unwrap_or(completed);
            *end = self.pauses.ended(ended).saturating_sub(began);
            if sample.generated > 0 {
                let token = self.pauses.generated(first_token.unwrap_or(ended));
                // A chunk may bring its first token late: the version tells between which publications it was sampled.
                let pace = *end / u64::from(sample.generated);
                let token = match sample.oldest {
                    Some(OldestVersion::Known(version)) => self.pauses.within(version.0, token, began + pace),
                    _ => token,
                };
                spec.first = spec.first.min(token.saturating_sub(began));
            }
        }
        ends.sort_unstable();
    }

    /// Whether publications of this session wait for samples to end.
    fn waits(&self) -> bool {
        waits(self.session.mode)
    }

    fn admitted(&mut self, event: &Event, id: &GroupId) {
        let Some(open) = self.open.get_mut(id) else { return };
        open.admitted = Some((event.at, event.seq));
        self.moved = true;
        let restored = open.earlier;
        let index = open.spec;
        let arriving = self.arriving.iter().position(|&(spec, _)| spec == index);
        let lease = arriving.and_then(|place| self.arriving.remove(place).1);
        let worked_on = std::mem::take(&mut open.worked_on);
        let spec = &mut self.specs[open.spec as usize];
        let waited = open.completed.is_none_or(|completed| completed + event.delay < event.at);
        if restored {
            spec.room = if waited { event.delay } else { 0 };
        } else if waited {
            spec.room = event.delay;
            // While a group waits for room nothing is leased: this one came to wait only after the last lease.
            spec.arrival = lease.zip(open.completed).map_or(0, |(lease, completed)| lease - completed + 1);
        } else {
            spec.arrival = event.delay;
        }
        if worked_on {
            self.departed(event.at);
        }
    }

    fn excluded(&mut self, event: &Event, id: &GroupId, reason: &Reason, then: &Then, dequeued: Option<u64>) {
        let Some(open) = self.open.remove(id) else { return };
        if open.worked_on {
            self.departed(event.at);
        }
        self.arriving.retain(|&(spec, _)| spec != open.spec);
        if let Then::Retry(next) = then {
            self.queued.insert(next.clone(), open.spec);
        }
        let spec = &mut self.specs[open.spec as usize];
        (spec.settled_at, spec.settlement) = (event.at, Settlement::Excluded(reason.name()));
        spec.verdict = match reason {
            // It was cut off: what would have been said of it is not known.
            Reason::Aborted if spec.cut => Verdict::Passed,
            Reason::Aborted => Verdict::Aborted,
            Reason::Filtered { .. } => Verdict::Filtered,
            Reason::Malformed => Verdict::Malformed,
            Reason::FutureVersion => Verdict::FutureVersion,
            Reason::Stale { .. } | Reason::UnknownVersion => Verdict::Passed,
        };
        if let Some((at, admitted)) = dequeued.zip(open.admitted) {
            spec.exit = event.at.saturating_sub(at);
            self.departures.push(Departure { at, admitted, spec: open.spec });
        } else if !open.earlier {
            spec.arrival = event.at.saturating_sub(open.completed.unwrap_or(event.at));
        }
    }
}
