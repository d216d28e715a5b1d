//! The limit on version gaps, judged when a group is taken out for training.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anabranch_core::{Cause, Error, Fields, Group, Stamp, Value, VersionClock};
use futures::Stream;
use pin_project_lite::pin_project;

use crate::MaxStaleness;
use crate::entry::run_of;
use crate::upstream::Upstream;

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

    /// Lets groups pass whose version nobody can bound. The default excludes them.
    pub fn allow_unknown_versions(self) -> Self {
        Self { allow_unknown: true, ..self }
    }
}

/// What let an exit verdict fall: the learner asked, and the version it was judged against was installed.
pub(crate) fn exit_enablers(clock: &VersionClock, group: &Group) -> Vec<(Cause, Stamp)> {
    let completed = group.context.completed.filter(|_| group.context.admitted.is_none());
    let stamps = [
        (Cause::LearnerFree, clock.learner_free()),
        (Cause::Installed, clock.published()),
        (Cause::Completed, completed),
    ];
    stamps.into_iter().filter_map(|(cause, stamp)| Some((cause, stamp?))).collect()
}

impl<S: Stream<Item = Result<Group, Error>>> Stream for Fresh<S> {
    type Item = Result<Group, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            let mut group = match ready!(this.input.as_mut().poll_next(cx)) {
                Some(Ok(group)) => group,
                other => return Poll::Ready(other),
            };
            let run = match run_of(&mut group) {
                Ok(run) => run,
                Err(error) => return this.input.fail(error),
            };
            if !*this.configured {
                *this.configured = true;
                let settings = Fields::from([
                    ("max_staleness".to_owned(), Value::from(this.limit.0)),
                    ("allow_unknown".to_owned(), Value::from(*this.allow_unknown)),
                ]);
                if let Err(error) = run.configure("fresh", settings) {
                    return this.input.fail(error);
                }
            }
            group.context.max_gap = Some(this.limit.0);
            group.context.allow_unknown = *this.allow_unknown;
            let clock = run.clock();
            match group.check_exit(&clock) {
                Ok(_) => return Poll::Ready(Some(Ok(group))),
                Err(reason) => {
                    let enablers = exit_enablers(&clock, &group);
                    group.exclude(reason, enablers);
                }
            }
        }
    }
}
