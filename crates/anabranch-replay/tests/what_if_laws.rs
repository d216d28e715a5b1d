//! Laws that hold for every schedule, recorded or predicted.

use std::collections::BTreeMap;

use anabranch_core::{Event, EventKind, GroupId, WeightSync};
use anabranch_replay::{Outcome, Settings};
use anabranch_testing::pipeline::{Script, any_settings, cases, record, script, settings, steps};
use proptest::prelude::*;

/// Σ gap at `BatchTaken` over consumed groups, and Σ over publications of the groups, consumed later, that had sampled
/// a token by then and were not yet in a `BatchTaken`: from the times of first tokens, not from versions.
fn both_sides(events: &[Event]) -> (u64, u64) {
    let mut first_token: BTreeMap<&GroupId, u64> = BTreeMap::new();
    let mut taken: BTreeMap<&GroupId, u64> = BTreeMap::new();
    let mut gaps = 0;
    for event in events {
        match &event.kind {
            EventKind::Completed { id, summary, .. } => {
                let first = summary.samples.iter().filter_map(|sample| sample.times.first_token).min();
                first_token.extend(first.map(|first| (id, first)));
            }
            EventKind::BatchTaken { groups, .. } => {
                gaps += groups.iter().filter_map(|group| group.gap).sum::<u64>();
                taken.extend(groups.iter().map(|group| (&group.id, event.seq.0)));
            }
            _ => {}
        }
    }
    let publications = events.iter().filter(|event| matches!(event.kind, EventKind::Published { .. }));
    let waiting = publications.map(|published| {
        let older = |(id, seq): &(&&GroupId, &u64)| **seq > published.seq.0 && first_token[**id] < published.at;
        taken.iter().filter(older).count() as u64
    });
    (gaps, waiting.sum())
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn gaps_add_up_to_the_groups_that_publications_overtook(
        (script, settings) in (script(100_000), any_settings()),
        others in any_settings(),
    ) {
        let events = script.events(&settings);
        let (gaps, overtaken) = both_sides(&events);
        prop_assert_eq!(gaps, overtaken);
        if steps(&events).is_empty() {
            return Ok(());
        }
        let others = Settings { samples: settings.samples, ..others };
        let prediction = record(&events).predict(&others, 7).unwrap();
        let consumed = prediction.groups.iter().filter(|group| matches!(group.fate, anabranch_replay::Fate::Consumed { .. }));
        prop_assert_eq!(prediction.outcome.gap.sum(), consumed.map(|group| group.publications).sum::<u64>());
    }

    /// Every lease is consumed, excluded or left, every prompt is leased, and tokens go with groups.
    #[test]
    fn every_lease_is_accounted_for(
        (script, settings) in (script(12), any_settings()),
        others in any_settings(),
        seed in any::<u64>(),
        abort in any::<bool>(),
        kills in proptest::collection::vec(1..500_u64, 0..3),
    ) {
        let settings = if abort { Settings { mode: Some(WeightSync::Abort), ..settings } } else { settings };
        let events = script.sessions(&settings, &kills, &[]);
        if steps(&events).iter().all(|step| step.1 == 0) {
            return Ok(());
        }
        let others = Settings { samples: settings.samples, ..others };
        let recording = record(&events);
        let prediction = recording.predict(&others, seed).unwrap();
        let outcome = &prediction.outcome;
        prop_assert_eq!(&recording.outcome(&others, seed).unwrap(), outcome);
        let total = outcome.consumed.groups + outcome.wasted_total().groups + outcome.left.groups;
        prop_assert_eq!(total, u64::from(script.rows) + outcome.retries);
        prop_assert_eq!(prediction.groups.len() as u64, total);
        prop_assert_eq!(outcome.modelled.groups.of, total, "the source is exhausted, so that nothing is in flight");
        let tokens = outcome.consumed.tokens + outcome.wasted_total().tokens + outcome.left.tokens;
        prop_assert_eq!(outcome.modelled.tokens.of, tokens);
        prop_assert!(outcome.gap.max().is_none_or(|gap| others.max_staleness.is_none_or(|limit| gap <= limit)));
        prop_assert_eq!(outcome.steps, prediction.steps.len() as u64);
        if !others.emit_partial {
            prop_assert_eq!(outcome.consumed.groups, outcome.steps * others.batch as u64);
        }
        prop_assert!(others.capacity.is_some() || outcome.gap.max().is_none_or(|gap| gap == 0), "synchronous: no gap");
    }
}

fn steady_state(script: &Script, settings: &Settings) -> Outcome {
    record(&script.events(settings)).outcome(settings, 0).unwrap()
}

/// In a steady state without exclusions, groups in the system over groups of a batch is the age of what is consumed.
#[test]
fn littles_law_holds_in_a_steady_state() {
    let script = Script {
        rows: 4000,
        pace: 40,
        tokens: 9,
        training: 2_000,
        steady: false,
        install: 3,
        aborts: u64::MAX,
        filter: u32::MAX,
        seed: 11,
        delays: anabranch_testing::pipeline::Delays::default(),
    };
    for (interval, capacity, in_flight, batch) in [(1, 16, 8, 8), (1, 64, 16, 8), (3, 32, 12, 4), (4, 24, 8, 16)] {
        let settings = Settings {
            in_flight,
            capacity: Some(capacity),
            batch,
            update_interval: Some(interval),
            max_attempts: None,
            ..settings()
        };
        let outcome = steady_state(&script, &settings);
        assert_eq!(outcome.wasted_total().groups, 0);
        let (little, lag) = (outcome.little.unwrap().step_lag, outcome.step_lag.mean().unwrap());
        assert!((little / lag - 1.0).abs() < 0.05, "interval {interval}: {little} is not {lag}");
        assert!(lag > 2.0, "a lag that rounding cannot hide: {lag}");
    }
    // The law is no tautology: where groups are excluded it overstates the age of what is left.
    let limited = Settings { in_flight: 8, capacity: Some(40), batch: 4, max_staleness: Some(2), ..settings() };
    let outcome = steady_state(&Script { training: 300, ..script }, &limited);
    assert!(outcome.wasted.contains_key("stale"), "{:?}", outcome.wasted);
    let (little, lag) = (outcome.little.unwrap().step_lag, outcome.step_lag.mean().unwrap());
    assert!((little / lag - 1.0).abs() > 0.05, "{little} is {lag}");
}
