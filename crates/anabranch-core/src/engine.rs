//! The engine trait: what generates tokens.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::{EngineError, SpanVersion, Version};

/// What becomes of samples in flight when new weights are installed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WeightSync {
    /// Running requests return to the waiting queue; prefix tokens, log-probs and spans are kept, the KV cache is
    /// recomputed under the new weights.
    #[default]
    Retract,
    /// The KV cache is kept and generation goes on; spans after it are marked `kv_carried`.
    InPlace,
    /// No new work; wait until no request runs on an engine.
    Drain,
    /// What runs ends aborted.
    Abort,
}

impl WeightSync {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Retract, Self::InPlace, Self::Drain, Self::Abort];

    /// Its name in tables and on command lines: `retract`, `in_place`, `drain` or `abort`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retract => "retract",
            Self::InPlace => "in_place",
            Self::Drain => "drain",
            Self::Abort => "abort",
        }
    }

    /// Its name among the recorded settings of `.publish_every`. Logs of every version have this name, so a run that an
    /// older library began can be resumed.
    pub fn log_name(self) -> &'static str {
        match self {
            Self::Retract => "Retract",
            Self::InPlace => "InPlace",
            Self::Drain => "Drain",
            Self::Abort => "Abort",
        }
    }
}

/// A text that does not name a [`WeightSync`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `retract`, `in_place`, `drain` or `abort`, found `{0}`")]
pub struct ParseWeightSyncError(String);

impl std::str::FromStr for WeightSync {
    type Err = ParseWeightSyncError;

    /// Reads either name; `in-place` too.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |mode: &Self| [mode.name(), mode.log_name()].contains(&text.replace('-', "_").as_str());
        Self::ALL.into_iter().find(named).ok_or_else(|| ParseWeightSyncError(text.to_owned()))
    }
}

/// How tokens are drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Logits are divided by it; 0 is greedy.
    pub temperature: f32,
    /// Only the `k` most likely tokens, where set.
    pub top_k: Option<u32>,
    /// Only the smallest set of tokens whose probability reaches this, where set; in (0, 1].
    pub top_p: Option<f32>,
    /// The most tokens to generate.
    pub max_tokens: u32,
    /// Generation ends with any of these, which is kept.
    pub stop: Vec<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: None, max_tokens: 16, stop: Vec::new() }
    }
}

/// What keys a sample's randomness: with the position it determines every token, whatever shares its batch and however
/// often the process was restarted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SamplingKey {
    /// The run's seed.
    pub seed: u64,
    /// A hash of the lease's name.
    pub lease: u64,
    /// Which sample of the group.
    pub sample: u32,
}

/// One call of an engine: continue these tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The request's name, prefixed by the run's.
    pub id: String,
    /// The token ids to continue.
    pub tokens: Vec<u32>,
    /// Generated tokens of this sample before this call (earlier turns): the position of the first token drawn.
    pub position: u32,
    /// How.
    pub sampling: Sampling,
    /// The key of its randomness.
    pub key: SamplingKey,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finish {
    /// At a stop token.
    Stop,
    /// At the token limit.
    Length,
    /// It was given up.
    Abort {
        /// Why.
        cause: String,
    },
}

/// Some tokens of a request, all of one version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// The token ids, in order.
    pub tokens: Vec<u32>,
    /// Log-prob (nats) of each at the sampling temperature, before top-k and top-p.
    pub logprobs: Vec<f32>,
    /// Log-prob of each under the truncated distribution, where top-k or top-p was on.
    pub truncated_logprobs: Option<Vec<f32>>,
    /// Whose weights produced them.
    pub version: SpanVersion,
    /// Whether the KV cache under them was computed by older weights.
    pub kv_carried: bool,
    /// Set on the last chunk.
    pub finish: Option<Finish>,
}

/// What generates. In-process engines, HTTP engines and scripted ones are alike; `Arc<dyn Engine<Weights = W>>` works.
pub trait Engine: Send + Sync + 'static {
    /// What a publication hands over: device buffers in process, files or handles over HTTP, a number when scripted.
    type Weights: Send + 'static;

    /// Starts to generate at the call and goes on whether or not the stream is polled. Dropping the stream cancels.
    /// The last chunk carries [`Chunk::finish`].
    fn generate(&self, request: Request) -> BoxStream<'static, Result<Chunk, EngineError>>;

    /// Stops generation for a publication; ready when nothing more is sampled under the old weights. Idempotent.
    fn pause(&self, mode: WeightSync) -> BoxFuture<'static, Result<(), EngineError>>;

    /// Installs weights under a version; between [`pause`](Self::pause) and [`resume`](Self::resume).
    fn install(&self, weights: Self::Weights, version: Version) -> BoxFuture<'static, Result<(), EngineError>>;

    /// Lets generation go on. Idempotent.
    fn resume(&self) -> BoxFuture<'static, Result<(), EngineError>>;
}

impl<E: Engine + ?Sized> Engine for std::sync::Arc<E> {
    type Weights = E::Weights;

    fn generate(&self, request: Request) -> BoxStream<'static, Result<Chunk, EngineError>> {
        (**self).generate(request)
    }

    fn pause(&self, mode: WeightSync) -> BoxFuture<'static, Result<(), EngineError>> {
        (**self).pause(mode)
    }

    fn install(&self, weights: Self::Weights, version: Version) -> BoxFuture<'static, Result<(), EngineError>> {
        (**self).install(weights, version)
    }

    fn resume(&self) -> BoxFuture<'static, Result<(), EngineError>> {
        (**self).resume()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_sync_is_read_by_each_of_its_names() {
        for mode in WeightSync::ALL {
            // What logs of format 1 hold was written by `Debug`.
            assert_eq!(mode.log_name(), format!("{mode:?}"));
            assert_eq!((mode.name().parse(), mode.log_name().parse()), (Ok(mode), Ok(mode)));
        }
        assert_eq!("in-place".parse(), Ok(WeightSync::InPlace));
        let error = "inplace".parse::<WeightSync>().unwrap_err().to_string();
        assert_eq!(error, "expected `retract`, `in_place`, `drain` or `abort`, found `inplace`");
    }
}
