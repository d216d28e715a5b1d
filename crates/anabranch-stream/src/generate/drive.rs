//! From a session to its sample: what the user's turns, a fault or a timeout make of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::{Engine, Error, Finish, LeaseId, Prompt, Run, Sample, Status};
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use parking_lot::Mutex;

use super::sample::{Draft, Stop};
use super::session::Session;
use super::watch::timeout;
use crate::panics::{caught, handler_error, message};

/// The user's part of a sample: drives its turns, fails with a message.
pub(crate) type Drive<E> = Box<dyn FnMut(Arc<Prompt>, Session<E>) -> BoxFuture<'static, Result<(), String>> + Send>;

/// A sample of one call.
pub(super) async fn called<E: Engine>(mut session: Session<E>, limit: Option<Duration>) -> Result<Sample, Error> {
    let (run, draft) = (session.client.run.clone(), session.draft.clone());
    let ended = within(&run, limit, async move { session.generate().await.map_err(|stopped| stopped.cause) }).await;
    sample(&draft, ended.map(|said| said.map(drop)), &run)
}

/// A sample whose turns the user drives.
pub(super) fn driven<E: Engine>(
    drive: &mut Drive<E>,
    prompt: Arc<Prompt>,
    session: Session<E>,
    lease: LeaseId,
    limit: Option<Duration>,
) -> impl Future<Output = Result<Sample, Error>> + Send + use<E> {
    let (run, draft) = (session.client.run.clone(), session.draft.clone());
    // The closure runs here, and its future is polled where the stream is.
    let turns = caught(|| drive(prompt, session)).map(AssertUnwindSafe);
    async move {
        let panicked = |said: String| Err(handler_error("generate_with", &lease, said));
        match turns {
            Err(said) => panicked(said),
            Ok(turns) => match within(&run, limit, turns.catch_unwind()).await {
                Some(Err(panic)) => panicked(message(panic.as_ref())),
                Some(Ok(said)) => sample(&draft, Some(said), &run),
                None => sample(&draft, None, &run),
            },
        }
    }
}

/// What `work` comes to; nothing where generation went on for `limit` before it did.
async fn within<T>(run: &Run, limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    let Some(limit) = limit else { return Some(work.await) };
    match select(Box::pin(work), Box::pin(timeout(run.clone(), limit))).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(((), _)) => None,
    }
}

/// The sample that `draft` has become: its turns have ended, or failed, or (`None`) took too long.
fn sample(draft: &Mutex<Draft>, ended: Option<Result<(), String>>, run: &Run) -> Result<Sample, Error> {
    let now = run.now();
    let draft = std::mem::replace(&mut *draft.lock(), Draft::new(Vec::new(), now));
    let (status, cause) = match (draft.stop.clone(), ended) {
        (Some(Stop::Fatal(error)), _) => return Err(error.into()),
        (Some(Stop::Aborted(cause)), _) => (Status::Aborted, Some(cause)),
        (None, None) => (Status::Aborted, Some("timeout".to_owned())),
        (None, Some(Err(cause))) => (Status::Failed, Some(cause)),
        (None, Some(Ok(()))) if draft.finish == Finish::Length => (Status::Truncated, None),
        (None, Some(Ok(()))) => (Status::Completed, None),
    };
    Ok(draft.end(status, cause, now))
}
