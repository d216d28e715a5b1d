//! The script of a request: its tokens, their times, and its end.

use std::time::Duration;

use anabranch_core::{Request, SamplingKey, SpanVersion};

/// A call of the script for a request.
#[derive(Copy, Clone, Debug)]
pub struct Call<'a> {
    /// The request.
    pub request: &'a Request,
    /// How often a request of this name came before.
    pub retry: u32,
    /// The turn of the sample, from 0.
    pub turn: u32,
}

/// How a scripted request ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It ends at a stop token.
    #[default]
    Stop,
    /// It is aborted for this cause.
    Abort(String),
    /// It ends with a fault that may go away.
    Transient(String),
    /// It ends with a fault that will not go away.
    Fatal(String),
}

/// The reply to a scripted request: tokens at their times, then an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub(super) wait: Duration,
    pub(super) times: Vec<Duration>,
    pub(super) tokens: Option<Vec<u32>>,
    pub(super) claim: Option<SpanVersion>,
    pub(super) end: End,
}

impl Reply {
    /// Replies with `count` tokens, `each` after the one before. The request's key and position give their ids.
    pub fn tokens(count: u32, each: Duration) -> Self {
        Self::timed(vec![each; count as usize])
    }

    /// Replies with a token after each of `times`.
    pub fn timed(times: Vec<Duration>) -> Self {
        Self { times, ..Self::default() }
    }

    /// Replies with these tokens, `each` after the one before.
    pub fn saying(tokens: Vec<u32>, each: Duration) -> Self {
        let times = vec![each; tokens.len()];
        Self { tokens: Some(tokens), ..Self::timed(times) }
    }

    /// Waits before the first token, or before the end if there are no tokens.
    pub fn after(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Claims that `version` produced all tokens, whatever is installed, like an engine that cannot tell its versions
    /// apart, does not know them, or is wrong about them.
    pub fn claiming(mut self, version: SpanVersion) -> Self {
        self.claim = Some(version);
        self
    }

    /// Ends the reply with `end`.
    pub fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Returns the id and log-prob of the token at `index` of this reply.
    pub(super) fn token(&self, index: usize, key: SamplingKey, position: u64) -> (u32, f32) {
        let drawn = || draw(key.seed, key, position, 0, 999) as u32;
        let token = self.tokens.as_ref().and_then(|tokens| tokens.get(index).copied()).unwrap_or_else(drawn);
        (token, draw(!key.seed, key, position, 1, 4000) as f32 / -1000.0)
    }
}

/// Returns a number in `lo..=hi` that depends only on the arguments (`SplitMix64`).
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
