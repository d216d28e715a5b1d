//! Which group a buffer gives next.

use anabranch_core::{EventKind, Group, OldestVersion, SpanVersion, Value, Version, WeightSync};
use anabranch_sim::Sim;
use anabranch_stream::{Capacity, MaxStaleness, Order, Rollout, RolloutExt, Run, publish};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::time::sleep;

use common::{Recorded, adopted, ms};

mod common;

fn exact(version: u64) -> SpanVersion {
    SpanVersion::Exact(Version(version))
}

async fn published(run: &Run, versions: u64) {
    let engine = Sim::fixed(1, ms(1));
    for version in 0..versions {
        publish(run, &engine, version, anabranch_core::Digest::default(), WeightSync::Retract).await.unwrap();
    }
}

/// The rows that leave a buffer of eight, which these groups enter in turn.
async fn rows(order: Option<Order>, groups: &[&[SpanVersion]]) -> Vec<u64> {
    let recorded = Recorded::new();
    published(&recorded.run, 9).await;
    let made: Vec<_> =
        groups.iter().zip(0..).map(|(versions, row)| Ok(adopted(&recorded.run, row, versions))).collect();
    let buffer = stream::iter(made).buffer(Capacity::groups(8));
    let mut buffer = if let Some(order) = order { buffer.order(order) } else { buffer };
    assert!(buffer.next().now_or_never().is_none());
    sleep(ms(1)).await;
    assert_eq!(recorded.run.metrics().gauges.queue, Some(groups.len().min(8)));
    let left: Vec<Rollout> = buffer.try_collect().await.unwrap();
    let configured = recorded.events().into_iter().find_map(|event| match event.kind {
        EventKind::Configured { operator, settings } if operator == "buffer" => settings.get("order").cloned(),
        _ => None,
    });
    assert_eq!(configured, Some(Value::from(order.unwrap_or_default().name())), "it is in the log");
    left.iter().map(|group| group.id.prompt.row).collect()
}

#[tokio::test(start_paused = true)]
async fn a_buffer_gives_its_groups_in_the_order_chosen() {
    // Oldest versions 3, 5, 2, 5, 4 and 2; the last three hold several spans, or one that is uncertain.
    let uncertain = SpanVersion::Uncertain { lo: Version(2), hi: Version(8) };
    let groups: [&[SpanVersion]; 6] =
        [&[exact(3)], &[exact(5)], &[exact(2)], &[exact(5), exact(6)], &[exact(4), exact(8)], &[uncertain]];
    assert_eq!(rows(None, &groups).await, [0, 1, 2, 3, 4, 5]);
    assert_eq!(rows(Some(Order::Fifo), &groups).await, [0, 1, 2, 3, 4, 5]);
    assert_eq!(rows(Some(Order::Freshest), &groups).await, [1, 3, 4, 0, 2, 5], "ties by admission");
    assert_eq!(rows(Some(Order::Stalest), &groups).await, [2, 5, 0, 4, 1, 3]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_version_counts_as_the_oldest_there_can_be() {
    let groups: [&[SpanVersion]; 3] = [&[exact(0)], &[exact(7), SpanVersion::Unknown], &[exact(1)]];
    assert_eq!(rows(Some(Order::Freshest), &groups).await, [2, 0, 1]);
    assert_eq!(rows(Some(Order::Stalest), &groups).await, [1, 0, 2]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_room_is_admitted_in_completion_order_whatever_the_order() {
    let recorded = Recorded::new();
    let run = &recorded.run;
    published(run, 9).await;
    let made: Vec<_> = [1, 2, 8, 3, 7].iter().zip(0..).map(|(&v, row)| Ok(adopted(run, row, &[exact(v)]))).collect();
    let mut groups = stream::iter(made).buffer(Capacity::groups(2)).order(Order::Freshest);
    let mut left = Vec::new();
    assert!(groups.next().now_or_never().is_none());
    for _ in 0..5 {
        // The buffer's task lets in what there is room for before the next is taken.
        sleep(ms(1)).await;
        left.push(groups.next().await.unwrap().unwrap().id.prompt.row);
    }
    assert_eq!(left, [1, 2, 3, 4, 0], "two at a time: versions 1 2, 1 8, 1 3, 1 7, 1");
    let admitted = recorded.ids(|kind| if let EventKind::Admitted { id } = kind { Some(id) } else { None });
    assert_eq!(admitted, ["made/0/0#0", "made/0/1#0", "made/0/2#0", "made/0/3#0", "made/0/4#0"]);
    let report = anabranch_replay::verify(&recorded.events());
    assert!(report.is_clean(), "{report}");
    anabranch_replay::recompute(&recorded.events()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_freshest_first_trains_on_what_fifo_would_let_go_stale() {
    for (order, taken) in [(Order::Fifo, 0), (Order::Freshest, 1)] {
        let recorded = Recorded::new();
        let run = &recorded.run;
        published(run, 5).await;
        let made: Vec<_> = [3, 3, 4, 4].iter().zip(0..).map(|(&v, row)| Ok(adopted(run, row, &[exact(v)]))).collect();
        let groups = stream::iter(made).chain(stream::pending()).buffer(Capacity::groups(4)).order(order);
        let mut batches = groups.fresh(MaxStaleness(1)).batch(2);
        assert!(batches.next().now_or_never().is_none());
        sleep(ms(1)).await;
        let first = batches.next().await.unwrap().unwrap();
        let oldest = |group: &Group| group.oldest();
        let version = if order == Order::Fifo { Version(3) } else { Version(4) };
        assert!(first.groups.iter().all(|group| oldest(group) == Some(OldestVersion::Known(version))), "{order}");
        published(run, 1).await;
        let second = tokio::time::timeout(ms(10), batches.next()).await;
        assert_eq!(usize::from(second.is_ok()), 1 - taken, "{order}: what was left is v4 or v3, v5 is installed");
    }
}
