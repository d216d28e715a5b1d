//! Replays a recorded run as a stream of batches and exclusions, and trains a learner on it again.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use anabranch_core::{
    Batch, BoxError, Digest, Error, Event, EventKind, Group, GroupId, JournalError, Learner, Reason, RecordedBatch,
    Seq, Then, TrainingStep,
};
use async_stream::try_stream;
use futures::stream::BoxStream;
use futures::{Stream, TryStreamExt};

/// A record of the log that matters for training.
#[derive(Clone, Debug)]
pub enum Replayed {
    /// A group was excluded.
    Excluded {
        /// The place of the record in the log.
        seq: Seq,
        /// The group.
        id: GroupId,
        /// The reason.
        reason: Reason,
        /// What happened to the prompt of the group.
        then: Then,
    },
    /// A batch was taken. It has the same groups in the same order, with the recorded digest.
    Batch(Box<Batch>),
    /// A training step was made.
    Stepped {
        /// The number of the step.
        step: TrainingStep,
        /// Digest of the weights after the step.
        weights: Digest,
    },
}

/// Stream of what a log recorded: see [`replay_log`].
#[must_use = "streams do nothing unless polled"]
pub struct Replay<'a>(BoxStream<'a, Result<Replayed, Error>>);

/// Returns the recorded batches, exclusions and steps of a log as a stream, from its events in order and the payloads
/// of completed groups. It writes nothing and needs no engine.
///
/// # Back-pressure
/// Events are read when the stream is polled; one batch is in memory at a time.
///
/// # Cancel safety
/// Dropping the stream loses nothing.
///
/// # Errors
/// Yields an error if an event or a payload cannot be read, or if the groups of a batch differ from the recorded ones.
/// The stream then ends.
pub fn replay_log<'a, I, E, P, F>(events: I, mut payload: P) -> Replay<'a>
where
    I: IntoIterator<Item = Result<Event, E>>,
    I::IntoIter: Send + 'a,
    E: Into<BoxError> + 'a,
    P: FnMut(&GroupId) -> Result<Group, F> + Send + 'a,
    F: Into<BoxError> + 'a,
{
    let recorded = events.into_iter().filter_map(move |event| {
        let event = event.map_err(|error| failed("cannot read an event", error));
        event.and_then(|event| replayed(event, &mut payload)).transpose()
    });
    Replay(Box::pin(try_stream! {
        for replayed in recorded {
            yield replayed?;
        }
    }))
}

/// What the event tells about training; `None` for most events.
fn replayed<F: Into<BoxError>>(
    event: Event,
    mut payload: impl FnMut(&GroupId) -> Result<Group, F>,
) -> Result<Option<Replayed>, Error> {
    let seq = event.seq;
    Ok(Some(match event.kind {
        EventKind::Excluded { id, reason, then, .. } => Replayed::Excluded { seq, id, reason, then },
        EventKind::Stepped { step, weights, .. } => Replayed::Stepped { step, weights },
        EventKind::BatchTaken { step, version, groups, digest } => {
            let recorded = RecordedBatch { taken: seq, step, version, groups, digest, stepped: None };
            Replayed::Batch(Box::new(recall(&recorded, |id| {
                payload(id).map_err(|error| failed(&format!("cannot read the payload of group {id}"), error))
            })?))
        }
        _ => return Ok(None),
    }))
}

/// Reads a recorded batch: the same groups in the same order, with the same digest.
pub(crate) fn recall(
    recorded: &RecordedBatch,
    payload: impl FnMut(&GroupId) -> Result<Group, Error>,
) -> Result<Batch, Error> {
    let &RecordedBatch { taken, step, version, digest, .. } = recorded;
    let groups = recorded.groups.iter().map(|taken| &taken.id).map(payload);
    let groups = groups.collect::<Result<Vec<Group>, _>>()?;
    let digests: Vec<Digest> = groups.iter().map(Group::digest).collect();
    let found = Batch::digest_of(groups.iter().map(|group| &group.id).zip(digests));
    if found != digest {
        return Err(Error::Journal(JournalError::new(format!(
            "the groups of batch {taken} (training step {step}): found digest {}, expected {}: restore the run from a \
             backup",
            found.short(),
            digest.short()
        ))));
    }
    let (gap_mean, gap_max) = Batch::gaps_of(&recorded.groups);
    Ok(Batch { step, taken, version, gap_mean, gap_max, groups, digest })
}

fn failed(what: &str, error: impl Into<BoxError>) -> Error {
    Error::Journal(JournalError::new(format!("{what}: {}", error.into())))
}

impl Stream for Replay<'_> {
    type Item = Result<Replayed, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}

/// A step that was trained again from a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retrained {
    /// The number of the step.
    pub step: TrainingStep,
    /// Digest of the weights after the step.
    pub weights: Digest,
    /// The recorded digest; `None` if the run ended before it recorded the step.
    pub recorded: Option<Digest>,
}

impl Retrained {
    /// Whether the weights equal the recorded ones. True if the log has no weights for the step.
    pub fn is_equal(&self) -> bool {
        self.recorded.is_none_or(|recorded| recorded == self.weights)
    }
}

/// Trains `learner` again on the batches of a [`replay_log`]. The learner must be in the state in which the run began. Each
/// item is one step, with the recorded digest. On the same device and build all items are equal; the first unequal one
/// names the step from which the weights differ.
///
/// # Back-pressure
/// A step is trained when the stream is polled.
///
/// # Cancel safety
/// Dropping the stream loses only the learner.
///
/// # Errors
/// Errors of the replay and of the learner. The stream then ends.
///
/// # Panics
/// Panics if it is polled outside a tokio runtime, which it needs to run steps on a thread that may block.
///
/// ```
/// use std::sync::Arc;
///
/// use anabranch_core::{Dataset, Fields, Journal, MemoryJournal, ResumeState};
/// use anabranch_sim::{HashChain, Sim};
/// use anabranch_stream::{InFlight, RolloutExt, Run, Samples, replay_log, retrain, tokio_clock};
/// use futures::TryStreamExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), anabranch_core::Error> {
/// let journal = Arc::new(MemoryJournal::new());
/// let run = Run::builder("run").journal(journal.clone()).clock(tokio_clock()).open()?;
/// let engine = Sim::fixed(2, std::time::Duration::ZERO);
/// let dataset = Dataset::new("d", (0..8).map(|row| (vec![row], Fields::new())).collect()).expect("eight rows");
/// let groups = run.prompts(dataset).generate(&engine, InFlight::groups(2), Samples(2)).log(&run);
/// let steps = groups.batch(2).train(run.restore(HashChain::new(3))?).publish_every(1, &engine);
/// steps.try_collect::<Vec<_>>().await?;
///
/// let events = journal.events().into_iter().map(Ok::<_, anabranch_core::BoxError>);
/// let again = retrain(replay_log(events, |id| journal.payload(id)), HashChain::new(3));
/// let again: Vec<_> = again.try_collect().await?;
/// assert_eq!(again.len(), 4);
/// assert!(again.iter().all(|step| step.is_equal() && step.recorded.is_some()));
/// # Ok(())
/// # }
/// ```
pub fn retrain<'a, S, L>(mut replayed: S, mut learner: L) -> BoxStream<'a, Result<Retrained, Error>>
where
    S: Stream<Item = Result<Replayed, Error>> + Send + Unpin + 'a,
    L: Learner,
{
    Box::pin(try_stream! {
        // The step made last, until the log says which weights it gave.
        let mut made: Option<Retrained> = None;
        while let Some(recorded) = replayed.try_next().await? {
            match recorded {
                Replayed::Batch(batch) => {
                    let step = batch.step;
                    let work = tokio::task::spawn_blocking(move || {
                        let report = learner.step(&batch);
                        (learner, report)
                    });
                    let worked = work.await.map_err(|error| Error::Task(format!("the learner's step: {error}")))?;
                    learner = worked.0;
                    let before = made.replace(Retrained { step, weights: worked.1?.weights, recorded: None });
                    if let Some(before) = before {
                        yield before;
                    }
                }
                Replayed::Stepped { step, weights } => {
                    if let Some(made) = made.take_if(|made| made.step == step) {
                        yield Retrained { recorded: Some(weights), ..made };
                    }
                }
                Replayed::Excluded { .. } => {}
            }
        }
        if let Some(made) = made {
            yield made;
        }
    })
}
