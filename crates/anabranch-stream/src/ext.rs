//! The trait with all combinators.

use std::fmt::Display;
use std::sync::Arc;

use anabranch_core::{Batch, Engine, Error, Group, Learner, Prompt};
use futures::{FutureExt, Stream};

use crate::admit::Kind;
use crate::generate::Drive;
use crate::{
    Admit, Batches, Buffer, Capacity, Fresh, Generate, InFlight, Lease, Log, MaxStaleness, OwnedResponse, Pace,
    Response, Restored, Rollout, Run, Samples, Score, ScoreAsync, Session, Train,
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
    /// use anabranch_core::{Dataset, Digest, Error, Fields, Sampling, WeightSync};
    /// use anabranch_sim::Sim;
    /// use anabranch_stream::{InFlight, RolloutExt, Run, Samples, publish};
    /// use futures::TryStreamExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let (run, engine) = (Run::in_memory(), Sim::fixed(9, std::time::Duration::ZERO));
    /// publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
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
        Generate::new(self, engine.clone(), in_flight, samples, None)
    }

    /// Generates as [`generate`](Self::generate) does, but `drive` says what a sample is: it gets the prompt and a
    /// [`Session`] with any engine, and makes as many calls as it likes, each under whatever versions are installed
    /// meanwhile. What it appends for tools and environments is masked in the loss and has no version span; it may set
    /// the reward, too.
    ///
    /// The sample ends when the future does. An error makes it `Failed`: with a reward it can be trained on, without one
    /// the group is excluded as aborted. Where the engine gives a request up the sample is aborted, whatever the future
    /// returns then.
    ///
    /// # Back-pressure
    /// As with [`generate`](Self::generate). A sample holds its slot until its future ends, between turns too.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing. Dropping the stream drops the futures, which cancels their requests.
    ///
    /// # Errors
    /// Those of [`generate`](Self::generate), and [`Error::Handler`] where `drive` or its future panics; the lease stays
    /// open in the log and comes back when the run is resumed.
    ///
    /// # Panics
    /// Where `samples` is 0.
    ///
    /// ```
    /// use anabranch_core::{Dataset, Digest, Error, Fields, WeightSync};
    /// use anabranch_sim::{Reply, Sim};
    /// use anabranch_stream::{InFlight, RolloutExt, Run, Samples, Stopped, publish};
    /// use futures::TryStreamExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let run = Run::in_memory();
    /// let engine = Sim::scripted(|call| Reply::saying(vec![call.request.tokens.len() as u32], std::time::Duration::ZERO));
    /// publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
    /// let dataset = Dataset::new("d", vec![(vec![1, 2], Fields::new())]).expect("one row");
    /// let groups: Vec<_> = run
    ///     .prompts(dataset)
    ///     .generate_with(&engine, InFlight::groups(1), Samples(2), |_prompt, mut session| async move {
    ///         let call = session.generate().await?;
    ///         session.observe(&[100 + call.tokens[0], 101]); // what the tool answered
    ///         session.generate().await?;
    ///         session.reward(1.0);
    ///         Ok::<_, Stopped>(())
    ///     })
    ///     .try_collect()
    ///     .await?;
    /// let sample = &groups[0].samples[0];
    /// assert_eq!(sample.response(), [2, 102, 101, 5]);
    /// assert_eq!(sample.loss_mask, [true, false, false, true]);
    /// assert_eq!((sample.logprobs.len(), sample.spans.last().map(|span| span.end)), (2, Some(2)));
    /// # Ok(())
    /// # }
    /// ```
    fn generate_with<E, F, Fut, X>(
        self,
        engine: &E,
        in_flight: InFlight,
        samples: Samples,
        mut drive: F,
    ) -> Generate<Self, E>
    where
        Self: Stream<Item = Result<Lease, Error>> + Sized,
        E: Engine + Clone,
        F: FnMut(Arc<Prompt>, Session<E>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), X>> + Send + 'static,
        X: Display,
    {
        let drive: Drive<E> = Box::new(move |prompt, session| {
            drive(prompt, session).map(|ended| ended.map_err(|error| error.to_string())).boxed()
        });
        Generate::new(self, engine.clone(), in_flight, samples, Some(drive))
    }

    /// Keeps generation from running further ahead than `max_staleness` publications, as the alternative to throwing
    /// stale groups away: a lease goes out while consumed + taken + buffered + waiting + running groups are fewer than
    /// `(s + (η + 1)·k)·B`, with s the training step of the installed weights, η = `max_staleness`, k the update interval
    /// ([`update_interval`](Pace::update_interval), 1 by default) and B = `batch`, the groups of a batch. With k = 1 this is
    /// the bound of AReaL (Fu et al. 2025). Stands between the source and `generate`.
    ///
    /// All counts come from the log, so that a resumed run goes on under the same bound. It is on the aggregate lead: a
    /// single group may still grow older than η, and [`fresh`](Self::fresh) may stand in the same chain.
    ///
    /// # Back-pressure
    /// This is its point: leases wait for publications and for exclusions. Without a publication every `k` steps it
    /// waits for ever.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// [`Error::Changed`] where the log has other settings; those from upstream.
    ///
    /// # Panics
    /// Where `batch` is 0.
    ///
    /// ```
    /// # use anabranch_core::{Dataset, Error, Fields};
    /// # use anabranch_sim::{HashChain, Sim};
    /// # use anabranch_stream::{Capacity, InFlight, MaxStaleness, RolloutExt, Run, Samples};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # let rows = (0..12).map(|row| (vec![row], Fields::new())).collect();
    /// # let learner = run.restore(HashChain::new(1))?;
    /// let steps: Vec<_> = run
    ///     .prompts(Dataset::new("d", rows).expect("twelve rows"))
    ///     .pace(MaxStaleness(1), 2)
    ///     .generate(&engine, InFlight::groups(8), Samples(2))
    ///     .buffer(Capacity::groups(100))
    ///     .batch(2)
    ///     .train(learner)
    ///     .publish_every(1, &engine)
    ///     .try_collect()
    ///     .await?;
    /// assert_eq!(steps.len(), 6);
    /// assert!(steps.iter().all(|step| step.gap_max <= Some(1)));
    /// # Ok(())
    /// # }
    /// ```
    fn pace(self, max_staleness: MaxStaleness, batch: usize) -> Pace<Self>
    where
        Self: Stream<Item = Result<Lease, Error>> + Sized,
    {
        Pace::new(self, max_staleness, batch)
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
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, Value, WeightSync};
    /// # use anabranch_sim::{Reply, Sim};
    /// # use anabranch_stream::{InFlight, RolloutExt, Run, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let run = Run::in_memory();
    /// # let engine = Sim::scripted(|_| Reply::saying(vec![42], std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
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
        Self: Stream<Item = Result<Rollout, Error>> + Sized,
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
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, WeightSync};
    /// # use anabranch_sim::Sim;
    /// # use anabranch_stream::{InFlight, RolloutExt, Run, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
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
        Self: Stream<Item = Result<Rollout, Error>> + Sized,
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
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, WeightSync};
    /// # use anabranch_sim::Sim;
    /// # use anabranch_stream::{InFlight, RolloutExt, Run, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
    /// # let dataset = Dataset::new("d", vec![(vec![1], Fields::new())]).expect("one row");
    /// let groups: Vec<_> = run
    ///     .prompts(dataset)
    ///     .generate(&engine, InFlight::groups(1), Samples(2))
    ///     .score(|_| 1.0)
    ///     .admit("spread", |group| group.reward_spread() > 0.0)
    ///     .try_collect()
    ///     .await?;
    /// assert!(groups.is_empty());
    /// assert_eq!(run.metrics().counters.excluded["filtered"], 1);
    /// # Ok(())
    /// # }
    /// ```
    fn admit<F>(self, name: impl Into<String>, filter: F) -> Admit<Self, F>
    where
        Self: Stream<Item = Result<Rollout, Error>> + Sized,
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
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, WeightSync};
    /// # use anabranch_sim::Sim;
    /// # use anabranch_stream::{InFlight, RolloutExt, Run, Samples, filters, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
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
        Self: Stream<Item = Result<Rollout, Error>> + Sized,
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
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, WeightSync};
    /// # use anabranch_sim::Sim;
    /// # use anabranch_stream::{InFlight, RolloutExt, Run, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
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
        Self: Stream<Item = Result<Rollout, Error>> + Sized,
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
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, WeightSync};
    /// # use anabranch_sim::Sim;
    /// # use anabranch_stream::{Capacity, InFlight, RolloutExt, Run, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
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
        Self: Stream<Item = Result<Rollout, Error>> + Send + Sized + 'static,
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
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, WeightSync};
    /// # use anabranch_sim::Sim;
    /// # use anabranch_stream::{InFlight, MaxStaleness, RolloutExt, Run, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
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
        Self: Stream<Item = Result<Rollout, Error>> + Sized,
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
    /// # use anabranch_core::{Dataset, Digest, Error, Fields, WeightSync};
    /// # use anabranch_sim::Sim;
    /// # use anabranch_stream::{InFlight, RolloutExt, Run, Samples, publish};
    /// # use futures::TryStreamExt;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let (run, engine) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO));
    /// # publish(&run, &engine, 0, Digest::default(), WeightSync::Retract).await?;
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
        Self: Stream<Item = Result<Rollout, Error>> + Sized,
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
    /// # use anabranch_core::{Dataset, Error, Fields};
    /// # use anabranch_sim::{HashChain, Sim};
    /// # use anabranch_stream::{InFlight, RolloutExt, Run, Samples};
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
