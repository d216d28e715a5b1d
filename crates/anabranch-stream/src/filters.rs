//! The usual predicates on groups, for [`reject`](crate::RolloutExt::reject) (or, negated, for
//! [`admit`](crate::RolloutExt::admit)).
//!
//! Aborted groups never reach a filter: entry check 1 excludes them before it.

use anabranch_core::{Group, Sample, Status};

/// Whether all rewards of the group are equal, so that its advantages are all zero and it teaches nothing. True also where
/// fewer than two samples have a reward.
///
/// ```
/// # use anabranch_core::{Dataset, Error, Fields, Group};
/// # use anabranch_stream::{InFlight, RolloutExt, Samples, filters};
/// # fn chain(groups: impl futures::Stream<Item = Result<Rollout, Error>>) -> impl futures::Stream<Item = Result<Group, Error>> {
/// groups.reject("zero_spread", filters::zero_spread)
/// # }
/// ```
pub fn zero_spread(group: &Group) -> bool {
    group.reward_spread() == 0.0
}

/// Whether any sample of the group reached the token limit before its end.
///
/// ```
/// # use anabranch_core::Error;
/// # use anabranch_stream::Rollout;
/// # use anabranch_stream::{RolloutExt, filters};
/// # fn chain(groups: impl futures::Stream<Item = Result<Rollout, Error>>) -> impl futures::Stream<Item = Result<Group, Error>> {
/// groups.reject("truncated", filters::truncated)
/// # }
/// ```
pub fn truncated(group: &Group) -> bool {
    group.samples.iter().any(|sample| sample.status == Status::Truncated)
}

/// Whether the environment of any sample failed. Such a sample has a reward: without one its group is aborted.
///
/// ```
/// # use anabranch_core::Error;
/// # use anabranch_stream::Rollout;
/// # use anabranch_stream::{RolloutExt, filters};
/// # fn chain(groups: impl futures::Stream<Item = Result<Rollout, Error>>) -> impl futures::Stream<Item = Result<Group, Error>> {
/// groups.reject("failed", filters::failed)
/// # }
/// ```
pub fn failed(group: &Group) -> bool {
    group.samples.iter().any(|sample| sample.status == Status::Failed)
}

/// A predicate: whether any sample of the group has more than `max_tokens` generated tokens. Environment tokens do not
/// count.
///
/// ```
/// # use anabranch_core::Error;
/// # use anabranch_stream::Rollout;
/// # use anabranch_stream::{RolloutExt, filters};
/// # fn chain(groups: impl futures::Stream<Item = Result<Rollout, Error>>) -> impl futures::Stream<Item = Result<Group, Error>> {
/// groups.reject("overlong", filters::overlong(4096))
/// # }
/// ```
pub fn overlong(max_tokens: u32) -> impl Fn(&Group) -> bool + Copy + Send + Sync + 'static {
    move |group| group.samples.iter().map(generated).any(|tokens| tokens > u64::from(max_tokens))
}

/// Generated tokens, one log-prob each.
fn generated(sample: &Sample) -> u64 {
    sample.logprobs.len() as u64
}
