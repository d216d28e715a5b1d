//! Which auto traits the streams have: pipelines move between threads, and the final stream needs no pinning.

use anabranch_core::{Batch, Error, Group, Step};
use anabranch_sim::{HashChain, Sim};
use anabranch_stream::{
    Admit, Batches, Buffer, Capacity, Fresh, Generate, InFlight, Lease, Log, MaxStaleness, OwnedResponse, Pace,
    Publication, Response, Rollout, Samples, Score, ScoreAsync, Session, Train,
};
use futures::stream::BoxStream;

type Of<T> = BoxStream<'static, Result<T, Error>>;
type Reward = fn(Response<'_>) -> f64;
type AsyncReward = fn(OwnedResponse) -> futures::future::BoxFuture<'static, Result<f64, Error>>;
type Filter = fn(&Group) -> bool;

/// A stream that must be pinned.
struct Pinned {
    _pinned: std::marker::PhantomPinned,
}

fn send<T: Send>() {}
fn sync<T: Sync>() {}
fn unpin<T: Unpin>() {}

#[test]
fn all_operators_can_move_between_threads() {
    send::<Pace<Of<Lease>>>();
    send::<Generate<Of<Lease>, Sim>>();
    send::<Session<Sim>>();
    send::<Score<Of<Group>, Reward>>();
    send::<ScoreAsync<Of<Group>, AsyncReward>>();
    send::<Admit<Of<Group>, Filter>>();
    send::<Log<Of<Group>>>();
    send::<Buffer<Of<Group>>>();
    send::<Fresh<Of<Group>>>();
    send::<Batches<Of<Group>>>();
    send::<Train<Of<Batch>, HashChain>>();
}

#[test]
fn operators_are_unpin_where_their_input_is_and_the_last_ones_always() {
    unpin::<Pace<Of<Lease>>>();
    unpin::<Generate<Of<Lease>, Sim>>();
    unpin::<ScoreAsync<Of<Group>, AsyncReward>>();
    unpin::<Log<Of<Group>>>();
    unpin::<Batches<Of<Group>>>();
    unpin::<Buffer<Pinned>>();
    unpin::<Train<Pinned, HashChain>>();
}

#[test]
fn settings_and_results_can_be_shared() {
    sync::<(InFlight, Samples, Capacity, MaxStaleness, Step, Publication, Sim)>();
    send::<(InFlight, Samples, Capacity, MaxStaleness, Step, Publication, Sim)>();
}

mod zero_is_refused {
    use super::*;
    use anabranch_core::{Dataset, Fields};
    use anabranch_stream::{RolloutExt, Run};
    use futures::{StreamExt, stream};

    fn said(build: impl FnOnce() + std::panic::UnwindSafe) -> String {
        let panic = std::panic::catch_unwind(build).unwrap_err();
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap()
    }

    #[test]
    fn with_the_name_of_the_argument() {
        let groups = || stream::empty::<Result<Rollout, Error>>().boxed();
        let leases = || Run::in_memory().prompts(Dataset::new("d", vec![(vec![1], Fields::new())]).unwrap());
        let sim = || Sim::fixed(1, std::time::Duration::ZERO);
        let train = || {
            let learner = Run::in_memory().restore(HashChain::new(0)).unwrap();
            stream::empty::<Result<Batch, Error>>().train(learner)
        };
        assert!(said(|| _ = InFlight::groups(0)).starts_with("InFlight::groups:"));
        assert!(said(|| _ = Capacity::groups(0)).starts_with("Capacity::groups:"));
        assert!(said(|| drop(leases().generate(&sim(), InFlight::groups(1), Samples(0)))).starts_with("samples:"));
        let generate = || leases().generate(&sim(), InFlight::groups(1), Samples(1));
        assert!(said(|| drop(generate().timeout(std::time::Duration::ZERO))).starts_with("timeout:"));
        assert!(said(|| drop(generate().watchdog(std::time::Duration::ZERO))).starts_with("watchdog:"));
        assert!(said(|| drop(leases().pace(MaxStaleness(1), 0))).starts_with("batch:"));
        assert!(said(|| drop(leases().pace(MaxStaleness(1), 1).update_interval(0))).starts_with("update_interval:"));
        assert!(said(move || drop(groups().batch(0))).starts_with("batch:"));
        assert!(said(move || drop(groups().admit("", |_| true))).starts_with("name:"));
        assert!(said(move || drop(groups().reject("", |_| true))).starts_with("name:"));
        assert!(said(move || drop(train().checkpoint_every(0))).starts_with("checkpoint_every:"));
        assert!(said(move || drop(train().publish_every(0, &sim()))).starts_with("publish_every:"));
    }
}
