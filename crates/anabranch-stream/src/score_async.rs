//! Rewards from asynchronous calls.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch_core::{Error, Moment, Prompt, Stamp, Status};
use futures::future::BoxFuture;
use futures::stream::{FusedStream, FuturesUnordered};
use futures::{FutureExt, Stream, StreamExt};
use pin_project_lite::pin_project;

use crate::entry::at;
use crate::panics::{caught, handler_error, message};
use crate::run::Stage;
use crate::score::{abort_unscored, refuse_logged};
use crate::upstream::{Upstream, in_turn};
use crate::{OwnedResponse, Rollout};

/// How many groups may be scored at once. If more arrive, upstream waits too.
const MAX_SCORING: usize = 1024;

pin_project! {
    /// Stream for [`score_async`](crate::RolloutExt::score_async).
    #[must_use = "streams do nothing unless polled"]
    pub struct ScoreAsync<S, F> {
        #[pin]
        input: Upstream<S>,
        score: F,
        calls: Calls,
    }
}

/// The running calls, and their groups.
struct Calls {
    concurrency: usize,
    retries: u32,
    timeout: Option<Duration>,
    next_key: u64,
    scoring: HashMap<u64, Scoring>,
    queued: VecDeque<Call>,
    running: FuturesUnordered<BoxFuture<'static, (Call, Result<f64, Fault>)>>,
}

/// One sample to score.
#[derive(Copy, Clone)]
struct Call {
    key: u64,
    index: usize,
    tries: u32,
}

/// A group with samples that have no reward yet.
struct Scoring {
    group: Rollout,
    prompt: Arc<Prompt>,
    missing: usize,
}

enum Fault {
    Failed(String),
    Panicked(String),
}

impl<S, F> ScoreAsync<S, F> {
    pub(crate) fn new(input: S, score: F) -> Self {
        let calls = Calls {
            concurrency: 64,
            retries: 0,
            timeout: None,
            next_key: 0,
            scoring: HashMap::new(),
            queued: VecDeque::new(),
            running: FuturesUnordered::new(),
        };
        Self { input: Upstream::new(input), score, calls }
    }

    /// Sets how many calls may run at once. The default is 64.
    ///
    /// # Panics
    /// Panics if `calls` is 0.
    pub fn concurrency(mut self, calls: usize) -> Self {
        assert!(calls > 0, "concurrency: expected at least 1 call, found 0");
        self.calls.concurrency = calls;
        self
    }

    /// Sets how often a call is retried if it fails or times out. If the retries run out, the sample is aborted. The
    /// default is 0.
    pub fn retries(mut self, retries: u32) -> Self {
        self.calls.retries = retries;
        self
    }

    /// Limits the time of a call. By default there is no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.calls.timeout = Some(timeout);
        self
    }
}

impl Calls {
    /// Takes a group. Returns it if there is nothing to score.
    fn accept(&mut self, group: Rollout) -> Result<Option<Rollout>, Error> {
        if group.is_restored() {
            return Ok(Some(group));
        }
        refuse_logged(&group)?;
        let key = self.next_key;
        self.next_key += 1;
        let open = group.samples.iter().enumerate().filter(|(_, sample)| sample.status != Status::Aborted);
        let calls: Vec<Call> = open.map(|(index, _)| Call { key, index, tries: 0 }).collect();
        if calls.is_empty() {
            return Ok(Some(group));
        }
        let prompt = Arc::new(group.prompt.clone());
        self.scoring.insert(key, Scoring { group: at(group, Stage::Working), prompt, missing: calls.len() });
        self.queued.extend(calls);
        Ok(None)
    }

    /// Starts queued calls while the limit allows.
    fn start<F, Fut, R, X>(&mut self, score: &mut F) -> Result<(), Error>
    where
        F: FnMut(OwnedResponse) -> Fut,
        Fut: Future<Output = Result<R, X>> + Send + 'static,
        R: Into<f64>,
        X: fmt::Display,
    {
        while self.running.len() < self.concurrency
            && let Some(call) = self.queued.pop_front()
        {
            let Some(Scoring { group, prompt, .. }) = self.scoring.get(&call.key) else { continue };
            let response = OwnedResponse { prompt: prompt.clone(), sample: group.samples[call.index].clone() };
            match caught(|| score(response)) {
                Ok(reward) => self.running.push(judged(call, reward, self.timeout)),
                Err(message) => return Err(self.panicked(call, message)),
            }
        }
        Ok(())
    }

    /// Takes the result of a call. Returns the group if it was the last call.
    fn absorb(&mut self, call: Call, result: Result<f64, Fault>) -> Result<Option<Rollout>, Error> {
        let Some(scoring) = self.scoring.get_mut(&call.key) else { return Ok(None) };
        let now = Some(scoring.group.run().now());
        let sample = &mut scoring.group.samples[call.index];
        match result {
            Ok(reward) => (sample.reward, sample.times.scored) = (Some(reward), now),
            Err(Fault::Failed(_)) if call.tries < self.retries => {
                self.queued.push_back(Call { tries: call.tries + 1, ..call });
                return Ok(None);
            }
            Err(Fault::Failed(message)) => {
                sample.times.scored = now;
                abort_unscored(&mut scoring.group, call.index, &message);
            }
            Err(Fault::Panicked(message)) => return Err(self.panicked(call, message)),
        }
        scoring.missing -= 1;
        let complete = scoring.missing == 0;
        Ok(if complete { self.scoring.remove(&call.key).map(|scoring| scoring.group) } else { None })
    }

    /// Writes the group to the log, and passes its panic to the consumer.
    fn panicked(&mut self, call: Call, message: String) -> Error {
        let Some(mut scoring) = self.scoring.remove(&call.key) else { return Error::Task(message) };
        abort_unscored(&mut scoring.group, call.index, &message);
        scoring.group.complete();
        handler_error("score_async", &scoring.group.id, message)
    }

    fn clear(&mut self) {
        self.scoring.clear();
        self.queued.clear();
        self.running.clear();
    }
}

/// Passes the group on, which lets another lease out. The enabler is its last reward.
fn departing(group: Rollout) -> Rollout {
    let lease = &group.lease;
    if let Some(at) = group.samples.iter().filter_map(|sample| sample.times.scored).max()
        && let Some(seq) = lease.seq()
    {
        lease.note_departure(Stamp { moment: Moment::Scored { lease: seq }, at });
    }
    at(group, Stage::Upstream)
}

fn judged<Fut, R, X>(call: Call, reward: Fut, limit: Option<Duration>) -> BoxFuture<'static, (Call, Result<f64, Fault>)>
where
    Fut: Future<Output = Result<R, X>> + Send + 'static,
    R: Into<f64>,
    X: fmt::Display,
{
    // The conversion is here so that the user's types are not held across an await.
    let reward = AssertUnwindSafe(reward.map(|result| result.map(Into::into).map_err(|error| error.to_string())));
    async move {
        let in_time = match limit {
            Some(limit) => tokio::time::timeout(limit, reward.catch_unwind()).await,
            None => Ok(reward.catch_unwind().await),
        };
        let result = match in_time {
            Ok(Ok(Ok(reward))) => Ok(reward),
            Ok(Ok(Err(error))) => Err(Fault::Failed(error)),
            Ok(Err(panic)) => Err(Fault::Panicked(message(panic.as_ref()))),
            Err(_) => Err(Fault::Failed(format!("no answer within {:?}", limit.unwrap_or_default()))),
        };
        (call, result)
    }
    .boxed()
}

impl<S, F, Fut, R, X> Stream for ScoreAsync<S, F>
where
    S: Stream<Item = Result<Rollout, Error>>,
    F: FnMut(OwnedResponse) -> Fut,
    Fut: Future<Output = Result<R, X>> + Send + 'static,
    R: Into<f64>,
    X: fmt::Display,
{
    type Item = Result<Rollout, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        let calls = this.calls;
        loop {
            if let Err(error) = calls.start(this.score) {
                calls.clear();
                return this.input.fail(error);
            }
            let ended = this.input.has_ended();
            let polled = if ended || calls.scoring.len() >= MAX_SCORING {
                Poll::Pending
            } else {
                this.input.as_mut().poll_next(cx)
            };
            let took = match polled {
                Poll::Ready(Some(group)) => Some(group.and_then(|group| calls.accept(group))),
                Poll::Ready(None) => Some(Ok(None)),
                Poll::Pending => None,
            };
            let done = match took {
                Some(Ok(None)) => continue,
                Some(done) => done,
                None => match in_turn(cx, |cx| calls.running.poll_next_unpin(cx)) {
                    Poll::Ready(Some((call, result))) => calls.absorb(call, result),
                    Poll::Ready(None) if ended => return Poll::Ready(None),
                    Poll::Ready(None) | Poll::Pending => return Poll::Pending,
                },
            };
            match done {
                Ok(None) => {}
                Ok(Some(group)) => return Poll::Ready(Some(Ok(departing(group)))),
                Err(error) => {
                    calls.clear();
                    return this.input.fail(error);
                }
            }
        }
    }
}

impl<S, F, Fut, R, X> FusedStream for ScoreAsync<S, F>
where
    S: Stream<Item = Result<Rollout, Error>>,
    F: FnMut(OwnedResponse) -> Fut,
    Fut: Future<Output = Result<R, X>> + Send + 'static,
    R: Into<f64>,
    X: fmt::Display,
{
    fn is_terminated(&self) -> bool {
        self.input.has_ended() && self.calls.scoring.is_empty()
    }
}

impl<S: fmt::Debug, F> fmt::Debug for ScoreAsync<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScoreAsync")
            .field("input", &self.input)
            .field("scoring", &self.calls.scoring.len())
            .finish_non_exhaustive()
    }
}
