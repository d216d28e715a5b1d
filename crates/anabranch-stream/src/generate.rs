//! Generation: leases in, groups out, in the order they complete.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch_core::{
    Cause, Context as GroupContext, Demand, Digest, Engine, EngineError, Error, Fields, Group, Lease, Moment, Request,
    Run, Sample, Sampling, SamplingKey, Stage, Stamp, Value,
};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use pin_project_lite::pin_project;

use self::sample::{Retries, generate_sample};
use self::slots::Slots;
use crate::entry::at;
use crate::upstream::{Upstream, in_turn};
use crate::{Granularity, InFlight, Samples};

mod sample;
mod slots;

pin_project! {
    /// Stream for [`generate`](crate::RolloutExt::generate).
    #[must_use = "streams do nothing unless polled"]
    pub struct Generate<S, E> {
        #[pin]
        input: Upstream<S>,
        state: State<E>,
    }
}

struct State<E> {
    engine: E,
    settings: Settings,
    slots: Slots,
    run: Option<Run>,
    next_key: u64,
    growing: HashMap<u64, Growing>,
    running: FuturesUnordered<BoxFuture<'static, Outcome>>,
}

#[derive(Clone, Debug)]
struct Settings {
    in_flight: InFlight,
    samples: usize,
    granularity: Granularity,
    sampling: Sampling,
    seed: u64,
    retries: Retries,
}

/// A group some of whose samples still run.
struct Growing {
    lease: Lease,
    samples: Vec<Option<Sample>>,
    missing: usize,
}

/// The end of one sample's generation.
struct Outcome {
    key: u64,
    index: usize,
    sample: Result<Sample, EngineError>,
}

impl<S, E> Generate<S, E> {
    pub(crate) fn new(input: S, engine: E, in_flight: InFlight, samples: Samples) -> Self {
        assert!(samples.0 > 0, "samples: must be at least 1, a group without samples cannot be trained on");
        let settings = Settings {
            in_flight,
            samples: samples.0 as usize,
            granularity: Granularity::default(),
            sampling: Sampling::default(),
            seed: 0,
            retries: Retries { limit: 3, backoff: Duration::from_millis(100) },
        };
        let state = State {
            engine,
            slots: settings.slots(),
            settings,
            run: None,
            next_key: 0,
            growing: HashMap::new(),
            running: FuturesUnordered::new(),
        };
        Self { input: Upstream::new(input), state }
    }

    /// How tokens are drawn. The default: temperature 1, at most 16 tokens, no stop token.
    ///
    /// # Panics
    /// Where `max_tokens` is 0, the temperature is negative or not finite, or `top_p` is outside (0, 1].
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        assert!(sampling.max_tokens > 0, "sampling.max_tokens: must be at least 1");
        let temperature = sampling.temperature;
        assert!(
            temperature.is_finite() && temperature >= 0.0,
            "sampling.temperature: {temperature} is not in [0, inf)"
        );
        assert!(
            sampling.top_p.is_none_or(|top_p| top_p > 0.0 && top_p <= 1.0),
            "sampling.top_p: must be above 0 and at most 1"
        );
        assert!(sampling.top_k != Some(0), "sampling.top_k: must be at least 1");
        self.state.settings.sampling = sampling;
        self
    }

    /// The seed of all samples: with lease and sample index it determines every token. The default is 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.state.settings.seed = seed;
        self
    }

    /// What a generation slot is for. The default is a sample.
    pub fn granularity(mut self, granularity: Granularity) -> Self {
        self.state.settings.granularity = granularity;
        self.state.slots = self.state.settings.slots();
        self
    }

    /// How often a sample is tried again after a transient fault, and how long the first of these waits; the wait
    /// doubles with each. Past the limit the sample is aborted. The default: 3 times, from 100 ms.
    pub fn retries(mut self, limit: u32, backoff: Duration) -> Self {
        self.state.settings.retries = Retries { limit, backoff };
        self
    }
}

impl Settings {
    fn slots(&self) -> Slots {
        match self.granularity {
            Granularity::Sample => Slots::new(self.in_flight.get() * self.samples, self.samples),
            Granularity::Group => Slots::new(self.in_flight.get(), 1),
        }
    }

    /// The most groups that operators may work on at once: generating, being scored, on their way into the log.
    fn bound(&self) -> usize {
        match self.granularity {
            Granularity::Sample => (self.in_flight.get() - 1) * self.samples + 1,
            Granularity::Group => self.in_flight.get(),
        }
    }

    fn fields(&self) -> Fields {
        let Sampling { temperature, top_k, top_p, max_tokens, stop } = &self.sampling;
        let stop = stop.iter().map(|&token| Value::from(token)).collect();
        let named = |name: &str, value: Value| (name.to_owned(), value);
        Fields::from([
            named("in_flight", self.in_flight.get().into()),
            named("samples", self.samples.into()),
            named("granularity", self.granularity.name().into()),
            named("seed", self.seed.into()),
            named("temperature", (*temperature).into()),
            named("top_k", (*top_k).into()),
            named("top_p", (*top_p).into()),
            named("max_tokens", (*max_tokens).into()),
            named("stop", Value::List(stop)),
            named("retries", self.retries.limit.into()),
        ])
    }
}

impl<E: Engine + Clone> State<E> {
    /// Whether a lease may be issued now. If not, whatever lets one be issued wakes the task.
    fn may_issue(&self, cx: &Context<'_>) -> bool {
        if !self.slots.are_free() {
            return false;
        }
        let demand = Demand::current().unwrap_or(usize::MAX);
        let Some(run) = &self.run else { return demand > 0 };
        if !run.submissions_open(cx.waker()) {
            return false;
        }
        let room = || run.upstream() < demand && run.working() < self.settings.bound();
        // Looking again after leaving the waker, so that no departure falls between the two.
        room() || {
            run.wake_on_departure(cx.waker());
            room()
        }
    }

    /// Takes a lease: submits its samples, or gives back the group that an earlier session completed.
    fn take(&mut self, lease: Lease) -> Result<Option<Group>, Error> {
        if self.run.is_none() {
            lease.run().configure("generate", self.settings.fields())?;
            self.run = Some(lease.run().clone());
        }
        if lease.restored().is_some() {
            return restored(lease).map(Some);
        }
        self.submit(lease);
        Ok(None)
    }

    fn submit(&mut self, mut lease: Lease) {
        let run = lease.run().clone();
        lease.issue(enablers(&run, self.slots.take()));
        let name = lease.id().to_string();
        let key = self.next_key;
        self.next_key += 1;
        let hash = Digest::of(name.as_bytes()).0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        for index in 0..self.settings.samples {
            let sample = index as u32;
            let request = Request {
                id: format!("{}/{name}/{index}", run.name()),
                tokens: lease.prompt().tokens.clone(),
                position: 0,
                sampling: self.settings.sampling.clone(),
                key: SamplingKey { seed: self.settings.seed, lease: hash, sample },
            };
            let generated = generate_sample(self.engine.clone(), run.clone(), request, self.settings.retries);
            self.running.push(generated.map(move |sample| Outcome { key, index, sample }).boxed());
        }
        let missing = self.settings.samples;
        self.growing.insert(key, Growing { lease, samples: vec![None; missing], missing });
    }

    /// Takes in the end of a sample; gives its group if it was the last.
    fn absorb(&mut self, outcome: Outcome) -> Result<Option<Group>, Error> {
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
        if complete || self.settings.granularity == Granularity::Sample {
            self.slots.free(freed);
        }
        Ok(if complete { self.growing.remove(&key).map(Growing::into_group) } else { None })
    }
}

impl Growing {
    fn into_group(self) -> Group {
        Group {
            id: self.lease.id().clone(),
            prompt: self.lease.prompt().clone(),
            expected: self.samples.len() as u32,
            samples: self.samples.into_iter().flatten().collect(),
            extra: Fields::new(),
            context: GroupContext { lease: Some(self.lease), ..GroupContext::default() },
        }
    }
}

/// What let a lease be issued: the slot, and the room or the batch that asked for it.
fn enablers(run: &Run, slot: Option<Stamp>) -> Vec<(Cause, Stamp)> {
    let first = [(Cause::Opened, Some(run.opened())), (Cause::Installed, run.clock().published())];
    let slot = slot.map_or_else(|| first.to_vec(), |freed| vec![(Cause::Slot, Some(freed))]);
    let demanded = Demand::current().and_then(|_| run.last_excluded()).map(|stamp| (Cause::Demand, stamp));
    let slot = slot.into_iter().filter_map(|(cause, stamp)| Some((cause, stamp?)));
    slot.chain(Demand::since()).chain(demanded).collect()
}

/// The group of an earlier session, read back from the log.
fn restored(mut lease: Lease) -> Result<Group, Error> {
    let mut group = lease.run().payload(lease.id())?;
    let found = lease.restored().cloned();
    lease.arrive(Stage::Upstream);
    group.context = GroupContext {
        completed: found.as_ref().map(|found| found.completed),
        admitted: found.and_then(|found| found.admitted),
        payload: Some(group.digest()),
        // The checks passed before the group was logged, unless its reward or a filter failed.
        checked: !group.is_aborted(),
        lease: Some(lease),
        ..GroupContext::default()
    };
    Ok(group)
}

impl<S, E> Stream for Generate<S, E>
where
    S: Stream<Item = Result<Lease, Error>>,
    E: Engine + Clone,
{
    type Item = Result<Group, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        let state = this.state;
        loop {
            while !this.input.has_ended() && state.may_issue(cx) {
                let taken = match this.input.as_mut().poll_next(cx) {
                    Poll::Ready(Some(lease)) => lease.and_then(|lease| state.take(lease)),
                    Poll::Ready(None) | Poll::Pending => break,
                };
                match taken {
                    Ok(None) => {}
                    Ok(Some(group)) => return Poll::Ready(Some(Ok(group))),
                    Err(error) => return fail(this.input, state, error),
                }
            }
            match in_turn(cx, |cx| state.running.poll_next_unpin(cx)) {
                Poll::Ready(Some(outcome)) => match state.absorb(outcome) {
                    Ok(None) => {}
                    Ok(Some(group)) => return Poll::Ready(Some(Ok(at(group, Stage::Upstream)))),
                    Err(error) => return fail(this.input, state, error),
                },
                Poll::Ready(None) if this.input.has_ended() => return Poll::Ready(None),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Ends with an error: dropping the input and the requests stops everything.
fn fail<S, E>(input: Pin<&mut Upstream<S>>, state: &mut State<E>, error: Error) -> Poll<Option<Result<Group, Error>>> {
    state.running.clear();
    state.growing.clear();
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
