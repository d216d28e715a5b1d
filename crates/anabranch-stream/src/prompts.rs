//! The source of a pipeline. It leases prompts: retries and unfinished leases first.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use anabranch_core::{
    Cause, Dataset, Error, Fields, Group, GroupId, MAX_REISSUES, Moment, OpenLease, QueuedGroup, Reason, Retry, Stamp,
    Value,
};
use futures::Stream;
use futures::stream::FusedStream;

use self::shuffle::Permutation;
use crate::lease::RestoredGroup;
use crate::{Lease, Rollout, Run, Unused};

mod shuffle;

/// Stream of leases: see [`Run::prompts`].
///
/// It yields first the groups that an earlier session left in the log, then queued retries, then leases that were in
/// flight, then fresh prompts. A retry that is queued later goes out before the next fresh prompt. The stream ends when
/// the dataset is exhausted, no retry is queued and no retry can follow: with [`Unused::Retry`], when no lease is open.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Prompts {
    run: Run,
    dataset: Dataset,
    epochs: u32,
    shuffle: Option<u64>,
    unused: Unused,
    started: bool,
    ended: bool,
    position: u64,
    queued: VecDeque<QueuedGroup>,
    open: VecDeque<OpenLease>,
    first_retries: VecDeque<Retry>,
}

impl Prompts {
    pub(crate) fn new(run: Run, dataset: Dataset) -> Self {
        Self {
            run,
            dataset,
            epochs: 1,
            shuffle: None,
            unused: Unused::Drop,
            started: false,
            ended: false,
            position: 0,
            queued: VecDeque::new(),
            open: VecDeque::new(),
            first_retries: VecDeque::new(),
        }
    }

    /// Sets how often the dataset is used. The default is once.
    ///
    /// # Panics
    /// Panics if `epochs` is 0.
    pub fn epochs(mut self, epochs: u32) -> Self {
        assert!(epochs > 0, "epochs: expected at least 1, found 0");
        self.epochs = epochs;
        self
    }

    /// Shuffles the prompts of each epoch with `seed`, each epoch in a different order. A resumed run continues in the
    /// same order.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.shuffle = Some(seed);
        self
    }

    /// Sets what happens to the prompts of aborted and stale groups. By default they are dropped.
    ///
    /// # Panics
    /// Panics if `max_attempts` is 0.
    pub fn unused(mut self, unused: Unused) -> Self {
        assert!(
            !matches!(unused, Unused::Retry { max_attempts: 0 }),
            "max_attempts: expected at least 1, which counts the first lease, found 0"
        );
        self.unused = unused;
        self
    }

    fn start(&mut self) -> Result<(), Error> {
        let settings = Fields::from([
            ("dataset".to_owned(), Value::from(&**self.dataset.name())),
            ("digest".to_owned(), self.dataset.digest().to_string().into()),
            ("rows".to_owned(), self.dataset.len().into()),
            ("epochs".to_owned(), self.epochs.into()),
            ("shuffle".to_owned(), self.shuffle.into()),
            (
                "max_attempts".to_owned(),
                if let Unused::Retry { max_attempts } = self.unused { max_attempts.into() } else { Value::Null },
            ),
        ]);
        self.run.configure("prompts", settings)?;
        let left = self.run.take_leftovers();
        self.position = left.position;
        self.queued = left.queued.into();
        self.open = left.in_flight.into();
        self.first_retries = left.retries;
        Ok(())
    }

    fn lease(&self, id: GroupId) -> Result<Lease, Error> {
        let prompt = self.dataset.prompt(id.prompt.epoch, id.prompt.row).filter(|prompt| prompt.id == id.prompt);
        let prompt = prompt.ok_or_else(|| Error::Argument {
            argument: "dataset",
            message: format!(
                "the log has a lease {id}, but `{}` has no such row: use the dataset with which the run began",
                self.dataset.name()
            ),
        })?;
        Ok(Lease::new(self.run.clone(), id, prompt, self.unused))
    }

    fn restored(&self, group: QueuedGroup) -> Result<Lease, Error> {
        let restored =
            RestoredGroup { completed: Stamp::earlier(group.completed), admitted: group.admitted.map(Stamp::earlier) };
        Ok(self.lease(group.id)?.reopened(Stamp::earlier(group.leased), 0, Some(restored)))
    }

    fn retry(&self, retry: Retry) -> Result<Lease, Error> {
        let stamp = Stamp { moment: Moment::Event(retry.excluded), at: retry.at };
        Ok(self.lease(retry.lease)?.enabled_by(Cause::Retry, stamp))
    }

    /// Returns a lease of an earlier session, to be issued again. If it was issued too often, it is excluded instead
    /// (`None`).
    fn reissue(&self, open: OpenLease) -> Result<Option<Lease>, Error> {
        let lease = self.lease(open.id.clone())?;
        let stamp = Stamp::earlier(open.leased);
        if open.reissues < MAX_REISSUES {
            return Ok(Some(lease.reopened(stamp, open.reissues + 1, None)));
        }
        tracing::warn!(lease = %open.id, reissues = open.reissues, "a lease was in flight in too many sessions and is excluded as aborted");
        let mut lease = lease;
        lease.settle_unissued(stamp);
        let group = Group {
            id: open.id,
            prompt: lease.prompt().clone(),
            expected: 0,
            samples: Vec::new(),
            extra: Fields::from([("cause".to_owned(), Value::from("reissued too often"))]),
        };
        Rollout::new(group, lease).exclude(Reason::Aborted, vec![(Cause::Leased, stamp)]);
        Ok(None)
    }

    fn fresh(&mut self) -> Option<Lease> {
        let rows = self.dataset.len();
        let epoch = u32::try_from(self.position / rows).ok().filter(|&epoch| epoch < self.epochs)?;
        let index = self.position % rows;
        let row = self.shuffle.map_or(index, |seed| Permutation::new(rows, seed, epoch).at(index));
        let prompt = self.dataset.prompt(epoch, row)?;
        let id = GroupId { prompt: prompt.id.clone(), attempt: 0 };
        let lease = Lease::new(self.run.clone(), id, prompt, self.unused).at_position(self.position);
        self.position += 1;
        Some(lease)
    }

    fn next_lease(&mut self) -> Result<Option<Lease>, Error> {
        if let Some(group) = self.queued.pop_front() {
            self.run.flow().hand_out();
            return self.restored(group).map(Some);
        }
        if let Some(retry) = self.first_retries.pop_front() {
            return self.retry(retry).map(Some);
        }
        while let Some(open) = self.open.pop_front() {
            self.run.flow().hand_out();
            if let Some(lease) = self.reissue(open)? {
                return Ok(Some(lease));
            }
        }
        if let Some(retry) = self.run.flow().next_retry() {
            return self.retry(retry).map(Some);
        }
        Ok(self.fresh())
    }
}

impl Stream for Prompts {
    type Item = Result<Lease, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if !self.started {
            self.started = true;
            if let Err(error) = self.start() {
                self.ended = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
        loop {
            match self.next_lease() {
                Ok(Some(lease)) => return Poll::Ready(Some(Ok(lease))),
                // Without retries no lease can follow, even if some are open. So an adaptor that holds groups back
                // until the end of the stream sees that end.
                Ok(None) if self.unused == Unused::Drop || self.run.flow().try_end(cx.waker()) => {
                    self.ended = true;
                    return Poll::Ready(None);
                }
                // A retry may have been queued in between.
                Ok(None) if self.run.flow().has_retries() => {}
                Ok(None) => return Poll::Pending,
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl FusedStream for Prompts {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use futures::executor::block_on;

    use anabranch_core::{EventKind, MemoryJournal, ResumeState, Then};

    use super::*;
    use crate::run::Stage;

    fn dataset(rows: usize) -> Dataset {
        Dataset::new("d", (0..rows).map(|row| (vec![row as u32], Fields::new())).collect()).unwrap()
    }

    fn group(mut lease: Lease) -> Rollout {
        lease.issue(Vec::new());
        Rollout::of_samples(lease, Vec::new())
    }

    fn names(prompts: &mut Prompts, count: usize) -> Vec<String> {
        block_on(prompts.take(count).map(|lease| lease.unwrap().id().to_string()).collect())
    }

    #[test]
    fn epochs_follow_each_other_and_the_source_waits_for_open_leases() {
        let run = Run::in_memory();
        let mut prompts = run.prompts(dataset(3)).epochs(2).unused(Unused::Retry { max_attempts: 2 });
        let kept: Vec<Lease> = block_on(prompts.by_ref().take(6).map(Result::unwrap).collect());
        assert_eq!(kept[5].id().to_string(), "d/1/2#0");
        let waker = futures::task::noop_waker();
        assert!(prompts.poll_next_unpin(&mut Context::from_waker(&waker)).is_pending(), "six leases are open");
        drop(kept);
        assert!(block_on(prompts.next()).is_none());
    }

    #[test]
    fn without_retries_the_source_waits_for_nothing() {
        let run = Run::in_memory();
        let mut prompts = run.prompts(dataset(2));
        let kept: Vec<Lease> = block_on(prompts.by_ref().take(2).map(Result::unwrap).collect());
        assert!(block_on(prompts.next()).is_none());
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn a_retry_goes_before_fresh_prompts_until_its_attempts_are_used_up() {
        let run = Run::in_memory();
        let mut prompts = run.prompts(dataset(9)).unused(Unused::Retry { max_attempts: 2 });
        let first = block_on(prompts.next()).unwrap().unwrap();
        group(first).exclude(Reason::Stale { gap: 3 }, Vec::new());
        let again = block_on(prompts.next()).unwrap().unwrap();
        assert_eq!(again.id().to_string(), "d/0/0#1");
        group(again).exclude(Reason::Aborted, Vec::new());
        let filtered = block_on(prompts.next()).unwrap().unwrap();
        assert_eq!(filtered.id().to_string(), "d/0/1#0", "exhausted: the next is fresh");
        group(filtered).exclude(Reason::Filtered { name: "f".into() }, Vec::new());
        assert_eq!(names(&mut prompts, 1), ["d/0/2#0"], "filtered groups are never retried");
        let counters = run.metrics().counters;
        assert_eq!((counters.retried[&1], counters.excluded["stale"], counters.excluded["aborted"]), (1, 1, 1));
        assert_eq!((counters.retried.len(), counters.exhausted, counters.filtered["f"]), (1, 1, 1));
    }

    #[test]
    fn a_resumed_source_serves_what_was_left_then_goes_on() {
        let id = |text: &str| text.parse::<GroupId>().unwrap();
        let past = ResumeState {
            next_seq: anabranch_core::Seq(50),
            session: 1,
            position: 4,
            queued: vec![QueuedGroup {
                id: id("d/0/0"),
                leased: anabranch_core::Seq(1),
                completed: anabranch_core::Seq(5),
                admitted: None,
            }],
            retries: [Retry { lease: id("d/0/1#1"), excluded: anabranch_core::Seq(9), at: 0 }].into(),
            open: vec![
                OpenLease { id: id("d/0/2"), leased: anabranch_core::Seq(3), reissues: 0 },
                OpenLease { id: id("d/0/3"), leased: anabranch_core::Seq(4), reissues: MAX_REISSUES },
            ],
            ..ResumeState::default()
        };
        let journal = std::sync::Arc::new(MemoryJournal::starting_at(anabranch_core::Seq(50)));
        let run = Run::builder("test")
            .journal(journal.clone())
            .resume(past, anabranch_metrics::Meter::default())
            .open()
            .unwrap();
        let mut prompts = run.prompts(dataset(6)).epochs(1);
        let leases: Vec<Lease> = block_on(prompts.by_ref().take(4).map(Result::unwrap).collect());
        assert_eq!(
            leases.iter().map(|lease| lease.id().to_string()).collect::<Vec<_>>(),
            ["d/0/0#0", "d/0/1#1", "d/0/2#0", "d/0/4#0"]
        );
        assert!(leases[0].restored().is_some());
        assert!(leases.iter().all(|lease| lease.stage() == Stage::Offered));
        let aborted = journal.events().into_iter().find_map(|event| match event.kind {
            EventKind::Excluded { id, reason, then, .. } => Some((id.to_string(), reason, then)),
            _ => None,
        });
        assert_eq!(aborted, Some(("d/0/3#0".to_owned(), Reason::Aborted, Then::Drop)));
        let mut again = leases;
        again[2].issue(Vec::new());
        assert!(journal.events().iter().any(|event| matches!(event.kind, EventKind::Reissued { reissue: 1, .. })));
    }
}
