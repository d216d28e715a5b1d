//! Runs that were killed and resumed: each restart is a barrier, over which everything open is carried.

use anabranch_replay::{Settings, self_check};
use proptest::prelude::*;

use pipeline::{any_settings, cases, first_difference, happened, predicted, record, script, steps};

mod pipeline;

const APART: u64 = 100_000;

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..cases(200) })]

    #[test]
    fn a_run_of_several_sessions_is_told_as_it_was(
        (script, settings) in (script(APART), any_settings()),
        // Shrunk, a kill would fall together with other moments.
        kills in proptest::collection::vec(1..40 * APART, 1..4),
    ) {
        let events = script.sessions(&Settings { slot_per_sample: false, ..settings }, &kills);
        prop_assert_eq!(self_check(&events), Ok(()));
        if steps(&events).iter().all(|step| step.1 == 0) {
            return Ok(());
        }
        let recording = record(&events);
        let prediction = recording.predict(recording.settings(), 1).unwrap();
        let difference = first_difference(&happened(&events), &predicted(&prediction));
        prop_assert!(difference.is_none(), "{}", difference.unwrap());
        let reproduction = recording.reproduction().unwrap();
        prop_assert_eq!((reproduction.times.part, reproduction.first), (reproduction.times.of, None));
        prop_assert_eq!(prediction.outcome.modelled.groups.part, 0);
    }
}
