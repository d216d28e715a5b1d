//! The filters that the library ships, alone and in a row.

use anabranch_core::{Digest, EventKind, Reason, Sampling, Status, Then, WeightSync};
use anabranch_sim::{Reply, Sim};
use anabranch_stream::{InFlight, RolloutExt, Samples, Unused, filters, publish};
use futures::{StreamExt, TryStreamExt};

use common::{Recorded, dataset, ms};

mod common;

/// Six groups of two samples, of two tokens and of row + 1 tokens; the longest reaches the limit of six.
macro_rules! groups {
    ($recorded:expr) => {{
        let engine = Sim::scripted(|call| {
            let row = call.request.tokens[0];
            Reply::tokens(if call.request.key.sample == 0 { 2 } else { row + 1 }, ms(1))
        });
        publish(&$recorded.run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
        let source = $recorded.run.prompts(dataset(6)).unused(Unused::Retry { max_attempts: 3 });
        let groups = source.generate(&engine, InFlight::groups(1), Samples(2));
        groups.sampling(Sampling { max_tokens: 6, ..Sampling::default() })
    }};
}

/// The row and the filter of each exclusion; none of them is retried.
fn refused(recorded: &Recorded) -> Vec<(u32, String)> {
    let filtered = |kind| match kind {
        EventKind::Excluded { id, reason: Reason::Filtered { name }, then, .. } => {
            assert_eq!(then, Then::Drop);
            Some((u32::try_from(id.prompt.row).unwrap(), name))
        }
        _ => None,
    };
    recorded.events().into_iter().filter_map(|event| filtered(event.kind)).collect()
}

fn named(rows: &[u32], name: &str) -> Vec<(u32, String)> {
    rows.iter().map(|&row| (row, name.to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn each_shipped_filter_refuses_what_it_is_named_for() {
    let recorded = Recorded::new();
    let groups = groups!(recorded).score(|response| response.response().len() as u32);
    assert_eq!(groups.reject("zero_spread", filters::zero_spread).batch(1).count().await, 5);
    assert_eq!(refused(&recorded), named(&[1], "zero_spread"), "both samples have two tokens");

    let recorded = Recorded::new();
    assert_eq!(groups!(recorded).reject("zero_spread", filters::zero_spread).batch(1).count().await, 0);
    assert_eq!(refused(&recorded).len(), 6, "without rewards there is no spread");

    let recorded = Recorded::new();
    assert_eq!(groups!(recorded).reject("truncated", filters::truncated).batch(1).count().await, 5);
    assert_eq!(refused(&recorded), named(&[5], "truncated"));

    let recorded = Recorded::new();
    assert_eq!(groups!(recorded).reject("overlong", filters::overlong(4)).batch(1).count().await, 4);
    assert_eq!(refused(&recorded), named(&[4, 5], "overlong"), "four tokens are within four");

    let recorded = Recorded::new();
    let groups = groups!(recorded).score(|_| 0.0).map_ok(|mut group| {
        if group.id.prompt.row == 3 {
            group.samples[1].status = Status::Failed;
        }
        group
    });
    assert_eq!(groups.reject("failed", filters::failed).batch(1).count().await, 5);
    assert_eq!(refused(&recorded), named(&[3], "failed"), "failed, but with a reward");
}

#[tokio::test(start_paused = true)]
async fn environment_tokens_do_not_make_a_sample_overlong() {
    let recorded = Recorded::new();
    let groups = groups!(recorded).map_ok(|mut group| {
        for sample in &mut group.samples {
            sample.tokens.extend([7; 50]);
            sample.loss_mask.extend([false; 50]);
        }
        group
    });
    assert_eq!(groups.reject("overlong", filters::overlong(6)).batch(1).count().await, 6);
    assert!(recorded.excluded().is_empty());
}

#[tokio::test(start_paused = true)]
async fn filters_judge_in_the_order_written_and_the_first_to_refuse_names_the_exclusion() {
    let recorded = Recorded::new();
    let groups = groups!(recorded).score(|response| response.response().len() as u32);
    let groups = groups
        .reject("overlong", filters::overlong(5))
        .admit("odd", |group| group.id.prompt.row % 2 == 1)
        .reject("truncated", filters::truncated)
        .reject("zero_spread", filters::zero_spread);
    assert_eq!(groups.batch(1).count().await, 1);
    let expected = [(0, "odd"), (1, "zero_spread"), (2, "odd"), (4, "odd"), (5, "overlong")];
    assert_eq!(refused(&recorded), expected.map(|(row, name)| (row, name.to_owned())), "row 5 is truncated as well");
    let met = |kind| match kind {
        EventKind::Configured { operator, .. } if operator.contains('/') => Some(operator),
        _ => None,
    };
    let met: Vec<_> = recorded.events().into_iter().filter_map(|event| met(event.kind)).collect();
    assert_eq!(met, ["reject/overlong", "admit/odd", "reject/truncated", "reject/zero_spread"]);
}

#[tokio::test(start_paused = true)]
async fn a_panicking_predicate_is_an_error_that_names_its_operator() {
    let recorded = Recorded::new();
    let mut groups = groups!(recorded).reject("strict", |_| panic!("undecided"));
    let error = groups.next().await.unwrap().unwrap_err();
    assert!(error.to_string().starts_with("reject(\"strict\") failed on group d/0/0#0"), "{error}");
    assert!(groups.next().await.is_none());
}
