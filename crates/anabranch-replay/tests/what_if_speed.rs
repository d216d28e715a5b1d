//! How long an answer takes over a million groups. Run with
//! `cargo test --release -p anabranch-replay --test what_if_speed -- --ignored --nocapture`.

use std::time::Instant;

use anabranch_core::{Event, EventKind, GroupId, Moment, Seq, TrainingStep, Version};
use anabranch_replay::{Order, Recorder, Settings};

use pipeline::{Script, settings};

mod pipeline;

const ROWS: u32 = 1000;
const COPIES: u64 = 1000;

/// A question: its name, and what it changes.
type Question = (&'static str, fn(&mut Settings));

/// A recorded run, and how to append it to itself: what enabled its beginning is what ended the copy before.
struct Template {
    begun: Vec<Event>,
    body: Vec<Event>,
    /// The last record of the beginning, and of the body.
    resumed: (Seq, u64),
    ended: (Seq, u64),
}

impl Template {
    fn new(mut events: Vec<Event>) -> Self {
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
    fn repeat(&self, copies: u64, mut push: impl FnMut(&Event)) {
        let mut seq = 0;
        let mut places = std::collections::HashMap::new();
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

fn moved(moment: Moment, places: &std::collections::HashMap<Seq, Seq>) -> Moment {
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

fn template() -> (Template, Settings) {
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
        delays: pipeline::Delays::default(),
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

fn recorded(template: &Template, copies: u64) -> Recorder {
    let mut recorder = Recorder::new();
    template.repeat(copies, |event| recorder.push(event));
    recorder
}

/// The repeated log is one that the answers can rest on.
#[test]
fn a_repeated_log_adds_up() {
    let (template, _) = template();
    let recording = recorded(&template, 3).finish().unwrap();
    let outcome = recording.outcome(recording.settings(), 0).unwrap();
    assert_eq!(outcome.modelled.groups.part, 0);
    let leased = outcome.consumed.groups + outcome.wasted_total().groups;
    assert_eq!(leased, recording.groups() as u64);
    assert_eq!(leased, 3 * u64::from(ROWS));
}

#[test]
#[ignore = "a measurement, for a release build"]
fn a_million_groups() {
    let (template, recorded_settings) = template();
    let began = Instant::now();
    let mut events = 0_u64;
    template.repeat(COPIES, |_| events += 1);
    let made = began.elapsed();
    let began = Instant::now();
    let recording = recorded(&template, COPIES).finish().unwrap();
    let read = began.elapsed().saturating_sub(made);
    println!("{events} events of {} groups read in {:.2} s", recording.groups(), read.as_secs_f64());
    let changes: [Question; 5] = [
        ("as recorded", |_| {}),
        ("limit 1, three attempts", |settings| {
            (settings.max_staleness, settings.max_attempts) = (Some(1), Some(3));
        }),
        ("capacity 128, interval 2", |settings| {
            (settings.capacity, settings.update_interval) = (Some(128), Some(2));
        }),
        ("stalest first", |settings| settings.order = Order::Stalest),
        ("synchronous", |settings| settings.capacity = None),
    ];
    for (name, change) in changes {
        let mut settings = recorded_settings.clone();
        change(&mut settings);
        let began = Instant::now();
        let outcome = recording.outcome(&settings, 1).unwrap();
        let took = began.elapsed().as_secs_f64();
        let total = outcome.consumed.groups + outcome.wasted_total().groups;
        println!("{name}: {took:.2} s for {total} groups, {:.1} % modelled", 100.0 * outcome.modelled.groups.ratio());
    }
}
