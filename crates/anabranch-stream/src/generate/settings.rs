//! The settings of generation.

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
    /// Sets how tokens are sampled. The default is temperature 1, at most 16 tokens, and no stop token.
    ///
    /// # Panics
    /// Panics if `max_tokens` is 0, the temperature is negative or not finite, or `top_p` is outside (0, 1].
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        assert!(sampling.max_tokens > 0, "sampling.max_tokens: expected at least 1, found 0");
        let temperature = sampling.temperature;
        assert!(
            temperature.is_finite() && temperature >= 0.0,
            "sampling.temperature: expected a finite number of at least 0, found {temperature}"
        );
        assert!(
            sampling.top_p.is_none_or(|top_p| top_p > 0.0 && top_p <= 1.0),
            "sampling.top_p: expected a number above 0 and at most 1, found {:?}",
            sampling.top_p
        );
        assert!(sampling.top_k != Some(0), "sampling.top_k: expected at least 1, found 0");
        self.state.settings.sampling = sampling;
        self
    }

    /// Sets the seed. Together with the lease and the sample's index it seeds the sampling of every token. The default
    /// is 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.state.settings.seed = seed;
        self
    }

    /// Sets what occupies a generation slot. The default is one sample.
    pub fn granularity(mut self, granularity: Granularity) -> Self {
        self.state.settings.granularity = granularity;
        self.state.slots = self.state.settings.slots();
        self
    }

    /// Sets how often a request is retried after a transient fault, and the wait before the first retry. The wait
    /// doubles with each retry. If the retries run out, the sample is aborted. The default is 3 retries, with a first
    /// wait of 100 ms.
    pub fn retries(mut self, limit: u32, backoff: Duration) -> Self {
        self.state.settings.retries = Retries { limit, backoff };
        self
    }

    /// Limits the time of a group from its submission to the end of its last sample. Samples that are still running
    /// then are cancelled and aborted. Time in which generation is paused does not count: during a publication, or
    /// during a hold after the last sample has ended. Waiting for room does not count either. By default there is no
    /// limit.
    ///
    /// # Panics
    /// Panics if `limit` is zero.
    pub fn timeout(mut self, limit: Duration) -> Self {
        assert!(!limit.is_zero(), "timeout: expected more than zero, found zero; every group would be aborted");
        self.state.settings.timeout = Some(limit);
        self
    }

    /// Warns (`tracing`, level `WARN`) each time `limit` passes without a token while groups are being generated. Time
    /// is measured as for [`timeout`](Self::timeout). By default there is no watchdog.
    ///
    /// # Panics
    /// Panics if `limit` is zero.
    pub fn watchdog(mut self, limit: Duration) -> Self {
        assert!(!limit.is_zero(), "watchdog: expected more than zero, found zero; it would never stop warning");
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

    /// The largest number of groups that may be generated, scored or written to the log at once.
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
