//! What a user may set of generation.

use std::time::Duration;

use anabranch_core::{Fields, Sampling, Value};

use super::Generate;
use super::sample::Retries;
use super::slots::Slots;
use super::watch::Watchdog;
use crate::{Granularity, InFlight};

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) in_flight: InFlight,
    pub(super) samples: usize,
    pub(super) granularity: Granularity,
    pub(super) sampling: Sampling,
    pub(super) seed: u64,
    pub(super) retries: Retries,
    pub(super) timeout: Option<Duration>,
}

impl<S, E> Generate<S, E> {
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

    /// How often a request is made again after a transient fault, and how long the first of these waits; the wait
    /// doubles with each. Past the limit the sample is aborted. The default: 3 times, from 100 ms.
    pub fn retries(mut self, limit: u32, backoff: Duration) -> Self {
        self.state.settings.retries = Retries { limit, backoff };
        self
    }

    /// How long a group may take, from its submission to the end of its last sample. What still runs then is cancelled
    /// and aborted. Time in which generation stands still does not count: publications that have stopped it, and holds
    /// under which nothing runs any more; nor does waiting for room. The default does not limit it.
    ///
    /// # Panics
    /// Where `limit` is zero.
    pub fn timeout(mut self, limit: Duration) -> Self {
        assert!(!limit.is_zero(), "timeout: must be above zero, or every group is aborted");
        self.state.settings.timeout = Some(limit);
        self
    }

    /// Warns (`tracing`, level `WARN`) each time no token came for `limit` though groups are being generated, in time
    /// measured as for [`timeout`](Self::timeout). The default does not watch.
    ///
    /// # Panics
    /// Where `limit` is zero.
    pub fn watchdog(mut self, limit: Duration) -> Self {
        assert!(!limit.is_zero(), "watchdog: must be above zero, or it never stops to warn");
        self.state.watchdog = Some(Watchdog::new(limit));
        self
    }
}

impl Settings {
    pub(super) fn slots(&self) -> Slots {
        match self.granularity {
            Granularity::Sample => Slots::new(self.in_flight.get() * self.samples, self.samples),
            Granularity::Group => Slots::new(self.in_flight.get(), 1),
        }
    }

    /// The most groups that operators may work on at once: generating, being scored, on their way into the log.
    pub(super) fn bound(&self) -> usize {
        match self.granularity {
            Granularity::Sample => (self.in_flight.get() - 1) * self.samples + 1,
            Granularity::Group => self.in_flight.get(),
        }
    }

    pub(super) fn fields(&self) -> Fields {
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
            named("timeout_ms", self.timeout.map(|limit| limit.as_millis() as u64).into()),
        ])
    }
}
