//! The item that flows between two operators: a group with its lease.

use std::ops::{Deref, DerefMut};

use anabranch_core::{Digest, Group, GroupId, Prompt, Sample, Stamp};

use crate::{Lease, Run};

/// A [`Group`] that is passing through a pipeline. It dereferences to the group, so that any adaptor can read and
/// change the samples.
///
/// A rollout holds the only lease of its prompt, so it cannot be cloned: pass it on whole. Clone the group (`(*rollout).clone()`)
/// to keep its data. If a rollout is dropped before an operator settles it, the log still shows its lease open, and the
/// next session of the run generates the prompt again.
///
/// A clone is a group without a lease, and operators do not take it:
///
/// ```compile_fail,E0271
/// use anabranch_sim::Sim;
/// use anabranch_stream::{InFlight, Prompts, RolloutExt, Samples};
/// use futures::TryStreamExt;
///
/// fn chain(prompts: Prompts, engine: &Sim) {
///     let groups = prompts.generate(engine, InFlight::groups(1), Samples(1));
///     drop(groups.map_ok(|rollout| (*rollout).clone()).batch(1));
/// }
/// ```
#[derive(Debug)]
pub struct Rollout {
    group: Group,
    pub(crate) lease: Lease,
    /// The `Completed` record, once the group is logged.
    pub(crate) completed: Option<Stamp>,
    /// Digest of the payload, once the group is completed.
    pub(crate) payload: Option<Digest>,
    /// The `Admitted` record, once the group is admitted.
    pub(crate) admitted: Option<Stamp>,
    /// When the group was taken out of the buffer.
    pub(crate) dequeued: Option<u64>,
    /// Whether the group has passed entry checks 1 and 2.
    pub(crate) checked: bool,
    /// Whether the group passed `.log` in this session. Later filters then judge it even if it was restored.
    pub(crate) logged: bool,
    /// The largest gap that the exit check allows, once the group has passed a `.fresh`.
    pub(crate) max_gap: Option<u64>,
    /// How many `.fresh` operators the group has passed.
    pub(crate) limits: u32,
    /// Whether the group may pass the exit check with an unknown version.
    pub(crate) allow_unknown: bool,
}

impl Rollout {
    /// Creates the rollout of a group that was generated under `lease`.
    pub(crate) fn new(group: Group, lease: Lease) -> Self {
        Self {
            group,
            lease,
            completed: None,
            payload: None,
            admitted: None,
            dequeued: None,
            checked: false,
            logged: false,
            max_gap: None,
            limits: 0,
            allow_unknown: false,
        }
    }

    /// Creates a rollout from the samples just generated under `lease`.
    pub(crate) fn of_samples(lease: Lease, samples: Vec<Sample>) -> Self {
        let (id, prompt): (GroupId, Prompt) = (lease.id().clone(), lease.prompt().clone());
        let expected = samples.len() as u32;
        Self::new(Group { id, prompt, expected, samples, extra: anabranch_core::Fields::new() }, lease)
    }

    /// Creates the rollout of a group that an earlier session completed under `lease`.
    pub(crate) fn restored(group: Group, lease: Lease) -> Self {
        let found = lease.restored().cloned();
        Self {
            completed: found.as_ref().map(|found| found.completed),
            admitted: found.and_then(|found| found.admitted),
            payload: Some(group.digest()),
            // The group passed the checks before it was logged, unless its reward or a filter failed.
            checked: !group.is_aborted(),
            ..Self::new(group, lease)
        }
    }

    /// The run of the group.
    pub fn run(&self) -> &Run {
        self.lease.run()
    }

    /// Returns the group without its lease. The lease stays open in the log, so the next session generates the prompt
    /// again.
    pub fn into_group(self) -> Group {
        self.group
    }

    /// The group and its lease.
    pub(crate) fn into_parts(self) -> (Group, Lease) {
        (self.group, self.lease)
    }

    /// Whether an earlier session completed the group. Its rewards are then in the log.
    pub(crate) fn is_restored(&self) -> bool {
        self.lease.restored().is_some()
    }
}

impl Deref for Rollout {
    type Target = Group;

    fn deref(&self) -> &Group {
        &self.group
    }
}

impl DerefMut for Rollout {
    fn deref_mut(&mut self) -> &mut Group {
        &mut self.group
    }
}
