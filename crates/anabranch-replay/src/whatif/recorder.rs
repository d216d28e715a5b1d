//! The recorder, which turns events into a recording.

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

/// A lease that is not settled yet.
#[derive(Copy, Clone, Debug)]
struct Open {
    spec: u32,
    leased: u64,
    completed: Option<u64>,
    /// When it was admitted, and the record, which gives the order of groups admitted at one time.
    admitted: Option<(u64, Seq)>,
    /// Whether operators work on it.
    worked_on: bool,
    /// Whether an earlier session issued it.
    earlier: bool,
}

/// A departure from the buffer.
#[derive(Copy, Clone, Debug)]
struct Departure {
    at: u64,
    admitted: (u64, Seq),
    spec: u32,
}

/// Reads a log, event by event, and checks its schedule as [`self_check`](crate::self_check) does.
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
    /// The retries that are queued, and the lease before each.
    queued: ById<u32>,
    working: usize,
    /// Since when operators could take on another group.
    unblocked: u64,
    departures: Vec<Departure>,
    /// Completed groups without a later record, and the last lease since each completion.
    arriving: Vec<(u32, Option<u64>)>,
    /// When the learner's last work ended.
    free: u64,
    /// When the last batch was taken, if its training step is not made yet.
    taken: Option<u64>,
    closed: bool,
    session: Session,
    sessions: Vec<Session>,
    /// Whether this session has records of groups already.
    moved: bool,
    /// The version that was installed again after a restart, and when.
    reinstalled: Option<(u64, u64)>,
    specs: Vec<Spec>,
    ends: Vec<u64>,
    fresh: Vec<u32>,
    steps: Vec<StepCost>,
    publications: Vec<PublicationCost>,
    /// For each publication: when the pause began, when the engines stood still, and the last sample's end in between.
    drains: Vec<(u64, u64, u64)>,
    /// The ends of samples since the last publication began.
    ended_since: Vec<u64>,
    /// Groups completed during the last publication: index, lease, completion, and samples.
    deferred: Vec<(u32, u64, u64, Vec<SampleSummary>)>,
}

fn int(fields: &Fields, field: &str) -> u64 {
    fields.get(field).and_then(anabranch_core::Value::as_int).map_or(0, |int| int.max(0) as u64)
}

impl Recorder {
    /// Creates a recorder that has read no event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a recorder that reads only the first session of a run.
    pub fn of_first_session() -> Self {
        Self { first_session: true, ..Self::default() }
    }

    /// Adds the next event of the run.
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
            // A buffer would have recorded its settings before. So the groups completed so far are in the batch.
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
        // The mode may change between sessions.
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

    /// Returns the cost of training step `number`, from 1.
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
            _ => return self.refuse("cannot replay leases that did not come from a source of prompts"),
        }
        self.issued(event, id);
    }

    /// Returns the last issue of a lease.
    fn last_issue(&mut self, mut spec: u32) -> &mut Spec {
        while self.specs[spec as usize].again != NONE {
            spec = self.specs[spec as usize].again;
        }
        &mut self.specs[spec as usize]
    }

    fn reissued(&mut self, event: &Event, id: &GroupId) {
        let spec = self.specs.len() as u32;
        let Some(open) = self.open.get(id).copied() else {
            return self.refuse("cannot replay the re-issue of a lease that the log does not have");
        };
        self.specs[open.spec as usize].again = spec;
        self.issued(event, id);
    }

    fn issued(&mut self, event: &Event, id: &GroupId) {
        let spec = self.specs.len() as u32;
        // The lease also waited until operators could take on another group.
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

    /// Notes that operators no longer work on a group.
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
            // The lease was lost too often to be issued again, so the group was never generated.
            return;
        }
        // If there is a buffer, operators work on the group until its record is durable. Then it is admitted or waits
        // for room.
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

    /// Measures the groups that were completed during a publication. Once it has ended, the log tells when generation
    /// stood still.
    fn measure_deferred(&mut self) {
        for (index, leased, completed, samples) in std::mem::take(&mut self.deferred) {
            self.measure(index, leased, completed, &samples);
        }
    }

    /// Measures how long each sample of a group took, and its first token, without pauses.
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
                // The first token may come late, with its chunk. Its version tells between which publications it was
                // sampled.
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

    /// Returns whether publications of this session wait for samples to end.
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
            // While a group waits for room nothing is leased. So this group began to wait only after the last lease.
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
            // The generation was cut off, so the verdict on the whole group is not known.
            Reason::Aborted if spec.cut => Verdict::Passed,
            Reason::Aborted => Verdict::Aborted,
            Reason::Filtered { .. } => Verdict::Filtered,
            Reason::Malformed => Verdict::Malformed,
            Reason::FutureVersion => Verdict::FutureVersion,
            // Only the exit check refused it.
            _ => Verdict::Passed,
        };
        if let Some((at, admitted)) = dequeued.zip(open.admitted) {
            spec.exit = event.at.saturating_sub(at);
            self.departures.push(Departure { at, admitted, spec: open.spec });
        } else if !open.earlier {
            spec.arrival = event.at.saturating_sub(open.completed.unwrap_or(event.at));
        }
    }
}
