//! Each operator knows that it has ended, and bounds what is still to come if its input does.

mod common;

use anabranch_core::{Digest, WeightSync};
use anabranch_sim::{HashChain, Sim};
use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Samples, publish};
use common::{Recorded, dataset, ms};
use futures::stream::FusedStream;
use futures::{Stream, StreamExt};

/// Takes everything and compares what the stream says of its end before and after.
async fn ends<S: FusedStream + Unpin>(mut stream: S, items: usize, operator: &str) {
    assert!(!stream.is_terminated(), "{operator} has not begun");
    let mut taken = 0;
    while stream.next().await.is_some() {
        taken += 1;
    }
    assert_eq!((taken, stream.is_terminated()), (items, true), "{operator}");
    assert!(stream.next().await.is_none(), "{operator} stays ended");
}

#[tokio::test(start_paused = true)]
async fn operators_tell_that_they_have_ended() {
    let fresh = || async {
        let (recorded, engine) = (Recorded::new(), Sim::fixed(1, ms(1)));
        publish(&recorded.run, &engine, 0, Digest::default(), WeightSync::Retract).await.unwrap();
        (recorded, engine)
    };
    let (recorded, engine) = fresh().await;
    ends(recorded.run.prompts(dataset(4)), 4, "prompts").await;
    let groups =
        |run: &anabranch_stream::Run| run.prompts(dataset(4)).generate(&engine, InFlight::groups(2), Samples(2));
    ends(groups(&fresh().await.0.run), 4, "generate").await;
    ends(groups(&fresh().await.0.run).score(|_| 1.0), 4, "score").await;
    let scored = groups(&fresh().await.0.run).score_async(|_| async { Ok::<_, String>(1.0) });
    ends(Box::pin(scored), 4, "score_async").await;
    ends(groups(&fresh().await.0.run).admit("all", |_| true), 4, "admit").await;
    let run = fresh().await.0.run.clone();
    ends(groups(&run).log(&run), 4, "log").await;
    ends(groups(&fresh().await.0.run).buffer(Capacity::groups(2)), 4, "buffer").await;
    ends(groups(&fresh().await.0.run).fresh(MaxStaleness(1)), 4, "fresh").await;
    ends(groups(&fresh().await.0.run).batch(2), 2, "batch").await;
    ends(groups(&fresh().await.0.run).batch(3).emit_partial(), 2, "batch with a partial one").await;
    let run = fresh().await.0.run.clone();
    let trained = groups(&run).batch(2).train(run.restore(HashChain::new(0)).unwrap());
    ends(Box::pin(trained), 2, "train").await;
}

#[tokio::test(start_paused = true)]
async fn a_bounded_input_bounds_what_follows() {
    let recorded = Recorded::new();
    let groups: Vec<_> = (0..3).map(|row| Ok(common::adopted(&recorded.run, row, &[]))).collect();
    let groups = futures::stream::iter(groups).score(|_| 1.0).admit("all", |_| true).log(&recorded.run);
    assert_eq!(groups.fresh(MaxStaleness(1)).size_hint(), (0, Some(3)));
}
