//! What a scripted request does.

use std::time::Duration;

use anabranch_core::{Request, SamplingKey, SpanVersion};

/// A request as the script sees it.
#[derive(Copy, Clone, Debug)]
pub struct Call<'a> {
    /// The request.
    pub request: &'a Request,
    /// How often a request of this name came before: 0 for the first call.
    pub retry: u32,
    /// Which turn of its sample it is: 0 for the first.
    pub turn: u32,
}

/// How a scripted request ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// At a stop token.
    #[default]
    Stop,
    /// It is given up, for this cause.
    Abort(String),
    /// With a fault that may go away.
    Transient(String),
    /// With a fault that will not.
    Fatal(String),
}

/// What a scripted request does: tokens at their times, then an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub(super) wait: Duration,
    pub(super) times: Vec<Duration>,
    pub(super) tokens: Option<Vec<u32>>,
    pub(super) claim: Option<SpanVersion>,
    pub(super) end: End,
}

impl Reply {
    /// `count` tokens, `each` after the one before; their ids are drawn by the request's key and position.
    pub fn tokens(count: u32, each: Duration) -> Self {
        Self::timed(vec![each; count as usize])
    }

    /// A token after each of `times`.
    pub fn timed(times: Vec<Duration>) -> Self {
        Self { times, ..Self::default() }
    }

    /// These tokens, `each` after the one before.
    pub fn saying(tokens: Vec<u32>, each: Duration) -> Self {
        let times = vec![each; tokens.len()];
        Self { tokens: Some(tokens), ..Self::timed(times) }
    }

    /// Waits before the first token (or, without tokens, before the end).
    pub fn after(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Says of all its tokens that `version` produced them, whatever is installed: an engine that cannot tell its versions
    /// apart, does not know them, or is wrong about them.
    pub fn claiming(mut self, version: SpanVersion) -> Self {
        self.claim = Some(version);
        self
    }

    /// Ends so.
    pub fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// The id and log-prob of the token at `index` of this reply.
    pub(super) fn token(&self, index: usize, key: SamplingKey, position: u64) -> (u32, f32) {
        let drawn = || draw(key.seed, key, position, 0, 999) as u32;
        let token = self.tokens.as_ref().and_then(|tokens| tokens.get(index).copied()).unwrap_or_else(drawn);
        (token, draw(!key.seed, key, position, 1, 4000) as f32 / -1000.0)
    }
}

/// A number in `lo..=hi` that depends on the arguments alone (`SplitMix64`).
pub(super) fn draw(seed: u64, key: SamplingKey, index: u64, lo: u64, hi: u64) -> u64 {
    let mut state = seed;
    for word in [key.seed, key.lease, u64::from(key.sample), index] {
        state = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    lo + state % (hi - lo).saturating_add(1).max(1)
}
