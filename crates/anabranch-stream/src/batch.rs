//! Exactly so many groups for a training step: the commit point.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anabranch_core::{
    AppendReceipt, Batch, Cause, Demand, Draft, Error, EventKind, Fields, Group, Run, Stage, Stamp, TakenGroup, Value,
    Version, VersionClock,
};
use futures::{FutureExt, Stream};
use pin_project_lite::pin_project;

use crate::entry::run_of;
use crate::fresh::exit_enablers;
use crate::upstream::Upstream;

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
        held: Vec<Group>,
        // The version that all of `held` was judged against.
        judged: Option<Version>,
        // Taken, its record not yet durable.
        taken: Option<(AppendReceipt, Batch)>,
    }
}

impl<S> Batches<S> {
    pub(crate) fn new(input: S, groups: usize) -> Self {
        assert!(groups > 0, "batch: must be at least 1 group");
        Self {
            input: Upstream::new(input),
            groups,
            emit_partial: false,
            run: None,
            held: Vec::new(),
            judged: None,
            taken: None,
        }
    }

    /// Emits the last batch even where it has fewer groups. The default leaves them in the log, where the next session
    /// of the run finds them.
    pub fn emit_partial(self) -> Self {
        Self { emit_partial: true, ..self }
    }
}

/// Takes a group in: it has passed the entry checks and is in the log from here on, whoever saw to that.
fn accept(
    mut group: Group,
    groups: usize,
    emit_partial: bool,
    known: &mut Option<Run>,
    held: &mut Vec<Group>,
) -> Result<(), Error> {
    let run = run_of(&mut group)?;
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
    if let Some(lease) = &mut group.context.lease {
        lease.arrive(Stage::Held);
    }
    held.push(group);
    Ok(())
}

/// Excludes what is over the limit now.
fn judge(clock: &VersionClock, held: &mut Vec<Group>) {
    for group in std::mem::take(held) {
        match group.check_exit(clock) {
            Ok(_) => held.push(group),
            Err(reason) => {
                let enablers = exit_enablers(clock, &group);
                group.exclude(reason, enablers);
            }
        }
    }
}

/// Takes `held` for training if at least `least` of it may be: judged and recorded in one critical section against
/// publications.
fn take(run: &Run, held: &mut Vec<Group>, least: usize) -> Option<(AppendReceipt, Batch)> {
    let mut clock = run.clock();
    judge(&clock, held);
    if held.len() < least {
        return None;
    }
    let mut groups = std::mem::take(held);
    let taken: Vec<TakenGroup> = groups.iter().map(|group| taken_group(&clock, group)).collect();
    let step = clock.step().next();
    let payload = |group: &Group| group.context.payload.unwrap_or_else(|| group.digest());
    let digest = Batch::digest_of(groups.iter().map(|group| (&group.id, payload(group))));
    let (gap_mean, gap_max) = Batch::gaps_of(&taken);
    let version = clock.version();
    let kind = EventKind::BatchTaken { step, version, groups: taken, digest };
    let recorded = run.record(vec![Draft::new(kind, enablers(&clock, &groups))], &[]);
    clock.take(recorded.stamp(0));
    drop(clock);
    for group in &mut groups {
        if let Some(mut lease) = group.context.lease.take() {
            lease.arrive(Stage::Settled);
        }
    }
    let batch = Batch { step, taken: recorded.last_seq(), version, gap_mean, gap_max, groups, digest };
    Some((recorded.durable, batch))
}

fn taken_group(clock: &VersionClock, group: &Group) -> TakenGroup {
    let oldest = group.oldest();
    TakenGroup {
        id: group.id.clone(),
        dequeued: group.context.dequeued,
        gap: oldest.and_then(|oldest| clock.gap(oldest)),
        step_lag: oldest.and_then(|oldest| clock.step_lag(oldest)),
    }
}

fn enablers(clock: &VersionClock, groups: &[Group]) -> Vec<(Cause, Stamp)> {
    let entered = |group: &Group| match (group.context.admitted, group.context.completed) {
        (Some(admitted), _) => Some((Cause::Admitted, admitted)),
        (None, completed) => completed.map(|stamp| (Cause::Completed, stamp)),
    };
    let free = clock.learner_free().map(|stamp| (Cause::LearnerFree, stamp));
    groups.iter().filter_map(entered).chain(free).collect()
}

impl<S: Stream<Item = Result<Group, Error>>> Stream for Batches<S> {
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
                        continue;
                    }
                } else {
                    let clock = run.clock();
                    if *this.judged != clock.version() {
                        *this.judged = clock.version();
                        judge(&clock, this.held);
                    }
                }
            }
            if this.input.has_ended() {
                return Poll::Ready(None);
            }
            let since = this.run.as_ref().and_then(|run| run.clock().learner_free());
            let demand = Demand::set_since(Some(*this.groups - this.held.len()), since.map(|at| (Cause::Demand, at)));
            let polled = this.input.as_mut().poll_next(cx);
            drop(demand);
            match ready!(polled) {
                Some(Ok(group)) => {
                    if let Err(error) = accept(group, *this.groups, *this.emit_partial, this.run, this.held) {
                        this.held.clear();
                        return this.input.fail(error);
                    }
                }
                Some(Err(error)) => {
                    // What is held stays in the log.
                    this.held.clear();
                    return Poll::Ready(Some(Err(error)));
                }
                None => {}
            }
        }
    }
}
