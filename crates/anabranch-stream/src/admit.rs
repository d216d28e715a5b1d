//! Filters at the entry: closures of the user, or those of [`filters`](crate::filters).

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anabranch_core::{Cause, Error, Fields, Group, Reason};
use futures::Stream;
use futures::stream::FusedStream;
use pin_project_lite::pin_project;

use crate::Rollout;
use crate::entry::run_of;
use crate::panics::{caught, handler_error};
use crate::upstream::Upstream;

pin_project! {
    /// Stream for [`admit`](crate::RolloutExt::admit) and [`reject`](crate::RolloutExt::reject).
    #[must_use = "streams do nothing unless polled"]
    pub struct Admit<S, F> {
        #[pin]
        input: Upstream<S>,
        name: String,
        filter: F,
        kind: Kind,
        configured: bool,
    }
}

/// The meaning of a filter that returns `true`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Admit,
    Reject,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Reject => "reject",
        }
    }
}

impl<S, F> Admit<S, F> {
    pub(crate) fn new(input: S, kind: Kind, name: String, filter: F) -> Self {
        assert!(
            !name.is_empty(),
            "name: expected a name, found an empty string; exclusions are counted under the \
                                   name"
        );
        Self { input: Upstream::new(input), name, filter, kind, configured: false }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for Admit<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admit").field("input", &self.input).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the group if it passes, or `None` if it was excluded.
fn admitted(
    group: Rollout,
    kind: Kind,
    name: &str,
    filter: &mut impl FnMut(&Group) -> bool,
) -> Result<Option<Rollout>, Error> {
    let Some(mut group) = group.check_entry()? else { return Ok(None) };
    // Filters judged a restored group before it was logged, unless `.log` comes before this filter.
    if group.is_restored() && (!group.logged || group.admitted.is_some()) {
        return Ok(Some(group));
    }
    match caught(|| filter(&group)) {
        Ok(verdict) if verdict == (kind == Kind::Admit) => Ok(Some(group)),
        Ok(_) => {
            let enablers = group.completed.map(|stamp| (Cause::Completed, stamp));
            group.exclude(Reason::Filtered { name: name.to_owned() }, enablers.into_iter().collect());
            Ok(None)
        }
        Err(message) => {
            group.complete();
            Err(handler_error(format!("{}(\"{name}\")", kind.name()), &group.id, message))
        }
    }
}

impl<S, F> Stream for Admit<S, F>
where
    S: Stream<Item = Result<Rollout, Error>>,
    F: FnMut(&Group) -> bool,
{
    type Item = Result<Rollout, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            let mut group = match ready!(this.input.as_mut().poll_next(cx)) {
                Some(Ok(group)) => group,
                other => return Poll::Ready(other),
            };
            let run = run_of(&mut group);
            if !std::mem::replace(this.configured, true)
                && let Err(error) = run.configure(&format!("{}/{}", this.kind.name(), this.name), Fields::new())
            {
                return this.input.fail(error);
            }
            match admitted(group, *this.kind, this.name, this.filter) {
                Ok(Some(group)) => return Poll::Ready(Some(Ok(group))),
                Ok(None) => {}
                Err(error) => return this.input.fail(error),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint()
    }
}

impl<S, F> FusedStream for Admit<S, F>
where
    S: Stream<Item = Result<Rollout, Error>>,
    F: FnMut(&Group) -> bool,
{
    fn is_terminated(&self) -> bool {
        self.input.has_ended()
    }
}
