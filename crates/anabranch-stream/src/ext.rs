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
/// Each method implements one concept, and a group passes them in the order in which you write them. A stream ends
/// after its first error. When it ends or is dropped, everything that it runs stops. Operators respect the task budget
/// of tokio: even if many groups are ready at once, other tasks get their turns.
pub trait RolloutExt: Stream {
    /// Generates a group of `samples` samples for each lease, on `engine`, with at most `in_flight` groups at once.
    /// Groups come out in the order in which they complete.
    ///
    /// A lease is issued (recorded, and its samples submitted) when slots are free, submissions are open and downstream
    /// has room. Transient faults of the engine are retried with back-off, from the tokens that already exist. If the
    /// retries run out, the sample is aborted. Groups that an earlier session completed are read from the log and
    /// passed on.
    ///
    /// # Back-pressure
    /// Without [`buffer`](Self::buffer), leases are issued only while a batch is being pulled, and never more than the
    /// batch still needs. With a buffer, leases are issued as slots become free, unless a completed group waits for
    /// room. The number of groups between their lease and the buffer is at most `g` with one slot per group, and `(g -
    /// 1)·n + 1` with one slot per sample (the default).
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing: requests continue in the engine, and their chunks are kept. Dropping
    /// the stream cancels the requests; their leases stay open in the log and come back when the run is resumed.
    ///
    /// # Errors
    /// [`Error::Engine`] at once, if the engine has a fatal fault. [`Error::Changed`] if the log has other settings.
    /// [`Error::Journal`] if a restored group cannot be read.
    ///
    /// # Panics
    /// Panics if `samples` is 0.
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

    /// Generates like [`generate`](Self::generate), but `drive` makes the sample: it gets the prompt and a [`Session`],
    /// and calls the engine as often as it likes, each time under the versions installed at that moment. Tokens that it
    /// appends for tools and environments are masked in the loss and have no version span. It may also set the reward.
    ///
    /// The sample ends when the future ends. If the future returns an error, the sample is `Failed`: with a reward it
    /// can be trained on, without a reward the group is excluded as aborted. If the engine gives up a request, the
    /// sample is aborted, whatever the future returns.
    ///
    /// # Back-pressure
    /// The same as for [`generate`](Self::generate). A sample holds its slot until its future ends, also between turns.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing. Dropping the stream drops the futures, which cancels their requests.
    ///
    /// # Errors
    /// The errors of [`generate`](Self::generate), and [`Error::Handler`] if `drive` or its future panics. The lease
    /// then stays open in the log and comes back when the run is resumed.
    ///
    /// # Panics
    /// Panics if `samples` is 0.
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

    /// Keeps generation from running further ahead than `max_staleness` publications, instead of throwing stale groups
    /// away. A lease is issued while consumed + taken + buffered + waiting + running groups are fewer than `(s + (η +
    /// 1)·k)·B`, with s the training step of the installed weights, η = `max_staleness`, k the update interval
    /// ([`update_interval`](Pace::update_interval), 1 by default) and B = `batch`, the number of groups in a batch.
    /// With k = 1 this is the bound of AReaL (Fu et al. 2025). Put it between the source and `generate`.
    ///
    /// All counts come from the log, so a resumed run keeps the same bound. It bounds how far generation as a whole is
    /// ahead: a single group may still become older than η, so you may use [`fresh`](Self::fresh) in the same chain.
    ///
    /// # Back-pressure
    /// Leases wait for publications and for exclusions. If no publication happens every `k` steps, they wait forever.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// [`Error::Changed`] if the log has other settings; errors from upstream.
    ///
    /// # Panics
    /// Panics if `batch` is 0.
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

    /// Gives each sample the reward that `score` returns. Aborted samples are skipped, and so are groups that an
    /// earlier session completed, because their rewards are in the log.
    ///
    /// `score` runs in the task that polls the stream. It must be quick; use [`score_async`](Self::score_async)
    /// otherwise.
    ///
    /// # Back-pressure
    /// None: the operator holds no group.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// [`Error::Handler`] if `score` panics; the group is then in the log, with the sample aborted for cause `reward`.
    /// [`Error::Argument`] if the operator comes after [`log`](Self::log), because the log would lack the rewards. If a
    /// reward is NaN, the group is malformed, and the next check reports it.
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

    /// Gives each sample a reward that takes time to compute: from services, sandboxes, judges. Calls for several
    /// samples and groups run at once ([`concurrency`](ScoreAsync::concurrency)). Groups come out in the order in which
    /// their last rewards arrive.
    ///
    /// A call that fails or times out is retried ([`retries`](ScoreAsync::retries)). If the retries run out, the sample
    /// is aborted with cause `reward`, and the next check excludes the group.
    ///
    /// # Back-pressure
    /// Groups being scored count as in flight: [`generate`](Self::generate) keeps their number within its bound.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing. Dropping the stream drops the running calls.
    ///
    /// # Errors
    /// [`Error::Handler`] if `score` or its future panics; the group is then in the log, with the sample aborted.
    /// [`Error::Argument`] if the operator comes after [`log`](Self::log).
    ///
    /// # Panics
    /// Panics if it has a timeout and is polled outside a tokio runtime.
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

    /// Passes a group if `filter` returns true. Other groups are excluded as `Filtered { name }` and never retried.
    /// Aborted groups are excluded before the filter sees them; groups that an earlier session admitted are not judged
    /// again.
    ///
    /// # Back-pressure
    /// None: the operator holds no group.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// [`Error::Handler`] if `filter` panics; the group is then in the log but not excluded. [`Error::Malformed`] and
    /// [`Error::FutureVersion`] if a group fails the entry checks; it is in the log too.
    ///
    /// # Panics
    /// Panics if `name` is empty.
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

    /// Excludes each group for which `predicate` is true, as [`Reason::Filtered`](anabranch_core::Reason::Filtered)
    /// under `name`; otherwise the same as [`admit`](Self::admit). [`filters`](crate::filters) has the usual
    /// predicates. Filters run in the order in which you write them, and the first one that rejects a group names its
    /// exclusion.
    ///
    /// # Back-pressure
    /// None: the operator holds no group.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// The same as for [`admit`](Self::admit).
    ///
    /// # Panics
    /// Panics if `name` is empty.
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

    /// Writes each group with its payload to the log of `run`, and passes it on when the record is durable in the log's
    /// mode. While records are being written, the operator continues to poll upstream. Without `log`, a group is logged
    /// when it enters the buffer or a batch.
    ///
    /// # Back-pressure
    /// Groups that wait for the log count as in flight; at most 256 wait here.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing. Appended records are written even if the stream is dropped.
    ///
    /// # Errors
    /// [`Error::Journal`] if the log cannot be written. [`Error::Argument`] if the group belongs to another run.
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
    /// assert_eq!(run.payload(&groups[0].id)?, *groups[0]);
    /// # Ok(())
    /// # }
    /// ```
    fn log(self, run: &Run) -> Log<Self>
    where
        Self: Stream<Item = Result<Rollout, Error>> + Sized,
    {
        Log::new(self, run.clone())
    }

    /// Lets generation run ahead of training: completed groups wait here. By default they leave first in, first out, in
    /// the order in which they completed; [`order`](Buffer::order) sets another order. From the first poll on,
    /// everything upstream runs in a task of its own.
    ///
    /// **Without `buffer` the same chain is synchronous**: nothing is in flight when a batch is yielded, and every gap
    /// is 0.
    ///
    /// # Back-pressure
    /// If the buffer is full, completed groups wait, no new group is submitted, and running samples continue. Taking a
    /// group out lets the next one in at once, before the group taken out is judged. Memory holds the groups in flight,
    /// the capacity, one batch being assembled and one being trained on.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing. Dropping the stream stops the task and every request. The groups in
    /// the buffer are in the log and come back when the run is resumed.
    ///
    /// # Errors
    /// Errors from upstream: an error overtakes the queued groups, then the stream ends. [`Error::Task`] if the runtime
    /// stops the task.
    ///
    /// # Panics
    /// Panics if its task panics, or if it is first polled outside a tokio runtime.
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

    /// Passes a group if its version gap is within `limit` when it is taken out for training. Other groups are excluded
    /// as `Stale`, and retried if the source is set to retry. [`batch`](Self::batch) judges by the same limit again
    /// when it commits.
    ///
    /// A group of unknown version is excluded as `UnknownVersion`, unless you set
    /// [`allow_unknown_versions`](Fresh::allow_unknown_versions). If the *installed* version is unknown, all groups
    /// pass.
    ///
    /// # Back-pressure
    /// None: the operator holds no group.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// Errors from upstream.
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

    /// Takes exactly `groups` groups for a training step, in the order in which they arrive. This is the commit point:
    /// in one critical section against publications, it judges all of them again and replaces those that are now over
    /// the limit of [`fresh`](Self::fresh). When all pass, it records `BatchTaken`, and yields the batch once the
    /// record is durable.
    ///
    /// # Back-pressure
    /// Holds less than one batch. Poll it only when the learner is free, because it judges groups when it is polled.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing.
    ///
    /// # Errors
    /// [`Error::Journal`] if the batch cannot be recorded; [`Error::Argument`] if a group has no lease. The groups that
    /// it held are in the log.
    ///
    /// # Panics
    /// Panics if `groups` is 0.
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

    /// Trains `learner` on each batch and yields the finished step. First it trains the batches again, from the log,
    /// that an earlier session took after the learner's checkpoint; those steps are marked `replayed`. When upstream
    /// has ended, it records `RunClosed`, with the groups left in the log.
    ///
    /// [`checkpoint_every`](Train::checkpoint_every), [`publish_every`](Train::publish_every) and
    /// [`weight_sync`](Train::weight_sync) follow directly. After a training step, the step is recorded, a checkpoint
    /// is written if one is due, the weights are published if that is due, and then the step is yielded.
    ///
    /// # Back-pressure
    /// Upstream is polled only when the learner is free.
    ///
    /// # Cancel safety
    /// Dropping a pending `next()` loses nothing. If you drop the stream, the learner finishes its current call, and
    /// the result is lost; the batch is trained again when the run is resumed.
    ///
    /// # Errors
    /// [`Error::Learner`], [`Error::Engine`] if a publication fails, [`Error::Journal`], [`Error::Changed`], and errors
    /// from upstream.
    ///
    /// # Panics
    /// Panics if the learner panics, or if it is polled outside a tokio runtime.
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
    /// assert_eq!(engine.stats().installs.len(), 4, "v0 and one per step");
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
