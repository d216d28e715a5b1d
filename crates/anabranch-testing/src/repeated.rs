//! A recorded run, appended to itself: logs of any length whose schedule adds up.

use std::collections::HashMap;

use anabranch_core::{Event, EventKind, GroupId, Moment, Seq, TrainingStep, Version};
use anabranch_replay::Settings;

use crate::pipeline::{Delays, Script, settings};

/// Groups of a copy.
pub const ROWS: u32 = 1000;

/// A recorded run, and how to append it to itself: what enabled its beginning is what ended the copy before.
pub struct Template {
    begun: Vec<Event>,
    body: Vec<Event>,
    /// The last record of the beginning, and of the body.
    resumed: (Seq, u64),
    ended: (Seq, u64),
}

impl Template {
    /// Of the events of a run.
    pub fn new(mut events: Vec<Event>) -> Self {
        events.pop_if(|event| matches!(event.kind, EventKind::RunClosed { .. }));
        let resumed = |event: &Event| matches!(event.kind, EventKind::GenerationResumed { .. });
        let first = events.iter().position(resumed).unwrap();
        assert!(events.last().is_some_and(resumed), "the last batch is published");
        let body = events.split_off(first + 1);
        // What each operator said of itself comes once.
        let (configured, body): (Vec<_>, Vec<_>) =
            body.into_iter().partition(|event| matches!(event.kind, EventKind::Configured { .. }));
        let at = |event: &Event| (event.seq, event.at);
        let (resumed, ended) = (at(events.last().unwrap()), at(body.last().unwrap()));
        let begun = events.into_iter().chain(configured).collect();
        Self { begun, body, resumed, ended }
    }

    /// Gives all events of `copies` copies, one after another.
    pub fn repeat(&self, copies: u64, mut push: impl FnMut(&Event)) {
        let mut seq = 0;
        let mut places = HashMap::new();
        for event in &self.begun {
            let mut event = event.clone();
            places.insert(event.seq, Seq(seq));
            event.seq = Seq(seq);
            event.enablers.iter_mut().for_each(|enabler| enabler.moment = moved(enabler.moment, &places));
            if let EventKind::Configured { operator, settings } = &mut event.kind
                && operator == "prompts"
            {
                settings.insert("rows".to_owned(), (u64::from(ROWS) * copies).into());
            }
            seq += 1;
            push(&event);
        }
        let steps = self.body.iter().filter(|event| matches!(event.kind, EventKind::Stepped { .. })).count() as u64;
        let lasts = self.ended.1 - self.resumed.1;
        let mut last = places[&self.resumed.0];
        for copy in 0..copies {
            places.extend(self.begun.iter().map(|event| (event.seq, last)));
            for event in &self.body {
                let mut event = event.clone();
                places.insert(event.seq, Seq(seq));
                event.seq = Seq(seq);
                event.at += copy * lasts;
                event.enablers.iter_mut().for_each(|enabler| enabler.moment = moved(enabler.moment, &places));
                shift(&mut event.kind, copy, steps, copy * lasts);
                seq += 1;
                push(&event);
            }
            last = Seq(seq - 1);
        }
        let close = Event { seq: Seq(seq), at: self.ended.1 + (copies - 1) * lasts, ..self.begun[0].clone() };
        push(&Event { kind: EventKind::RunClosed { left: Vec::new() }, ..close });
    }
}

fn moved(moment: Moment, places: &HashMap<Seq, Seq>) -> Moment {
    match moment {
        Moment::Event(seq) => Moment::Event(places[&seq]),
        Moment::SampleEnd { lease, sample } => Moment::SampleEnd { lease: places[&lease], sample },
        Moment::Dequeued { admitted } => Moment::Dequeued { admitted: places[&admitted] },
        Moment::Scored { lease } => Moment::Scored { lease: places[&lease] },
    }
}

/// The same event in a later copy.
fn shift(kind: &mut EventKind, copy: u64, steps: u64, time: u64) {
    let row = |id: &mut GroupId| id.prompt.row += copy * u64::from(ROWS);
    let later = |at: &mut Option<u64>| at.iter_mut().for_each(|at| *at += time);
    let (step, version) = (
        |step: &mut TrainingStep| step.0 += copy * steps,
        |version: &mut Version| {
            version.0 += copy * steps;
        },
    );
    match kind {
        EventKind::Leased { id, position } => {
            row(id);
            *position = position.map(|position| position + copy * u64::from(ROWS));
        }
        EventKind::Completed { id, summary, .. } => {
            row(id);
            for sample in &mut summary.samples {
                later(&mut sample.times.submitted);
                later(&mut sample.times.first_token);
                later(&mut sample.times.ended);
                if let Some(anabranch_core::OldestVersion::Known(oldest)) = &mut sample.oldest {
                    version(oldest);
                }
            }
        }
        EventKind::Admitted { id } => row(id),
        EventKind::Excluded { id, dequeued, then, .. } => {
            row(id);
            later(dequeued);
            if let anabranch_core::Then::Retry(id) = then {
                row(id);
            }
        }
        EventKind::BatchTaken { step: number, groups, .. } => {
            step(number);
            for group in groups {
                row(&mut group.id);
                later(&mut group.dequeued);
            }
        }
        EventKind::Stepped { step: number, .. } => step(number),
        EventKind::Publishing { version: number, step: of, .. } => {
            version(number);
            step(of);
        }
        EventKind::Published { version: number, step: of, pause_began, paused, .. } => {
            version(number);
            step(of);
            *pause_began += time;
            *paused += time;
        }
        EventKind::GenerationResumed { version: number } => version(number),
        _ => {}
    }
}

/// A run of [`ROWS`] groups, and its settings.
pub fn template() -> (Template, Settings) {
    let script = Script {
        rows: ROWS,
        pace: 100_000,
        tokens: 12,
        training: 800_000,
        steady: false,
        install: 40_000,
        aborts: 200,
        filter: 15,
        seed: 1,
        delays: Delays::default(),
    };
    let settings = Settings {
        in_flight: 16,
        samples: 8,
        capacity: Some(32),
        batch: 8,
        emit_partial: true,
        max_staleness: Some(4),
        ..settings()
    };
    (Template::new(script.events(&settings)), settings)
}
