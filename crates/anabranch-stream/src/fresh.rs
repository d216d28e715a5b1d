//! The limit on version gaps, checked when a group is taken out for training.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anabranch_core::{Cause, Error, Fields, Stamp, Value, VersionClock};
use futures::Stream;
use futures::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::disposition;
use crate::entry::run_of;
use crate::upstream::Upstream;
use crate::{MaxStaleness, Rollout};

pin_project! {
    /// Stream for [`fresh`](crate::RolloutExt::fresh).
    #[derive(Debug)]
    #[must_use = "streams do nothing unless polled"]
    pub struct Fresh<S> {
        #[pin]
        input: Upstream<S>,
        limit: MaxStaleness,
        allow_unknown: bool,
        configured: bool,
    }
}

impl<S> Fresh<S> {
    pub(crate) fn new(input: S, limit: MaxStaleness) -> Self {
        Self { input: Upstream::new(input), limit, allow_unknown: false, configured: false }
    }

    /// Passes groups of unknown version. By default they are excluded.
    pub fn allow_unknown_versions(self) -> Self {
        Self { allow_unknown: true, ..self }
    }
}

/// The name under which the settings of a `.fresh` are recorded, if `before` others come before it in the chain.
fn operator(before: u32) -> String {
    if before == 0 { "fresh".to_owned() } else { format!("fresh/{}", before + 1) }
}

/// The events that made the exit check possible: the learner became free, and the version to compare with was
/// installed.
pub(crate) fn exit_enablers(clock: &VersionClock, group: &Rollout) -> Vec<(Cause, Stamp)> {
    let completed = group.completed.filter(|_| group.admitted.is_none());
    let stamps = [
        (Cause::LearnerFree, clock.learner_free()),
        (Cause::Installed, clock.published()),
        (Cause::Completed, completed),
    ];
    stamps.into_iter().filter_map(|(cause, stamp)| Some((cause, stamp?))).collect()
}

impl<S: Stream<Item = Result<Rollout, Error>>> Stream for Fresh<S> {
    type Item = Result<Rollout, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            let mut group = match ready!(this.input.as_mut().poll_next(cx)) {
                Some(Ok(group)) => group,
                other => return Poll::Ready(other),
            };
            let run = run_of(&mut group);
            if !*this.configured {
                *this.configured = true;
                let settings = Fields::from([
                    ("max_staleness".to_owned(), Value::from(this.limit.0)),
                    ("allow_unknown".to_owned(), Value::from(*this.allow_unknown)),
                ]);
                if let Err(error) = run.configure(&operator(group.limits), settings) {
                    return this.input.fail(error);
                }
            }
            group.limit_gap(this.limit.0, *this.allow_unknown);
            let clock = run.clock();
            match group.check_exit(&clock) {
                Ok(_) => return Poll::Ready(Some(Ok(group))),
                Err(reason) => {
                    let enablers = exit_enablers(&clock, &group);
                    let excluded = group.into_exclusion(reason, enablers);
                    disposition::commit(&run, clock, vec![excluded], None, |_, _| ());
                }
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint()
    }
}

impl<S: Stream<Item = Result<Rollout, Error>>> FusedStream for Fresh<S> {
    fn is_terminated(&self) -> bool {
        self.input.has_ended()
    }
}
