//! The buffer under an adversarial scheduler, which interleaves the steps of feeder, consumer and producers in every
//! way. A lost wake-up becomes a deadlock, and the scheduler reports the schedule that led to it.

use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use anabranch_core::{
    Dataset, Error, EventKind, Fields, GroupId, MemoryJournal, Order, Sample, SampleTimes, SessionClock, SpanVersion,
    Spans, Status, Version,
};
use futures::{Stream, StreamExt};
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use super::Buffer;
use super::sync::Mutex;
use crate::{Capacity, Lease, Rollout, Run};

/// How many schedules each scheduler tries for each setting.
const SCHEDULES: usize = 300;

/// The channel between producers and feeder.
#[derive(Default)]
struct Channel {
    sent: VecDeque<Result<Rollout, Error>>,
    producers: usize,
    feeder: Option<Waker>,
}

impl Channel {
    fn wake(&mut self) {
        self.feeder.take().into_iter().for_each(Waker::wake);
    }
}

#[derive(Clone)]
struct Upstream(Arc<Mutex<Channel>>);

impl Stream for Upstream {
    type Item = Result<Rollout, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut channel = self.0.lock();
        match channel.sent.pop_front() {
            Some(sent) => Poll::Ready(Some(sent)),
            None if channel.producers == 0 => Poll::Ready(None),
            None => {
                channel.feeder = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The items that a producer sends.
type Script = Vec<Result<Rollout, Error>>;

/// Starts producers that send their scripts, each from its own thread.
fn produce(scripts: Vec<Script>) -> Upstream {
    let channel = Channel { producers: scripts.len(), ..Channel::default() };
    let channel = Arc::new(Mutex::new(channel));
    for script in scripts {
        let channel = channel.clone();
        thread::spawn(move || {
            for sent in script {
                let mut channel = channel.lock();
                channel.sent.push_back(sent);
                channel.wake();
            }
            let mut channel = channel.lock();
            channel.producers -= 1;
            channel.wake();
        });
    }
    Upstream(channel)
}

fn run() -> (Run, Arc<MemoryJournal>) {
    let journal = Arc::new(MemoryJournal::new());
    // A clock that advances at every reading, so that the log tells the order of events.
    let ticks = std::sync::atomic::AtomicU64::new(0);
    let timer = SessionClock::new(move || ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    (Run::builder("test").journal(journal.clone()).clock(timer).open().unwrap(), journal)
}

/// Complete groups of the run, adopted or leased from a source. Their oldest versions go up and down.
fn groups(run: &Run, count: u64, adopted: bool) -> Vec<Rollout> {
    let rows = (0..count).map(|row| (vec![row as u32], Fields::new())).collect();
    let leases = run.prompts(Dataset::new("d", rows).unwrap()).map(Result::unwrap);
    let leases: Vec<_> = futures::executor::block_on(leases.collect());
    let group = |mut lease: Lease| {
        let mut spans = Spans::new();
        spans.push(2, SpanVersion::Exact(Version(lease.id().prompt.row * 5 % 3)), false);
        let sample = Sample {
            tokens: vec![1; 3],
            prompt_len: 1,
            loss_mask: vec![true; 2],
            logprobs: vec![-0.5; 2],
            truncated_logprobs: None,
            spans: spans.into_vec(),
            reward: Some(1.0),
            status: Status::Completed,
            cause: None,
            times: SampleTimes::default(),
        };
        if adopted {
            return run.adopt(Rollout::of_samples(lease, vec![sample]).into_group());
        }
        lease.issue(Vec::new());
        Rollout::of_samples(lease, vec![sample])
    };
    leases.into_iter().map(group).collect()
}

/// Runs `test` under many schedules: random ones, and ones by priorities that change a few times.
fn try_schedules(test: impl Fn() + Send + Sync + Clone + 'static) {
    let schedulers: [Box<dyn Scheduler + Send>; 2] = [
        Box::new(RandomScheduler::new_from_seed(7, SCHEDULES)),
        Box::new(PctScheduler::new_from_seed(7, 3, SCHEDULES)),
    ];
    for scheduler in schedulers {
        let mut config = Config::new();
        config.stack_size = 1 << 19;
        Runner::new(scheduler, config).run(test.clone());
    }
}

fn each_setting(test: impl Fn(Capacity, Order, bool) + Send + Sync + Clone + 'static) {
    for capacity in [Capacity::groups(1), Capacity::groups(2), Capacity::groups(9).and_bytes(60)] {
        for order in [Order::Fifo, Order::Freshest, Order::Stalest] {
            for adopted in [false, true] {
                let test = test.clone();
                try_schedules(move || test(capacity, order, adopted));
            }
        }
    }
}

/// Splits the items between two producers.
fn halves(groups: Vec<Rollout>) -> Vec<Script> {
    let mut halves = [Vec::new(), Vec::new()];
    groups.into_iter().enumerate().for_each(|(index, group)| halves[index % 2].push(Ok(group)));
    halves.into()
}

#[test]
fn every_group_arrives_once_and_in_order_and_then_the_stream_ends() {
    each_setting(|capacity, order, adopted| {
        let (run, journal) = run();
        let groups = groups(&run, 6, adopted);
        let ids: BTreeSet<GroupId> = groups.iter().map(|group| group.id.clone()).collect();
        let mut buffer = Buffer::new(produce(halves(groups)), capacity).order(order);
        let left: Vec<Rollout> = block_on(async {
            let mut left = Vec::new();
            while let Some(group) = buffer.next().await {
                left.push(group.unwrap());
            }
            left
        });
        assert_eq!(left.len(), 6);
        assert_eq!(left.iter().map(|group| group.id.clone()).collect::<BTreeSet<_>>(), ids);
        let admitted: Vec<(GroupId, u64)> = journal
            .events()
            .into_iter()
            .filter_map(|event| match event.kind {
                EventKind::Admitted { id } => Some((id, event.at)),
                _ => None,
            })
            .collect();
        check_order(order, &left, &admitted);
    });
}

/// Asserts that each group that left was the first of those in the buffer.
fn check_order(order: Order, left: &[Rollout], admitted: &[(GroupId, u64)]) {
    for (index, group) in left.iter().enumerate() {
        let at = group.dequeued.unwrap();
        let inside = admitted.iter().filter(|(id, since)| *since < at && left[index..].iter().any(|g| g.id == *id));
        let version = |id: &GroupId| id.prompt.row * 5 % 3;
        let due = match order {
            Order::Fifo => inside.min_by_key(|(_, since)| *since),
            Order::Freshest => inside.min_by_key(|(id, since)| (std::cmp::Reverse(version(id)), *since)),
            Order::Stalest => inside.min_by_key(|(id, since)| (version(id), *since)),
        };
        assert_eq!(due.map(|(id, _)| id), Some(&group.id), "{order}");
    }
}

#[test]
fn an_error_arrives_whatever_is_queued_and_whoever_waits() {
    each_setting(|capacity, order, adopted| {
        let (run, _) = run();
        let mut scripts = halves(groups(&run, 5, adopted));
        scripts[1].insert(1, Err(Error::Task("the engine is gone".to_owned())));
        let mut buffer = Buffer::new(produce(scripts), capacity).order(order);
        let (passed, error) = block_on(async {
            let mut passed = 0;
            loop {
                match buffer.next().await.expect("an error comes before the end") {
                    Ok(_) => passed += 1,
                    Err(error) => break (passed, error),
                }
            }
        });
        assert!(passed <= 5 && error.to_string().contains("the engine is gone"), "{passed} groups, then {error}");
        assert!(block_on(buffer.next()).is_none(), "then the stream ends");
        assert_eq!(run.metrics().gauges.queue, Some(0), "the queued groups are dropped");
    });
}

#[test]
fn dropping_the_stream_at_any_moment_stops_the_feeder() {
    each_setting(|capacity, order, adopted| {
        let (run, journal) = run();
        let upstream = produce(halves(groups(&run, 4, adopted)));
        let channel = Arc::downgrade(&upstream.0);
        let mut buffer = Buffer::new(upstream, capacity).order(order);
        let mut left = 0;
        block_on(async {
            while left < 2 {
                left += usize::from(buffer.next().await.unwrap().is_ok());
            }
        });
        drop(buffer);
        let events = journal.events().len();
        thread::yield_now();
        assert_eq!(journal.events().len(), events, "nothing is recorded after the drop");
        // Only producers that have not finished still know the channel.
        let known = channel.strong_count();
        assert!(known <= 2, "{known} know the channel");
    });
}
