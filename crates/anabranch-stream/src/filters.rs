//! The usual predicates on groups, for [`reject`](crate::RolloutExt::reject) (or, negated, for
//! [`admit`](crate::RolloutExt::admit)).
//!
//! Aborted groups never reach a filter: entry check 1 excludes them before it.

use anabranch_core::{Group, Sample, Status};

/// Returns true if all rewards of the group are equal: its advantages are then zero, and the learner learns nothing
/// from it. Also true if fewer than two samples have a reward.
///
/// ```
/// # use anabranch_core::{Dataset, Error, Fields};
/// # use anabranch_stream::{InFlight, Rollout, RolloutExt, Samples, filters};
/// # fn chain(groups: impl futures::Stream<Item = Result<Rollout, Error>>) -> impl futures::Stream<Item = Result<Rollout, Error>> {
/// groups.reject("zero_spread", filters::zero_spread)
/// # }
/// ```
pub fn zero_spread(group: &Group) -> bool {
    group.reward_spread() == 0.0
}

/// Returns true if any sample of the group was cut off by the token limit.
///
/// ```
/// # use anabranch_core::Error;
/// # use anabranch_stream::{Rollout, RolloutExt, filters};
/// # fn chain(groups: impl futures::Stream<Item = Result<Rollout, Error>>) -> impl futures::Stream<Item = Result<Rollout, Error>> {
/// groups.reject("truncated", filters::truncated)
/// # }
/// ```
pub fn truncated(group: &Group) -> bool {
    group.samples.iter().any(|sample| sample.status == Status::Truncated)
}

/// Returns true if the environment of any sample failed. Such a sample has a reward; without a reward its group would
/// have been aborted.
///
/// ```
/// # use anabranch_core::Error;
/// # use anabranch_stream::{Rollout, RolloutExt, filters};
/// # fn chain(groups: impl futures::Stream<Item = Result<Rollout, Error>>) -> impl futures::Stream<Item = Result<Rollout, Error>> {
/// groups.reject("failed", filters::failed)
/// # }
/// ```
pub fn failed(group: &Group) -> bool {
    group.samples.iter().any(|sample| sample.status == Status::Failed)
}

/// Returns a predicate that is true if any sample of the group has more than `max_tokens` generated tokens. Environment
/// tokens do not count.
///
/// ```
/// # use anabranch_core::Error;
/// # use anabranch_stream::{Rollout, RolloutExt, filters};
/// # fn chain(groups: impl futures::Stream<Item = Result<Rollout, Error>>) -> impl futures::Stream<Item = Result<Rollout, Error>> {
/// groups.reject("overlong", filters::overlong(4096))
/// # }
/// ```
pub fn overlong(max_tokens: u32) -> impl Fn(&Group) -> bool + Copy + Send + Sync + 'static {
    move |group| group.samples.iter().map(generated).any(|tokens| tokens > u64::from(max_tokens))
}

/// The number of generated tokens: each has one log-prob.
fn generated(sample: &Sample) -> u64 {
    sample.logprobs.len() as u64
}
