//! Engines that do not know their versions or report wrong ones, and groups whose parts contradict each other.

use anabranch_core::{Digest, Error, EventKind, Group, Reason, SpanVersion, TakenGroup, Then, Version, WeightSync};
use anabranch_sim::{Reply, Sim};
use anabranch_stream::{
    Capacity, Generate, InFlight, MaxStaleness, Prompts, Rollout, RolloutExt, Samples, Unused, publish,
};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};

use common::{Recorded, dataset, ms};

mod common;

/// Three groups of two samples, v3 being installed; the second sample of row 1 claims another version.
async fn groups(claim: SpanVersion) -> (Recorded, Generate<Prompts, Sim>) {
    let engine = Sim::scripted(move |call| {
        let reply = Reply::tokens(3, ms(10));
        let (row, sample) = (call.request.tokens[0], call.request.key.sample);
        if (row, sample) == (1, 1) { reply.claiming(claim) } else { reply }
    });
    let recorded = Recorded::new();
    for version in 0..4 {
        publish(&recorded.run, &engine, version, Digest::default(), WeightSync::Retract).await.unwrap();
    }
    let source = recorded.run.prompts(dataset(3)).unused(Unused::Retry { max_attempts: 3 });
    (recorded, source.generate(&engine, InFlight::groups(1), Samples(2)))
}

/// The groups that were taken, and the exclusions.
fn outcome(recorded: &Recorded) -> (Vec<TakenGroup>, Vec<(String, Reason, Then)>) {
    let (mut taken, mut excluded) = (Vec::new(), Vec::new());
    for event in recorded.events() {
        match event.kind {
            EventKind::BatchTaken { groups, .. } => taken.extend(groups),
            EventKind::Excluded { id, reason, then, .. } => excluded.push((id.to_string(), reason, then)),
            _ => {}
        }
    }
    (taken, excluded)
}

fn gaps(taken: &[TakenGroup]) -> Vec<Option<u64>> {
    taken.iter().map(|group| group.gap).collect()
}

#[tokio::test(start_paused = true)]
async fn a_group_of_unknown_version_is_excluded_under_a_limit_and_not_retried() {
    let (recorded, groups) = groups(SpanVersion::Unknown).await;
    let batches: Vec<_> = groups.fresh(MaxStaleness(9)).batch(1).try_collect().await.unwrap();
    assert_eq!(batches.len(), 2);
    let (taken, excluded) = outcome(&recorded);
    assert_eq!(gaps(&taken), [Some(0), Some(0)]);
    assert_eq!(excluded, [("d/0/1#0".to_owned(), Reason::UnknownVersion, Then::Drop)]);
}

#[tokio::test(start_paused = true)]
async fn a_group_of_unknown_version_passes_where_it_is_allowed_or_there_is_no_limit() {
    let (recorded, groups_of) = groups(SpanVersion::Unknown).await;
    assert_eq!(groups_of.fresh(MaxStaleness(0)).allow_unknown_versions().batch(1).count().await, 3);
    let (taken, excluded) = outcome(&recorded);
    assert_eq!((gaps(&taken), excluded), (vec![Some(0), None, Some(0)], Vec::new()), "its gap is absent, not 0");

    let (recorded, groups_of) = groups(SpanVersion::Unknown).await;
    assert_eq!(groups_of.buffer(Capacity::groups(2)).batch(1).count().await, 3);
    assert_eq!(gaps(&outcome(&recorded).0), [Some(0), None, Some(0)]);
    let report = anabranch_replay::verify(&recorded.events());
    assert!(report.is_clean(), "{report}");
    anabranch_replay::recompute(&recorded.events()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_lower_bound_of_an_uncertain_version_counts_for_staleness() {
    let uncertain = |lo| SpanVersion::Uncertain { lo: Version(lo), hi: Version(3) };
    let (recorded, groups_of) = groups(uncertain(2)).await;
    assert_eq!(groups_of.fresh(MaxStaleness(1)).batch(1).count().await, 3);
    assert_eq!(gaps(&outcome(&recorded).0), [Some(0), Some(1), Some(0)]);

    let (recorded, groups_of) = groups(uncertain(1)).await;
    assert_eq!(groups_of.fresh(MaxStaleness(1)).batch(1).count().await, 2);
    let stale = |attempt: u32, then| (format!("d/0/1#{attempt}"), Reason::Stale { gap: 2 }, then);
    let retry = |next: &str| Then::Retry(next.parse().unwrap());
    let expected = [stale(0, retry("d/0/1#1")), stale(1, retry("d/0/1#2")), stale(2, Then::Exhausted)];
    assert_eq!(outcome(&recorded).1, expected);
}

/// Every place where a group can meet the first check.
fn chains(
    recorded: &Recorded,
    groups: impl Stream<Item = Result<Rollout, Error>> + Send + 'static,
    chain: usize,
) -> Of {
    let groups = groups.boxed();
    match chain {
        0 => groups.admit("all", |_| true).map_ok(Rollout::into_group).boxed(),
        1 => groups.log(&recorded.run).map_ok(Rollout::into_group).boxed(),
        2 => groups.buffer(Capacity::groups(1)).map_ok(Rollout::into_group).boxed(),
        3 => groups.batch(1).map_ok(|mut batch| batch.groups.remove(0)).boxed(),
        _ => {
            let fresh = groups.log(&recorded.run).buffer(Capacity::groups(9)).fresh(MaxStaleness(0));
            fresh.map_ok(Rollout::into_group).boxed()
        }
    }
}

type Of = BoxStream<'static, Result<Group, Error>>;

/// The stream ends with an error that names row 1; the group is in the log, with what it carried.
async fn ends_at_row_1(recorded: &Recorded, mut chain: Of, reason: Reason) -> (Error, Group) {
    let mut passed = Vec::new();
    let error = loop {
        match chain.next().await.expect("it ends with an error") {
            Ok(group) => passed.push(group.id.to_string()),
            Err(error) => break error,
        }
    };
    assert_eq!(passed, ["d/0/0#0"]);
    assert!(error.to_string().contains("group d/0/1#0"), "{error}");
    assert!(chain.next().await.is_none(), "then the stream ends");
    assert_eq!(outcome(recorded).1, [("d/0/1#0".to_owned(), reason, Then::Drop)]);
    (error, recorded.run.payload(&"d/0/1#0".parse().unwrap()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_version_from_the_future_ends_the_stream_and_its_group_is_in_the_log() {
    let uncertain = SpanVersion::Uncertain { lo: Version(3), hi: Version(4) };
    for claim in [SpanVersion::Exact(Version(4)), uncertain] {
        for chain in 0..5 {
            let (recorded, groups) = groups(claim).await;
            let chain = chains(&recorded, groups, chain);
            let (error, stored) = ends_at_row_1(&recorded, chain, Reason::FutureVersion).await;
            let Error::FutureVersion { version: Version(4), installed, .. } = &error else { panic!("{error}") };
            assert_eq!(installed, "v3");
            assert_eq!(stored.samples[1].spans[0].version, claim);
            assert_eq!((stored.samples.len(), stored.generated()), (2, 6));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_group_ends_the_stream_and_is_in_the_log() {
    type Damage = fn(&mut Group);
    let damages: [(&str, Damage); 6] = [
        ("expected 2 samples, found 1", |group| group.samples.truncate(1)),
        ("sample 1: expected a number as reward, found NaN", |group| group.samples[1].reward = Some(f64::NAN)),
        ("sample 0: expected 3 log-probs, one per generated token, found 2", |group| {
            group.samples[0].logprobs.truncate(2);
        }),
        ("sample 0: expected a loss mask for 3 response tokens, found 4 entries", |group| {
            group.samples[0].loss_mask.push(true);
        }),
        ("sample 1: expected spans over 3 generated tokens, found spans over 2", |group| {
            group.samples[1].spans[0].end = 2;
        }),
        ("expected at least one generated token, found none in any sample", |group| {
            for sample in &mut group.samples {
                sample.tokens.truncate(sample.prompt_len as usize);
                (sample.loss_mask, sample.logprobs, sample.spans) = Default::default();
            }
        }),
    ];
    for (fault, damage) in damages {
        for chain in 0..5 {
            let (recorded, groups) = groups(SpanVersion::Exact(Version(3))).await;
            let groups = groups.map_ok(move |mut group| {
                if group.id.prompt.row == 1 {
                    damage(&mut group);
                }
                group
            });
            let chain = chains(&recorded, groups, chain);
            let (error, stored) = ends_at_row_1(&recorded, chain, Reason::Malformed).await;
            assert!(error.to_string().contains(fault), "{error}");
            assert!(stored.check().is_err_and(|malformed| malformed.fault == fault));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_says_nothing_makes_a_malformed_group() {
    let engine = Sim::scripted(|_| Reply::default().after(ms(1)));
    let recorded = Recorded::new();
    publish(&recorded.run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
    let groups = recorded.run.prompts(dataset(1)).generate(&engine, InFlight::groups(1), Samples(2));
    let error = groups.log(&recorded.run).try_next().await.unwrap_err();
    assert!(
        matches!(&error, Error::Malformed(fault) if fault.fault == "expected at least one generated token, found none in any sample"),
        "{error}"
    );
}
