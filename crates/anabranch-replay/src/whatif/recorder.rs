//! From events to a recording.

use std::collections::{BTreeMap, HashMap};

use anabranch_core::{
    Event, EventKind, Fields, GroupId, GroupSummary, InFlightMode, OldestVersion, Reason, Status, TakenGroup, Then,
};

use super::pauses::Pauses;
use super::recording::{NONE, PublicationCost, Recording, Settlement, Spec, StepCost, Verdict};
use super::{Settings, WhatIfError};
use crate::schedule::Schedule;

/// A lease not yet settled.
#[derive(Copy, Clone, Debug)]
struct Open {
    spec: u32,
    leased: u64,
    completed: Option<u64>,
    admitted: Option<u64>,
    /// Operators work on it.
    worked_on: bool,
}

/// A departure from the buffer.
#[derive(Copy, Clone, Debug)]
struct Departure {
    at: u64,
    admitted: u64,
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
    mode: InFlightMode,
    refused: Option<WhatIfError>,
    pauses: Pauses,
    publishing: Option<(PublicationCost, u64)>,
    installing: Option<(PublicationCost, u64, u64)>,
    open: HashMap<GroupId, Open>,
    /// Retries queued, and the lease before each.
    queued: HashMap<GroupId, u32>,
    working: usize,
    /// When they last did not work on as many groups as they may.
    unblocked: u64,
    departures: Vec<Departure>,
    /// Completed groups that no record has placed yet, and the last lease since.
    arriving: Vec<(u32, Option<u64>)>,
    /// The end of what the learner did last.
    free: u64,
    taken: u64,
    last: u64,
    closed: bool,
    /// When the first weights were installed, when generation went on, and their training step.
    first: Option<(u64, u64, u64)>,
    opened: u64,
    specs: Vec<Spec>,
    ends: Vec<u64>,
    fresh: Vec<u32>,
    steps: Vec<StepCost>,
    publications: Vec<PublicationCost>,
    /// For each of them: the pause, when the engines stood still, and the last sample's end between the two.
    drains: Vec<(u64, u64, u64)>,
    /// Ends of samples since the last publication began.
    ended_since: Vec<u64>,
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
        self.last = self.last.max(event.at);
        match &event.kind {
            EventKind::RunOpened { .. } => self.opened = event.at,
            EventKind::RunResumed { .. } => {
                self.refuse("the run was opened several times: a schedule across a restart cannot be replayed, ask about the first session");
            }
            EventKind::Configured { operator, settings } => self.configured(event.at, operator, settings),
            EventKind::Leased { id, position } => self.leased(event, id, *position),
            EventKind::Completed { id, summary, .. } => self.completed(event, id, summary),
            EventKind::Admitted { id } => self.admitted(event, id),
            EventKind::Excluded { id, reason, then, dequeued } => self.excluded(event, id, reason, then, *dequeued),
            EventKind::BatchTaken { step, groups, .. } => self.batch(event, step.0, groups),
            EventKind::Stepped { step, .. } => {
                let train = event.at.saturating_sub(self.taken);
                if let Some(cost) = self.step(step.0) {
                    (cost.key, cost.train, cost.made) = (event.seq.0, train, true);
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
        self.known.insert(operator.to_owned(), settings.clone());
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
            (None, Some(before)) => self.specs[before as usize].next = spec,
            _ => return self.refuse("the log has leases that no source of prompts issued: they cannot be replayed"),
        }
        // It also waited until operators worked on fewer groups than they may.
        let delay = event.delay.min(event.at.saturating_sub(self.unblocked));
        self.working += 1;
        self.arriving.iter_mut().for_each(|(_, lease)| *lease = Some(event.at));
        self.specs.push(Spec {
            next: NONE,
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
        self.open.insert(id.clone(), Open { spec, leased: event.at, completed: None, admitted: None, worked_on: true });
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
        // Before a buffer it is worked on until its record is durable, which is when it is admitted or waits for room.
        open.worked_on = buffered;
        let Open { spec: index, leased, .. } = *open;
        self.arriving.push((index, None));
        if !buffered {
            self.departed(event.at);
        }
        let began = |seen: Option<u64>| self.pauses.begun(leased, seen.unwrap_or(u64::MAX));
        let samples = self.samples;
        let ends = &mut self.ends[index as usize * samples..][..samples];
        let spec = &mut self.specs[index as usize];
        (spec.key, spec.cut, spec.tokens) = (event.seq.0, false, summary.generated());
        let mut last = leased;
        for (sample, end) in summary.samples.iter().zip(ends.iter_mut()) {
            let ended = sample.times.ended.unwrap_or(event.at);
            last = last.max(ended);
            let drain = self.drains.partition_point(|&(_, paused, _)| paused < ended);
            match self.drains.get_mut(drain) {
                Some((began, _, until)) if *began < ended => *until = ended.max(*until),
                Some(_) => {}
                None => self.ended_since.push(ended),
            }
            let began = began(sample.times.first_token.or(sample.times.ended));
            *end = self.pauses.ended(ended).saturating_sub(began);
            let aborted = self.mode == InFlightMode::Abort && sample.status == Status::Aborted;
            spec.cut |= aborted && (self.publishing.is_some() || self.pauses.lie_around(ended));
            spec.known &= sample.oldest != Some(OldestVersion::Unknown);
            if sample.generated > 0 {
                let token = self.pauses.generated(sample.times.first_token.unwrap_or(ended));
                // A chunk may bring its first token late: the version tells between which publications it was sampled.
                let pace = *end / u64::from(sample.generated);
                let token = match sample.oldest {
                    Some(OldestVersion::Known(version)) => self.pauses.within(version.0 as usize, token, began + pace),
                    _ => token,
                };
                spec.first = spec.first.min(token.saturating_sub(began));
            }
        }
        ends.sort_unstable();
        spec.completion = event.at.saturating_sub(last);
    }

    fn admitted(&mut self, event: &Event, id: &GroupId) {
        let Some(open) = self.open.get_mut(id) else { return };
        open.admitted = Some(event.at);
        let index = open.spec;
        let arriving = self.arriving.iter().position(|&(spec, _)| spec == index);
        let lease = arriving.and_then(|place| self.arriving.remove(place).1);
        let worked_on = std::mem::take(&mut open.worked_on);
        let spec = &mut self.specs[open.spec as usize];
        let waited = open.completed.is_none_or(|completed| completed + event.delay < event.at);
        if waited {
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
        } else {
            spec.arrival = event.at.saturating_sub(open.completed.unwrap_or(event.at));
        }
    }

    fn batch(&mut self, event: &Event, number: u64, groups: &[TakenGroup]) {
        let mut ready = self.free;
        for group in groups {
            let Some(open) = self.open.remove(&group.id) else { continue };
            self.arriving.retain(|&(spec, _)| spec != open.spec);
            let spec = &mut self.specs[open.spec as usize];
            (spec.settled_at, spec.settlement) = (event.at, Settlement::Consumed(number));
            let entered = open.admitted.or(open.completed).unwrap_or_default();
            ready = ready.max(group.dequeued.unwrap_or(entered));
            if let Some((at, admitted)) = group.dequeued.zip(open.admitted) {
                self.departures.push(Departure { at, admitted, spec: open.spec });
            }
        }
        let poll = self.depart();
        // A batch that is not full waited for the end of the source.
        let full = groups.len() as u64 >= self.known.get("batch").map_or(0, |fields| int(fields, "groups"));
        let take = if full { event.at.saturating_sub(ready) } else { 0 };
        self.step(number).into_iter().for_each(|cost| (cost.poll, cost.take) = (poll, take));
        self.taken = event.at;
    }

    /// Attributes the departures since the last batch; gives how long the learner took to ask for the first group.
    fn depart(&mut self) -> u64 {
        let mut departures = std::mem::take(&mut self.departures);
        departures.sort_by_key(|departure| (departure.at, departure.admitted));
        let (free, mut poll, mut before) = (self.free, 0, 0);
        for (departure, index) in departures.drain(..).zip(0..) {
            let base = before.max(departure.admitted);
            if index == 0 && free >= base {
                poll = departure.at.saturating_sub(free);
            } else {
                let delay = departure.at.saturating_sub(base.max(free));
                self.specs[departure.spec as usize].dequeue = delay;
            }
            before = departure.at;
        }
        self.departures = departures;
        poll
    }

    fn publication(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Publishing { step, mode, .. } => {
                self.mode = *mode;
                let begin = event.at.saturating_sub(self.free);
                let cost = PublicationCost { step: step.0, key: event.seq.0, begin, ..PublicationCost::default() };
                self.publishing = Some((cost, event.at));
                self.ended_since.clear();
            }
            EventKind::Published { pause_began, paused, .. } => {
                let Some((mut cost, began)) = self.publishing.take() else { return };
                cost.ack = pause_began.saturating_sub(began);
                (cost.drained, cost.quiesce) = (paused.saturating_sub(*pause_began), 0);
                cost.install = event.at.saturating_sub(*paused);
                self.installing = Some((cost, *pause_began, *paused));
            }
            EventKind::GenerationResumed { .. } => {
                let Some((mut cost, began, paused)) = self.installing.take() else { return };
                self.pauses.add(self.mode, began, paused, event.at);
                let installed = paused + cost.install;
                cost.resume = event.at.saturating_sub(installed);
                self.first.get_or_insert((installed, event.at, cost.step));
                self.publications.push(cost);
                let ended = self.ended_since.drain(..).filter(|ended| (began..=paused).contains(ended)).max();
                self.drains.push((began, paused, ended.unwrap_or(began)));
                self.free = event.at;
            }
            _ => {}
        }
    }

    /// The recording.
    ///
    /// # Errors
    /// [`WhatIfError::Mismatch`] where the schedule of the log does not add up, [`WhatIfError::Unsupported`] where it
    /// cannot be replayed.
    pub fn finish(mut self) -> Result<Recording, WhatIfError> {
        std::mem::take(&mut self.schedule).finish()?;
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        let Some((installed, began, 0)) = self.first else {
            return Err(WhatIfError::Unsupported("the log begins without weights on the engines".to_owned()));
        };
        // Stale groups may have left after the last batch.
        let last_poll = self.depart();
        let waits = matches!(self.mode, InFlightMode::Drain | InFlightMode::Abort);
        for (cost, &(_, paused, until)) in self.publications.iter_mut().zip(&self.drains) {
            cost.quiesce = if waits { paused - until } else { cost.drained };
        }
        for open in self.open.values().filter(|open| open.completed.is_none()) {
            let elapsed = self.pauses.generated(self.last) - self.pauses.generated(open.leased);
            self.ends[open.spec as usize * self.samples..][..self.samples].fill(elapsed);
        }
        let whole: Vec<u32> = (0..).zip(&self.specs).filter(|(_, spec)| !spec.cut).map(|(index, _)| index).collect();
        let kept = |&index: &u32| matches!(self.specs[index as usize].verdict, Verdict::Passed | Verdict::Aborted);
        let mut unfiltered: Vec<u32> = whole.iter().copied().filter(kept).collect();
        if unfiltered.is_empty() {
            unfiltered.clone_from(&whole);
        }
        let made = self.steps.iter().filter(|step| step.made).count();
        self.steps.truncate(made);
        if whole.is_empty() || made == 0 {
            let what = if whole.is_empty() { "group was completed" } else { "training step was made" };
            return Err(WhatIfError::Unsupported(format!("no {what}: there are no durations to replay")));
        }
        let mut settings = Settings::read(&self.known, self.mode)?;
        let prompts = self.known.get("prompts");
        let positions = prompts.map_or(0, |fields| int(fields, "rows") * int(fields, "epochs"));
        let exhausted = self.closed && self.fresh.len() as u64 == positions;
        settings.steps = (!exhausted).then_some(made as u64);
        settings.check()?;
        Ok(Recording {
            settings,
            specs: self.specs,
            ends: self.ends,
            fresh: self.fresh,
            positions,
            whole,
            unfiltered,
            steps: self.steps,
            last_poll,
            publications: self.publications,
            opened: self.opened,
            ended: self.free,
            installed,
            began,
        })
    }
}
