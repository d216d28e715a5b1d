//! Generation: turns leases into groups, in the order in which they complete.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch_core::{Cause, Digest, Engine, Error, Moment, Sample, Sampling, SamplingKey, Stamp};
use futures::future::BoxFuture;
use futures::stream::{FusedStream, FuturesUnordered};
use futures::{FutureExt, Stream, StreamExt};
use pin_project_lite::pin_project;

pub(crate) use self::drive::Drive;
use self::drive::{called, driven};
use self::sample::{Client, Draft, Place, Retries};
pub use self::session::{Session, Stopped, Turn};
use self::settings::Settings;
use self::slots::Slots;
use self::watch::Watchdog;
use crate::demand::Demand;
use crate::entry::at;
use crate::run::Stage;
use crate::upstream::{Upstream, in_turn};
use crate::{Granularity, InFlight, Lease, Rollout, Run, Samples};

mod drive;
mod sample;
mod session;
mod settings;
mod slots;
mod watch;

pin_project! {
    /// Stream for [`generate`](crate::RolloutExt::generate) and [`generate_with`](crate::RolloutExt::generate_with).
    #[must_use = "streams do nothing unless polled"]
    pub struct Generate<S, E> {
        #[pin]
        input: Upstream<S>,
        state: State<E>,
    }
}

struct State<E> {
    engine: E,
    /// `None` if a sample is one call of the engine.
    drive: Option<Drive<E>>,
    settings: Settings,
    slots: Slots,
    run: Option<Run>,
    /// The first lease, if its run does not allow it to be issued yet.
    first: Option<Lease>,
    next_key: u64,
    /// Groups in the order in which they were submitted.
    growing: BTreeMap<u64, Growing>,
    running: FuturesUnordered<BoxFuture<'static, Outcome>>,
    /// Whether the bound on groups outside the buffer has held a lease back since the last one was issued.
    bounded: bool,
    /// Made for the first lease, with the settings of that moment.
    client: Option<Arc<Client<E>>>,
    watchdog: Option<Watchdog>,
}

/// A group with samples that are still running.
struct Growing {
    lease: Lease,
    samples: Vec<Option<Sample>>,
    missing: usize,
}

/// The end of one sample's generation.
struct Outcome {
    key: u64,
    index: usize,
    sample: Result<Sample, Error>,
}

impl<S, E> Generate<S, E> {
    pub(crate) fn new(input: S, engine: E, in_flight: InFlight, samples: Samples, drive: Option<Drive<E>>) -> Self {
        assert!(samples.0 > 0, "samples: expected at least 1 sample per group, found 0");
        let settings = Settings {
            in_flight,
            samples: samples.0 as usize,
            granularity: Granularity::default(),
            sampling: Sampling::default(),
            seed: 0,
            retries: Retries { limit: 3, backoff: Duration::from_millis(100) },
            timeout: None,
        };
        let state = State {
            engine,
            drive,
            slots: settings.slots(),
            settings,
            run: None,
            first: None,
            next_key: 0,
            growing: BTreeMap::new(),
            running: FuturesUnordered::new(),
            bounded: false,
            client: None,
            watchdog: None,
        };
        Self { input: Upstream::new(input), state }
    }
}

impl<E: Engine + Clone> State<E> {
    /// Whether a lease may be issued now. If not, the task is woken when one may be.
    fn may_issue(&mut self, cx: &Context<'_>) -> bool {
        if !self.slots.are_free() {
            return false;
        }
        let Some(run) = &self.run else {
            return Demand::in_force().and_then(|demand| demand.groups).is_none_or(|groups| groups > 0);
        };
        if !run.submissions_open(cx.waker()) {
            return false;
        }
        let mut bounded = self.bounded;
        let mut room = || {
            bounded |= run.working() >= self.settings.bound();
            let demand = run.flow().demand().groups.unwrap_or(usize::MAX);
            run.upstream() < demand && run.working() < self.settings.bound()
        };
        // Check again after registering the waker, so that a departure in between is not missed.
        let may = room() || {
            run.wake_on_departure(cx.waker());
            room()
        };
        self.bounded = bounded;
        may
    }

    /// Takes a lease: submits its samples, or returns the group that an earlier session completed.
    fn take(&mut self, lease: Lease, cx: &Context<'_>) -> Result<Option<Rollout>, Error> {
        if self.run.is_none() {
            lease.run().configure("generate", self.settings.fields())?;
            self.run = Some(lease.run().clone());
            if !self.may_issue(cx) {
                self.first = Some(lease);
                return Ok(None);
            }
        }
        if lease.restored().is_some() {
            return restored(lease).map(Some);
        }
        self.submit(lease);
        Ok(None)
    }

    fn submit(&mut self, mut lease: Lease) {
        let run = lease.run().clone();
        let departed = std::mem::take(&mut self.bounded).then(|| run.last_departed()).flatten();
        let departed = departed.map(|stamp| (Cause::Room, stamp));
        lease.issue(enablers(&run, self.slots.take()).into_iter().chain(departed).collect());
        if let Some(watchdog) = self.watchdog.as_ref().filter(|_| self.growing.is_empty()) {
            watchdog.begin(&run);
        }
        let client = self.client.get_or_insert_with(|| {
            let Settings { sampling, retries, timeout, .. } = &self.settings;
            Arc::new(Client {
                engine: self.engine.clone(),
                run: run.clone(),
                sampling: sampling.clone(),
                retries: *retries,
                timeout: *timeout,
                progress: self.watchdog.as_ref().map(Watchdog::progress),
            })
        });
        let group: Arc<str> = format!("{}/{}", run.name(), lease.id()).into();
        let name = Digest::of(&group.as_bytes()[run.name().len() + 1..]);
        let hash = name.0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        let prompt = self.drive.is_some().then(|| Arc::new(lease.prompt().clone()));
        let (key, now) = (self.next_key, run.now());
        self.next_key += 1;
        for index in 0..self.settings.samples {
            let tokens = Draft::tokens(&lease.prompt().tokens);
            let place = SamplingKey { seed: self.settings.seed, lease: hash, sample: index as u32 };
            let place = Place { group: group.clone(), key: place };
            let outcome = move |sample| Outcome { key, index, sample };
            self.running.push(match (&mut self.drive, &prompt) {
                (Some(drive), Some(prompt)) => {
                    let session = Session::new(client.clone(), Draft::new(tokens, now), place);
                    driven(drive, prompt.clone(), session, lease.id().clone()).map(outcome).boxed()
                }
                _ => called(client.clone(), tokens, now, place).map(outcome).boxed(),
            });
        }
        let missing = self.settings.samples;
        let samples = std::iter::repeat_with(|| None).take(missing).collect();
        self.growing.insert(key, Growing { lease, samples, missing });
    }

    /// Warns if no token has arrived for a long time.
    fn watch(&mut self, cx: &mut Context<'_>) {
        if let Some(watchdog) = &mut self.watchdog {
            let oldest = self.growing.values().next();
            let oldest = oldest.map(|group| (group.lease.run(), group.lease.id().to_string(), self.growing.len()));
            watchdog.poll(oldest, cx);
        }
    }

    /// Takes the end of a sample. Returns the group if it was the last sample.
    fn absorb(&mut self, outcome: Outcome) -> Result<Option<Rollout>, Error> {
        let Outcome { key, index, sample } = outcome;
        let sample = sample?;
        let Some(group) = self.growing.get_mut(&key) else { return Ok(None) };
        let freed = group.lease.seq().map(|lease| Stamp {
            moment: Moment::SampleEnd { lease, sample: index as u32 },
            at: sample.times.ended.unwrap_or_default(),
        });
        group.samples[index] = Some(sample);
        group.missing -= 1;
        let complete = group.missing == 0;
        if let Some(stamp) = freed.filter(|_| complete) {
            group.lease.note_departure(stamp);
        }
        if complete || self.settings.granularity == Granularity::Sample {
            self.slots.free(freed);
        }
        Ok(if complete { self.growing.remove(&key).map(Growing::into_rollout) } else { None })
    }
}

impl Growing {
    fn into_rollout(self) -> Rollout {
        // All samples are there now, in their places.
        Rollout::of_samples(self.lease, self.samples.into_iter().map_while(|sample| sample).collect())
    }
}

/// The events that let a lease be issued: a free slot, and the room or the batch that asked for it.
fn enablers(run: &Run, slot: Option<Stamp>) -> Vec<(Cause, Stamp)> {
    let first = [(Cause::Opened, Some(run.opened())), (Cause::Installed, run.clock().published())];
    let slot = slot.map_or_else(|| first.to_vec(), |freed| vec![(Cause::Slot, Some(freed))]);
    let demand = run.flow().demand();
    let demanded = demand.groups.and_then(|_| run.last_excluded()).map(|stamp| (Cause::Demand, stamp));
    let reopened = run.reopened().map(|stamp| (Cause::Reopened, stamp));
    let slot = slot.into_iter().filter_map(|(cause, stamp)| Some((cause, stamp?)));
    slot.chain(demand.since).chain(demanded).chain(reopened).collect()
}

/// Reads the group of an earlier session from the log.
fn restored(mut lease: Lease) -> Result<Rollout, Error> {
    let group = lease.run().payload(lease.id())?;
    lease.arrive(Stage::Upstream);
    Ok(Rollout::restored(group, lease))
}

impl<S, E> Stream for Generate<S, E>
where
    S: Stream<Item = Result<Lease, Error>>,
    E: Engine + Clone,
{
    type Item = Result<Rollout, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        let state = this.state;
        loop {
            while (state.first.is_some() || !this.input.has_ended()) && state.may_issue(cx) {
                let lease = match state.first.take() {
                    Some(lease) => Poll::Ready(Some(Ok(lease))),
                    None => this.input.as_mut().poll_next(cx),
                };
                let taken = match lease {
                    Poll::Ready(Some(lease)) => lease.and_then(|lease| state.take(lease, cx)),
                    Poll::Ready(None) | Poll::Pending => break,
                };
                match taken {
                    Ok(None) => {}
                    Ok(Some(group)) => return Poll::Ready(Some(Ok(group))),
                    Err(error) => return fail(this.input, state, error),
                }
            }
            state.watch(cx);
            match in_turn(cx, |cx| state.running.poll_next_unpin(cx)) {
                Poll::Ready(Some(outcome)) => match state.absorb(outcome) {
                    Ok(None) => {}
                    Ok(Some(group)) => return Poll::Ready(Some(Ok(at(group, Stage::Upstream)))),
                    Err(error) => return fail(this.input, state, error),
                },
                Poll::Ready(None) if this.input.has_ended() && state.first.is_none() => return Poll::Ready(None),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S, E> FusedStream for Generate<S, E>
where
    S: Stream<Item = Result<Lease, Error>>,
    E: Engine + Clone,
{
    fn is_terminated(&self) -> bool {
        self.input.has_ended() && self.state.first.is_none() && self.state.running.is_empty()
    }
}

/// Ends the stream with an error. Dropping the input and the requests stops everything.
fn fail<S, E>(
    input: Pin<&mut Upstream<S>>,
    state: &mut State<E>,
    error: Error,
) -> Poll<Option<Result<Rollout, Error>>> {
    state.running.clear();
    state.growing.clear();
    state.first = None;
    input.fail(error)
}

impl<S: fmt::Debug, E> fmt::Debug for Generate<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generate")
            .field("input", &self.input)
            .field("settings", &self.state.settings)
            .field("in_flight", &self.state.growing.len())
            .finish_non_exhaustive()
    }
}
