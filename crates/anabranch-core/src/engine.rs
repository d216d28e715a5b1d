//! The engine trait: what generates tokens.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::{EngineError, SpanVersion, Version};

/// What becomes of samples in flight when new weights are installed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum InFlightMode {
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
    fn pause(&self, mode: InFlightMode) -> BoxFuture<'static, Result<(), EngineError>>;

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

    fn pause(&self, mode: InFlightMode) -> BoxFuture<'static, Result<(), EngineError>> {
        (**self).pause(mode)
    }

    fn install(&self, weights: Self::Weights, version: Version) -> BoxFuture<'static, Result<(), EngineError>> {
        (**self).install(weights, version)
    }

    fn resume(&self) -> BoxFuture<'static, Result<(), EngineError>> {
        (**self).resume()
    }
}
