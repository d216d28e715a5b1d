//! Measures how long an answer takes over a million groups. Run with
//! `cargo test --release -p anabranch-replay --test what_if_speed -- --ignored --nocapture`.

use std::time::Instant;

use anabranch_replay::{Order, Recorder, Settings};
use anabranch_testing::repeated::{ROWS, Template, template};

const COPIES: u64 = 1000;

/// A question: its name, and what it changes.
type Question = (&'static str, fn(&mut Settings));

fn recorded(template: &Template, copies: u64) -> Recorder {
    let mut recorder = Recorder::new();
    template.repeat(copies, |event| recorder.push(event));
    recorder
}

/// The schedule of the repeated log adds up.
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
