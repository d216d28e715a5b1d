//! Collects a fixed number of groups for a training step: the commit point.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anabranch_core::{
    AppendReceipt, Batch, Cause, Error, EventKind, Fields, Group, Stamp, TakenGroup, Value, Version, VersionClock,
};
use futures::stream::FusedStream;
use futures::{FutureExt, Stream};
use pin_project_lite::pin_project;

use crate::demand::Demand;
use crate::disposition::{self, Exclusion};
use crate::entry::run_of;
use crate::fresh::exit_enablers;
use crate::run::{Draft, Stage};
use crate::upstream::Upstream;
use crate::{Rollout, Run};

pin_project! {
    /// Stream for [`batch`](crate::RolloutExt::batch).
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct Batches<S> {
        #[pin]
        input: Upstream<S>,
        groups: usize,
        emit_partial: bool,
        run: Option<Run>,
        held: Vec<Rollout>,
        // The version against which all of `held` was judged.
        judged: Option<Version>,
        // The last demand told to the run; `None` if a buffer upstream tells it.
        asked: Option<Demand>,
        // Taken, but its record is not durable yet.
        taken: Option<(AppendReceipt, Batch)>,
    }
}

impl<S> Batches<S> {
    pub(crate) fn new(input: S, groups: usize) -> Self {
        assert!(groups > 0, "batch: expected at least 1 group, found 0");
        Self {
            input: Upstream::new(input),
            groups,
            emit_partial: false,
            run: None,
            held: Vec::new(),
            judged: None,
            asked: Some(Demand::default()),
            taken: None,
        }
    }

    /// Emits the last batch even if it has fewer groups. By default its groups stay in the log for the next session of
    /// the run.
    pub fn emit_partial(self) -> Self {
        Self { emit_partial: true, ..self }
    }
}

/// Takes a group in. Afterwards it has passed the entry checks and is in the log, even if no operator did that before.
fn accept(
    mut group: Rollout,
    groups: usize,
    emit_partial: bool,
    known: &mut Option<Run>,
    held: &mut Vec<Rollout>,
) -> Result<(), Error> {
    let run = run_of(&mut group);
    if known.is_none() {
        let settings = Fields::from([
            ("groups".to_owned(), Value::from(groups)),
            ("emit_partial".to_owned(), Value::from(emit_partial)),
        ]);
        run.configure("batch", settings)?;
        *known = Some(run);
    }
    let Some(mut group) = group.check_entry()? else { return Ok(()) };
    group.complete();
    group.lease.arrive(Stage::Held);
    held.push(group);
    Ok(())
}

/// Tells the run the demand, if it has changed.
fn ask(run: Option<&Run>, asked: &mut Option<Demand>, demand: Demand) {
    if let (Some(run), Some(before)) = (run, asked)
        && *before != demand
    {
        *before = demand;
        run.flow().set_demand(demand);
    }
}

/// Removes the groups from `held` that are now over the limit.
fn judge(clock: &VersionClock, held: &mut Vec<Rollout>) -> Vec<Exclusion> {
    let mut excluded = Vec::new();
    for group in std::mem::take(held) {
        match group.check_exit(clock) {
            Ok(_) => held.push(group),
            Err(reason) => {
                let enablers = exit_enablers(clock, &group);
                excluded.push(group.into_exclusion(reason, enablers));
            }
        }
    }
    excluded
}

/// Takes `held` for training if at least `least` of its groups pass. They are judged, and get their place in the log,
/// in one critical section against publications.
fn take(run: &Run, held: &mut Vec<Rollout>, least: usize) -> Option<(AppendReceipt, Batch)> {
    let clock = run.clock();
    let excluded = judge(&clock, held);
    if held.len() < least {
        disposition::commit(run, clock, excluded, None, |_, _| ());
        return None;
    }
    let held = std::mem::take(held);
    let taken: Vec<TakenGroup> = held.iter().map(|group| taken_group(&clock, group)).collect();
    let (step, version) = (clock.step().next(), clock.version());
    let payload = |group: &Rollout| group.payload.unwrap_or_else(|| group.digest());
    let digest = Batch::digest_of(held.iter().map(|group| (&group.id, payload(group))));
    let (gap_mean, gap_max) = Batch::gaps_of(&taken);
    let draft = Draft::new(EventKind::BatchTaken { step, version, groups: taken, digest }, enablers(&clock, &held));
    let recorded = disposition::commit(run, clock, excluded, Some(draft), VersionClock::take)?;
    let settled = |rollout: Rollout| {
        let (group, mut lease) = rollout.into_parts();
        lease.arrive(Stage::Settled);
        group
    };
    let groups: Vec<Group> = held.into_iter().map(settled).collect();
    let batch = Batch { step, taken: recorded.last_seq(), version, gap_mean, gap_max, groups, digest };
    Some((recorded.durable, batch))
}

fn taken_group(clock: &VersionClock, group: &Rollout) -> TakenGroup {
    let oldest = group.oldest();
    TakenGroup {
        id: group.id.clone(),
        dequeued: group.dequeued,
        gap: oldest.and_then(|oldest| clock.gap(oldest)),
        step_lag: oldest.and_then(|oldest| clock.step_lag(oldest)),
    }
}

fn enablers(clock: &VersionClock, groups: &[Rollout]) -> Vec<(Cause, Stamp)> {
    let entered = |group: &Rollout| match (group.admitted, group.completed) {
        (Some(admitted), _) => Some((Cause::Admitted, admitted)),
        (None, completed) => completed.map(|stamp| (Cause::Completed, stamp)),
    };
    let free = clock.learner_free().map(|stamp| (Cause::LearnerFree, stamp));
    groups.iter().filter_map(entered).chain(free).collect()
}

impl<S: Stream<Item = Result<Rollout, Error>>> Stream for Batches<S> {
    type Item = Result<Batch, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            if let Some((ack, _)) = this.taken {
                let durable = ready!(ack.poll_unpin(cx));
                let batch = this.taken.take().map(|(_, batch)| batch);
                return match durable {
                    Ok(()) => Poll::Ready(batch.map(Ok)),
                    Err(error) => this.input.fail(error.into()),
                };
            }
            if let Some(run) = this.run {
                // Before judging: a publication after this line wakes the task.
                run.wake_on_publication(cx.waker());
                let partial = this.input.has_ended() && *this.emit_partial;
                let least = if partial { 1 } else { *this.groups };
                if this.held.len() >= least {
                    *this.taken = take(run, this.held, least);
                    if this.taken.is_some() {
                        // No more groups are needed until the next batch is pulled.
                        ask(Some(run), this.asked, Demand { groups: Some(0), since: None });
                        continue;
                    }
                } else {
                    let clock = run.clock();
                    if *this.judged != clock.version() {
                        *this.judged = clock.version();
                        let excluded = judge(&clock, this.held);
                        disposition::commit(run, clock, excluded, None, |_, _| ());
                    }
                }
            }
            if this.input.has_ended() {
                return Poll::Ready(None);
            }
            let since = this.run.as_ref().and_then(|run| run.clock().learner_free());
            let groups = Some(*this.groups - this.held.len());
            let demand = Demand { groups, since: since.map(|stamp| (Cause::Demand, stamp)) };
            ask(this.run.as_ref(), this.asked, demand);
            let in_force = demand.enforce();
            let polled = this.input.as_mut().poll_next(cx);
            drop(in_force);
            match ready!(polled) {
                Some(Ok(group)) => {
                    if group.admitted.is_some() {
                        *this.asked = None;
                    }
                    if let Err(error) = accept(group, *this.groups, *this.emit_partial, this.run, this.held) {
                        this.held.clear();
                        return this.input.fail(error);
                    }
                }
                Some(Err(error)) => {
                    // The groups held stay in the log.
                    this.held.clear();
                    return Poll::Ready(Some(Err(error)));
                }
                None => {}
            }
        }
    }
}

impl<S: Stream<Item = Result<Rollout, Error>>> FusedStream for Batches<S> {
    fn is_terminated(&self) -> bool {
        self.input.has_ended() && self.taken.is_none() && (self.held.is_empty() || !self.emit_partial)
    }
}
