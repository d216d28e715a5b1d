//! Makes a sample from a session: from the user's turns, a fault or a timeout.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;

use crate::Run;
use anabranch_core::{Engine, Error, Finish, LeaseId, Prompt, Sample, Status};
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use parking_lot::Mutex;

use super::sample::{Client, Draft, Place, Stop};
use super::session::Session;
use super::watch::timeout;
use crate::panics::{caught, handler_error, message};

/// The user's part of a sample: drives its turns, and fails with a message.
pub(crate) type Drive<E> = Box<dyn FnMut(Arc<Prompt>, Session<E>) -> BoxFuture<'static, Result<(), String>> + Send>;

/// Makes a sample of one call, submitted at `now`.
pub(super) async fn called<E: Engine>(
    client: Arc<Client<E>>,
    prompt: Vec<u32>,
    now: u64,
    place: Place,
) -> Result<Sample, Error> {
    let draft = Mutex::new(Draft::new(prompt, now));
    let ended = {
        let turn = pin!(client.turn(&draft, &place, 0, &client.sampling));
        within(&client, turn).await
    };
    sample(draft.into_inner(), ended.map(|turn| turn.map(drop).map_err(Stop::cause)), &client.run)
}

/// Makes a sample whose turns the user drives.
pub(super) fn driven<E: Engine>(
    drive: &mut Drive<E>,
    prompt: Arc<Prompt>,
    session: Session<E>,
    lease: LeaseId,
) -> impl Future<Output = Result<Sample, Error>> + Send + use<E> {
    let (client, draft) = (session.client.clone(), session.draft.clone());
    // The closure runs here; its future is polled by the task that polls the stream.
    let turns = caught(|| drive(prompt, session)).map(AssertUnwindSafe);
    async move {
        let panicked = |said: String| Err(handler_error("generate_with", &lease, said));
        let ended = match turns {
            Err(said) => return panicked(said),
            Ok(turns) => match within(&client, pin!(turns.catch_unwind())).await {
                Some(Err(panic)) => return panicked(message(panic.as_ref())),
                Some(Ok(said)) => Some(said),
                None => None,
            },
        };
        // The user may have kept the session.
        let nothing = Draft::new(Vec::new(), 0);
        let draft = std::mem::replace(&mut *draft.lock(), nothing);
        sample(draft, ended, &client.run)
    }
}

/// Returns the result of `work`, or `None` if the group's time limit passed first.
async fn within<E, F: Future>(client: &Client<E>, work: Pin<&mut F>) -> Option<F::Output> {
    let Some(limit) = client.timeout else { return Some(work.await) };
    match select(work, Box::pin(timeout(client.run.clone(), limit))).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(((), _)) => None,
    }
}

/// Makes the sample from `draft`, after its turns ended, failed or (`None`) took too long.
fn sample(mut draft: Draft, ended: Option<Result<(), String>>, run: &Run) -> Result<Sample, Error> {
    let (status, cause) = match (draft.stop.take(), ended) {
        (Some(Stop::Fatal(error)), _) => return Err(error.into()),
        (Some(Stop::Aborted(cause)), _) => (Status::Aborted, Some(cause)),
        (None, None) => (Status::Aborted, Some("timeout".to_owned())),
        (None, Some(Err(cause))) => (Status::Failed, Some(cause)),
        (None, Some(Ok(()))) if draft.finish == Finish::Length => (Status::Truncated, None),
        (None, Some(Ok(()))) => (Status::Completed, None),
    };
    Ok(draft.end(status, cause, run.now()))
}
