//! Group timeouts and the watchdog. Both measure only the time in which generation is not paused.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::Run;
use futures::FutureExt;
use futures::future::BoxFuture;

/// Becomes ready when generation has run for `limit` since `since`, which may change meanwhile.
async fn elapsed(run: Run, since: impl Fn() -> u64, limit: Duration) {
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    loop {
        let left = limit.saturating_sub(run.generation_time().saturating_sub(since()));
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_nanos(left)).await;
        run.moving().await;
    }
}

/// Becomes ready when generation has run for `limit` from now on.
pub(super) fn timeout(run: Run, limit: Duration) -> impl Future<Output = ()> {
    let since = run.generation_time();
    elapsed(run, move || since, limit)
}

/// Warns if no token arrives for a time while groups are being generated.
pub(super) struct Watchdog {
    limit: Duration,
    /// The generation time of the last chunk, or of the last submission or warning.
    progress: Arc<AtomicU64>,
    timer: Option<BoxFuture<'static, ()>>,
}

impl Watchdog {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, progress: Arc::default(), timer: None }
    }

    /// The place to store the generation time of each chunk.
    pub(super) fn progress(&self) -> Arc<AtomicU64> {
        self.progress.clone()
    }

    /// Notes that a group is submitted while no other is running.
    pub(super) fn begin(&self, run: &Run) {
        self.progress.store(run.generation_time(), Ordering::Relaxed);
    }

    /// Must be polled with the group that has been running for longest, or `None` if no group is running.
    pub(super) fn poll(&mut self, oldest: Option<(&Run, String, usize)>, cx: &mut Context<'_>) {
        let Some((run, group, growing)) = oldest else {
            self.timer = None;
            return;
        };
        loop {
            let timer = self.timer.get_or_insert_with(|| {
                let progress = self.progress.clone();
                elapsed(run.clone(), move || progress.load(Ordering::Relaxed), self.limit).boxed()
            });
            if Pin::new(timer).poll(cx) == Poll::Pending {
                return;
            }
            let (running, limit) = (run.running(), self.limit);
            tracing::warn!(
                oldest = group,
                groups = growing,
                requests = running,
                "no token arrived in {limit:?} of generation: check whether the engine still answers"
            );
            self.progress.store(run.generation_time(), Ordering::Relaxed);
            self.timer = None;
        }
    }
}
