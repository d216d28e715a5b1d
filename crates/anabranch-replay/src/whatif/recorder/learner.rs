//! The learner's records: departures from the buffer, batches and publications.

use anabranch_core::{Event, EventKind, TakenGroup};

use super::{Departure, Recorder, int};
use crate::whatif::recording::{PublicationCost, Settlement};

impl Recorder {
    pub(super) fn batch(&mut self, event: &Event, number: u64, groups: &[TakenGroup]) {
        let mut ready = self.free;
        self.moved = true;
        for group in groups {
            let Some(open) = self.open.remove(&group.id) else { continue };
            self.arriving.retain(|&(spec, _)| spec != open.spec);
            let spec = &mut self.specs[open.spec as usize];
            (spec.settled_at, spec.settlement) = (event.at, Settlement::Consumed(number));
            let entered = open.admitted.map(|(at, _)| at).or(open.completed).unwrap_or_default();
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
        self.taken = Some(event.at);
    }

    /// Measures the departures since the last batch. Returns how long the learner took to ask for the first group.
    pub(super) fn depart(&mut self) -> u64 {
        let mut departures = std::mem::take(&mut self.departures);
        departures.sort_by_key(|departure| (departure.at, departure.admitted));
        let (free, mut poll, mut before) = (self.free, 0, 0);
        for (departure, index) in departures.drain(..).zip(0..) {
            let base = before.max(departure.admitted.0);
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

    pub(super) fn publication(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Publishing { step, mode, .. } => {
                self.session.mode = *mode;
                let begin = event.at.saturating_sub(self.free);
                let cost = PublicationCost { step: step.0, key: event.seq.0, begin, ..PublicationCost::default() };
                self.publishing = Some((cost, event.at));
                self.ended_since.clear();
                if !self.moved {
                    // After weights are installed again, the publication that is due follows.
                    self.session.began = None;
                }
            }
            EventKind::Published { pause_began, paused, .. } => {
                let Some((mut cost, began)) = self.publishing.take() else { return };
                cost.ack = pause_began.saturating_sub(began);
                (cost.drained, cost.quiesce) = (paused.saturating_sub(*pause_began), 0);
                cost.install = event.at.saturating_sub(*paused);
                self.installing = Some((cost, *pause_began, *paused));
            }
            EventKind::Reinstalled { version, .. } => self.reinstalled = Some((version.0, event.at)),
            EventKind::GenerationResumed { version } => {
                self.free = event.at;
                let installed = if let Some((version, at)) = self.reinstalled.take() {
                    self.pauses.add(version, at, at, event.at);
                    at
                } else if let Some((mut cost, began, paused)) = self.installing.take() {
                    let installed = paused + cost.install;
                    // An engine does not stop at once. The ends of samples show for how long it continued.
                    let ended = self.ended_since.drain(..).filter(|ended| (began..=paused).contains(ended)).max();
                    let until = ended.unwrap_or(began);
                    let (from, linger) = if self.waits() { (paused, 0) } else { (until, until - began) };
                    self.pauses.add(version.0, began, from, event.at);
                    cost.linger = linger;
                    cost.resume = event.at.saturating_sub(installed);
                    self.publications.push(cost);
                    self.drains.push((began, paused, until));
                    installed
                } else {
                    return;
                };
                self.measure_deferred();
                if !self.moved {
                    (self.session.installed, self.session.began) = (installed, Some(event.at));
                }
            }
            _ => {}
        }
    }
}
