//! Two `.fresh` in one chain: the stricter limit holds, in either order, and the log is judged by it.

mod common;

use anabranch_core::{Digest, EventKind, SpanVersion, Version, WeightSync};
use anabranch_replay::{recompute, verify};
use anabranch_sim::Sim;
use anabranch_stream::{MaxStaleness, RolloutExt, publish};
use common::{Recorded, adopted, ms};
use futures::{StreamExt, TryStreamExt, stream};

#[tokio::test(start_paused = true)]
async fn the_stricter_of_two_limits_holds() {
    for (first, second) in [(3, 1), (1, 3)] {
        let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
        for _ in 0..5 {
            publish(&recorded.run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
        }
        let groups = (0..5).map(|version| Ok(adopted(&recorded.run, version, &[SpanVersion::Exact(Version(version))])));
        let groups = stream::iter(groups.collect::<Vec<_>>()).log(&recorded.run);
        let batches =
            groups.fresh(MaxStaleness(first)).map(std::convert::identity).fresh(MaxStaleness(second)).batch(2);
        let batches: Vec<_> = batches.try_collect().await.unwrap();
        let ids: Vec<String> =
            batches.iter().flat_map(|batch| &batch.groups).map(|group| group.id.to_string()).collect();
        assert_eq!(ids, ["made/0/3#0", "made/0/4#0"], "limits {first} and {second}");
        let events = recorded.events();
        let excluded = events.iter().filter(|event| matches!(event.kind, EventKind::Excluded { .. })).count();
        assert_eq!(excluded, 3);
        assert!(verify(&events).is_clean(), "{}", verify(&events));
        assert_eq!(recompute(&events).unwrap().batches, 1);
    }
}
