//! The trait with all combinators.

use std::fmt::Display;

use anabranch_core::{Batch, Engine, Error, Group, Learner, Lease, Restored, Run};
use futures::Stream;

use crate::admit::Kind;
use crate::{
    Admit, Batches, Buffer, Capacity, Fresh, Generate, InFlight, Log, MaxStaleness, OwnedResponse, Response, Samples,
    Score, ScoreAsync, Train,
};

/// The combinators of a rollout pipeline, on any stream whose items are `Result<_, Error>`.
///
/// Each method stands for one concept; the order in which they are written is the order in which a group passes them.
/// After the first error a stream ends, and whatever it ran stops; so it does when it is dropped. However much is ready at
/// once, operators keep to the budget of the tokio task that polls them and then let other tasks have their turns.
pub trait RolloutExt: Stream {
    /// Generates a group of `samples` samples for each lease, on `engine`, with at most `in_flight` groups at once.
    /// Groups come out in the order they complete.
    ///
    /// A lease is issued (recorded, its samples submitted) when slots are free, submissions are open and downstream has
    /// room. Transient faults of the engine are retried with back-off, from the tokens already there; past the limit the
    /// sample is aborted. Groups that an earlier session completed are read from the log and passed on.
    ///
    /// # Back-pressure
    /// Without [`buffer`](Self::buffer) leases are issued only while a batch is being pulled, and never more than it
    /// still lacks. With it they are issued as slots become free, unless a completed group waits for room. Groups between
    /// their issue and the buffer: at most `g` with a slot a group, `(g - 1)·n + 1` with a slot a sample (the default).
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing: requests go on in the engine, their chunks are kept. Dropping the
    /// stream cancels them; their leases stay open in the log and come back when the run is resumed.
    ///
    /// # Errors
    /// [`Error::Engine`] at a fatal fault, at once. [`Error::Changed`] where the log has other settings.
    /// [`Error::Journal`] where a restored group cannot be read.
    ///
    /// # Panics
    /// Where `samples` is 0.
    ///
    /// ```
    /// use anabranch_core::{Dataset, Digest, Error, Fields, InFlightMode, Run, Sampling};
    /// use anabranch_engine::Sim;
    /// use anabranch_stream::{InFlight, RolloutExt, Samples, publish};
    /// use futures::TryStreamExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let (run, engine) = (Run::in_memory(), Sim::fixed(9, std::time::Duration::ZERO));
    /// publish(&run, &engine, 0, Digest::default(), InFlightMode::Retract).await?;
    /// let dataset = Dataset::new("d", vec![(vec![1, 2], Fields::new())]).expect("one row");
    /// let groups: Vec<_> = run
    ///     .prompts(dataset)
    ///     .generate(&engine, InFlight::groups(2), Samples(4))
    ///     .sampling(Sampling { max_tokens: 5, ..Sampling::default() })
    ///     .seed(17)
    ///     .try_collect()
    ///     .await?;
    /// assert_eq!((groups.len(), groups[0].samples.len()), (1, 4));
    /// assert_eq!(groups[0].samples[0].response().len(), 5);
    /// # Ok(())
    /// # }
    /// ```
    fn generate<E>(self, engine: &E, in_flight: InFlight, samples: Samples) -> Generate<Self, E>
    where
        Self: Stream<Item = Result<Lease, Error>> + Sized,
        E: Engine + Clone,
    {
        Generate::new(self, engine.clone(), in_flight, samples)
    }

    /// Gives each sample the reward that `score` finds. Aborted samples are skipped, and so are groups that an earlier
    /// session completed: their rewards are in the log.
    ///
    /// `score` runs where the stream is polled; let it be quick, and use [`score_async`](Self::score_async) otherwise.
    ///
    /// # Back-pressure
    /// Holds no group.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// [`Error::Handler`] where `score` panics; the group is in the log, its sample aborted with cause `reward`.
    /// [`Error::Argument`] behind [`log`](Self::log): rewards would be missing there. A reward that is NaN makes the
    /// group malformed, which the next check finds.
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, InFlightMode, Run, Value};
    /// # use anabranch_engine::{Reply, Sim};
    /// # use anabranch_stream::{InFlight, RolloutExt, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let run = Run::in_memory();
    /// # let engine = Sim::scripted(|_| Reply::saying(vec![42], std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), InFlightMode::Retract).await?;
    /// let answer = Fields::from([("answer".to_owned(), Value::from(42_u32))]);
    /// let dataset = Dataset::new("d", vec![(vec![1], answer)]).expect("one row");
    /// let groups: Vec<_> = run
    ///     .prompts(dataset)
    ///     .generate(&engine, InFlight::groups(1), Samples(2))
    ///     .score(|response| {
    ///         let answer = response.prompt.fields["answer"].as_int();
    ///         response.response().first().map(|&token| i64::from(token)) == answer
    ///     })
    ///     .try_collect()
    ///     .await?;
    /// assert_eq!(groups[0].reward_mean(), Some(1.0));
    /// # Ok(())
    /// # }
    /// ```
    fn score<F, R>(self, score: F) -> Score<Self, F>
    where
        Self: Stream<Item = Result<Group, Error>> + Sized,
        F: FnMut(Response<'_>) -> R,
        R: Into<f64>,
    {
        Score::new(self, score)
    }

    /// The same for rewards that take time: services, sandboxes, judges. Calls of several samples and groups run at once
    /// ([`concurrency`](ScoreAsync::concurrency)); groups come out in the order their last reward came.
    ///
    /// A call that fails or times out is made again ([`retries`](ScoreAsync::retries)); past that its sample is aborted
    /// with cause `reward`, and the group is excluded where it is checked next.
    ///
    /// # Back-pressure
    /// Groups being scored count as on their way: [`generate`](Self::generate) keeps their number within its bound.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing. Dropping the stream drops the calls under way.
    ///
    /// # Errors
    /// [`Error::Handler`] where `score` or its future panics; the group is in the log, its sample aborted.
    /// [`Error::Argument`] behind [`log`](Self::log).
    ///
    /// # Panics
    /// With a timeout, outside a tokio runtime.
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, InFlightMode, Run};
    /// # use anabranch_engine::Sim;
    /// # use anabranch_stream::{InFlight, RolloutExt, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), InFlightMode::Retract).await?;
    /// # let dataset = Dataset::new("d", vec![(vec![1], Fields::new())]).expect("one row");
    /// let groups: Vec<_> = run
    ///     .prompts(dataset)
    ///     .generate(&engine, InFlight::groups(1), Samples(2))
    ///     .score_async(|response| async move {
    ///         tokio::task::yield_now().await;
    ///         Ok::<_, std::io::Error>(response.response().len() as f64)
    ///     })
    ///     .concurrency(8)
    ///     .try_collect()
    ///     .await?;
    /// assert_eq!(groups[0].reward_mean(), Some(3.0));
    /// # Ok(())
    /// # }
    /// ```
    fn score_async<F, Fut, R, X>(self, score: F) -> ScoreAsync<Self, F>
    where
        Self: Stream<Item = Result<Group, Error>> + Sized,
        F: FnMut(OwnedResponse) -> Fut,
        Fut: Future<Output = Result<R, X>> + Send + 'static,
        R: Into<f64>,
        X: Display,
    {
        ScoreAsync::new(self, score)
    }

    /// Lets a group pass where `filter` says so; others are excluded as `Filtered { name }` and never retried. Aborted
    /// groups are excluded before the filter sees them; groups that an earlier session admitted are not judged again.
    ///
    /// # Back-pressure
    /// Holds no group.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// [`Error::Handler`] where `filter` panics: that is no verdict, the group is in the log. [`Error::Malformed`] and
    /// [`Error::FutureVersion`] for groups that fail the entry checks; they are in the log too.
    ///
    /// # Panics
    /// Where `name` is empty.
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, InFlightMode, Run};
    /// # use anabranch_engine::Sim;
    /// # use anabranch_stream::{InFlight, RolloutExt, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), InFlightMode::Retract).await?;
    /// # let dataset = Dataset::new("d", vec![(vec![1], Fields::new())]).expect("one row");
    /// let groups: Vec<_> = run
    ///     .prompts(dataset)
    ///     .generate(&engine, InFlight::groups(1), Samples(2))
    ///     .score(|_| 1.0)
    ///     .admit("spread", |group| group.reward_spread() > 0.0)
    ///     .try_collect()
    ///     .await?;
    /// assert!(groups.is_empty());
    /// assert_eq!(run.stats().excluded["filtered"], 1);
    /// # Ok(())
    /// # }
    /// ```
    fn admit<F>(self, name: impl Into<String>, filter: F) -> Admit<Self, F>
    where
        Self: Stream<Item = Result<Group, Error>> + Sized,
        F: FnMut(&Group) -> bool,
    {
        Admit::new(self, Kind::Admit, name.into(), filter)
    }

    /// Excludes, as [`Reason::Filtered`](anabranch_core::Reason::Filtered) under `name`, each group for which `predicate`
    /// is true; otherwise the same as [`admit`](Self::admit). [`filters`](crate::filters) has the usual predicates.
    /// Filters judge in the order written, and the first to refuse a group names its exclusion.
    ///
    /// # Back-pressure
    /// Holds no group.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// As those of [`admit`](Self::admit).
    ///
    /// # Panics
    /// Where `name` is empty.
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, InFlightMode, Run};
    /// # use anabranch_engine::Sim;
    /// # use anabranch_stream::{InFlight, RolloutExt, Samples, filters, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), InFlightMode::Retract).await?;
    /// # let dataset = Dataset::new("d", vec![(vec![1], Fields::new())]).expect("one row");
    /// let groups: Vec<_> = run
    ///     .prompts(dataset)
    ///     .generate(&engine, InFlight::groups(1), Samples(2))
    ///     .score(|_| 1.0)
    ///     .reject("overlong", filters::overlong(100))
    ///     .reject("zero_spread", filters::zero_spread)
    ///     .try_collect()
    ///     .await?;
    /// assert!(groups.is_empty(), "both samples have the same reward");
    /// # Ok(())
    /// # }
    /// ```
    fn reject<F>(self, name: impl Into<String>, predicate: F) -> Admit<Self, F>
    where
        Self: Stream<Item = Result<Group, Error>> + Sized,
        F: FnMut(&Group) -> bool,
    {
        Admit::new(self, Kind::Reject, name.into(), predicate)
    }

    /// Writes each group into the log of `run` with its payload, and passes it on when that is durable as the log's mode
    /// promises; while it waits it goes on polling upstream. A group that nobody logs is logged where it enters the
    /// buffer or a batch.
    ///
    /// # Back-pressure
    /// Groups waiting for the log count as on their way; at most 256 wait here.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing. What was appended is written even where the stream is dropped.
    ///
    /// # Errors
    /// [`Error::Journal`] where the log cannot be written. [`Error::Argument`] where the group belongs to another run.
    /// [`Error::Malformed`] and [`Error::FutureVersion`] as in [`admit`](Self::admit).
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, InFlightMode, Run};
    /// # use anabranch_engine::Sim;
    /// # use anabranch_stream::{InFlight, RolloutExt, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), InFlightMode::Retract).await?;
    /// # let dataset = Dataset::new("d", vec![(vec![1], Fields::new())]).expect("one row");
    /// let groups: Vec<_> = run
    ///     .prompts(dataset)
    ///     .generate(&engine, InFlight::groups(1), Samples(2))
    ///     .log(&run)
    ///     .try_collect()
    ///     .await?;
    /// assert_eq!(run.payload(&groups[0].id)?, groups[0]);
    /// # Ok(())
    /// # }
    /// ```
    fn log(self, run: &Run) -> Log<Self>
    where
        Self: Stream<Item = Result<Group, Error>> + Sized,
    {
        Log::new(self, run.clone())
    }

    /// The point where generation runs ahead of training: completed groups wait here, first in first out by admission,
    /// which is completion order, unless another [`order`](Buffer::order) is chosen. Everything before it runs in a task of
    /// its own from the first poll on.
    ///
    /// **Without it the same chain is synchronous**: nothing is in flight when a batch is yielded, and every gap is 0.
    ///
    /// # Back-pressure
    /// Where `capacity` is used up completed groups wait, no new group is submitted, and running generations go on. Taking
    /// a group out lets the next one in at once, before any verdict on the one taken. Memory: groups outside the buffer,
    /// capacity, one batch being assembled, one being trained on.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing. Dropping the stream stops the task, and with it every request; what is
    /// in the buffer is in the log, and comes back when the run is resumed.
    ///
    /// # Errors
    /// Those from upstream: an error overtakes what is queued, then the stream ends. [`Error::Task`] where the runtime
    /// stops the task.
    ///
    /// # Panics
    /// With a panic of its task, and where it is first polled outside a tokio runtime.
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, InFlightMode, Run};
    /// # use anabranch_engine::Sim;
    /// # use anabranch_stream::{Capacity, InFlight, RolloutExt, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), InFlightMode::Retract).await?;
    /// # let rows = (0..9).map(|row| (vec![row], Fields::new())).collect();
    /// let mut groups = run
    ///     .prompts(Dataset::new("d", rows).expect("nine rows"))
    ///     .generate(&engine, InFlight::groups(2), Samples(2))
    ///     .buffer(Capacity::groups(4));
    /// let first = groups.try_next().await?;
    /// assert_eq!(first.map(|group| group.id.to_string()).as_deref(), Some("d/0/0#0"));
    /// # Ok(())
    /// # }
    /// ```
    fn buffer(self, capacity: Capacity) -> Buffer<Self>
    where
        Self: Stream<Item = Result<Group, Error>> + Send + Sized + 'static,
    {
        Buffer::new(self, capacity)
    }

    /// Lets a group pass where its version gap is within `limit` now, when it is taken out for training; others are
    /// excluded as `Stale`, and retried where the source says so. [`batch`](Self::batch) judges by the same limit once
    /// more when it commits.
    ///
    /// A group whose version nobody can bound is excluded as `UnknownVersion`, unless
    /// [`allow_unknown_versions`](Fresh::allow_unknown_versions). Where the *installed* version is unknown all pass.
    ///
    /// # Back-pressure
    /// Holds no group.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// Those from upstream.
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, InFlightMode, Run};
    /// # use anabranch_engine::Sim;
    /// # use anabranch_stream::{InFlight, MaxStaleness, RolloutExt, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), InFlightMode::Retract).await?;
    /// # let rows = (0..3).map(|row| (vec![row], Fields::new())).collect();
    /// let mut groups = run
    ///     .prompts(Dataset::new("d", rows).expect("three rows"))
    ///     .generate(&engine, InFlight::groups(1), Samples(2))
    ///     .fresh(MaxStaleness(1));
    /// assert!(groups.try_next().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    fn fresh(self, limit: MaxStaleness) -> Fresh<Self>
    where
        Self: Stream<Item = Result<Group, Error>> + Sized,
    {
        Fresh::new(self, limit)
    }

    /// Takes exactly `groups` groups for a training step, in the order they come. This is the commit point: in one
    /// critical section against publications it judges all of them again, replaces those now over the limit of
    /// [`fresh`](Self::fresh), and only when all pass records `BatchTaken`; the batch is yielded when that is durable.
    ///
    /// # Back-pressure
    /// Holds less than one batch, and only while it is polled: poll it when the learner is free.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// [`Error::Journal`] where the batch cannot be recorded; [`Error::Argument`] for a group without a lease. Groups it
    /// held are in the log.
    ///
    /// # Panics
    /// Where `groups` is 0.
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, InFlightMode, Run};
    /// # use anabranch_engine::Sim;
    /// # use anabranch_stream::{InFlight, RolloutExt, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), InFlightMode::Retract).await?;
    /// # let rows = (0..5).map(|row| (vec![row], Fields::new())).collect();
    /// let batches: Vec<_> = run
    ///     .prompts(Dataset::new("d", rows).expect("five rows"))
    ///     .generate(&engine, InFlight::groups(4), Samples(2))
    ///     .batch(2)
    ///     .try_collect()
    ///     .await?;
    /// assert_eq!(batches.len(), 2, "the fifth group stays in the log");
    /// # Ok(())
    /// # }
    /// ```
    fn batch(self, groups: usize) -> Batches<Self>
    where
        Self: Stream<Item = Result<Group, Error>> + Sized,
    {
        Batches::new(self, groups)
    }

    /// Trains `learner` on each batch, and yields what the step came to. First it trains again, from the log, on the
    /// batches that an earlier session took after the learner's checkpoint; those steps are yielded as `replayed`. When
    /// upstream has ended it records `RunClosed`, with what is left in the log.
    ///
    /// [`checkpoint_every`](Train::checkpoint_every), [`publish_every`](Train::publish_every) and
    /// [`in_flight`](Train::in_flight) follow directly. Order after a step: recorded, checkpoint if due, publication if
    /// due, yielded.
    ///
    /// # Back-pressure
    /// Upstream is polled only when the learner is free.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing. Dropping the stream lets the learner finish the call it is in, whose
    /// result is lost; that batch is trained again when the run is resumed.
    ///
    /// # Errors
    /// [`Error::Learner`], [`Error::Engine`] where a publication fails, [`Error::Journal`], [`Error::Changed`], and those
    /// from upstream.
    ///
    /// # Panics
    /// With a panic of the learner; where it is polled outside a tokio runtime.
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Error, Fields, Run};
    /// # use anabranch_engine::{HashChain, Sim};
    /// # use anabranch_stream::{InFlight, RolloutExt, Samples};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # let rows = (0..6).map(|row| (vec![row], Fields::new())).collect();
    /// let learner = run.restore(HashChain::new(1))?;
    /// let steps: Vec<_> = run
    ///     .prompts(Dataset::new("d", rows).expect("six rows"))
    ///     .generate(&engine, InFlight::groups(4), Samples(2))
    ///     .batch(2)
    ///     .train(learner)
    ///     .checkpoint_every(10)
    ///     .publish_every(1, &engine)
    ///     .try_collect()
    ///     .await?;
    /// assert_eq!(steps.len(), 3);
    /// assert_eq!(steps[2].gap_max, Some(0), "without a buffer the chain is synchronous");
    /// assert_eq!(engine.stats().installs.len(), 4, "v0 and one a step");
    /// # Ok(())
    /// # }
    /// ```
    fn train<L>(self, learner: Restored<L>) -> Train<Self, L>
    where
        Self: Stream<Item = Result<Batch, Error>> + Sized,
        L: Learner,
    {
        Train::new(self, learner)
    }
}

impl<S: Stream + ?Sized> RolloutExt for S {}
