//! The trait of engines, which generate tokens.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::{EngineError, SpanVersion, Version};

/// What happens to the samples in flight when new weights are installed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WeightSync {
    /// Running requests return to the waiting queue. Their tokens, log-probs and spans are kept; the KV cache is
    /// computed again under the new weights.
    #[default]
    Retract,
    /// Generation continues with the old KV cache; later spans are marked `kv_carried`.
    InPlace,
    /// No new request starts, and the publication waits until no request runs on an engine.
    Drain,
    /// Running requests are aborted.
    Abort,
}

impl WeightSync {
    /// All modes.
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

/// How tokens are sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// The temperature, by which logits are divided; 0 means greedy sampling.
    pub temperature: f32,
    /// If set, only the `k` most likely tokens are sampled.
    pub top_k: Option<u32>,
    /// If set, only the smallest set of tokens whose total probability reaches this is sampled; in (0, 1].
    pub top_p: Option<f32>,
    /// The largest number of tokens to generate.
    pub max_tokens: u32,
    /// Stop tokens. Generation ends after any of them; the stop token is part of the sample.
    pub stop: Vec<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: None, max_tokens: 16, stop: Vec::new() }
    }
}

/// The key of a sample's randomness. Together with the position it determines the random draw of every token,
/// independently of other samples in the same engine batch and of restarts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SamplingKey {
    /// The run's seed.
    pub seed: u64,
    /// A hash of the lease's name.
    pub lease: u64,
    /// The index of the sample in its group.
    pub sample: u32,
}

/// One call of an engine: it continues these tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The request's name, prefixed by the run's.
    pub id: String,
    /// The token ids to continue.
    pub tokens: Vec<u32>,
    /// The number of tokens that earlier calls (turns) generated for this sample; this is the position of the first new
    /// token.
    pub position: u32,
    /// How to sample the tokens.
    pub sampling: Sampling,
    /// The key of the sample's randomness.
    pub key: SamplingKey,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Finish {
    /// At a stop token.
    Stop,
    /// At the token limit.
    Length,
    /// The engine gave it up.
    Abort {
        /// The cause.
        cause: String,
    },
}

/// Some tokens of a request, all of one version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// The token ids, in order.
    pub tokens: Vec<u32>,
    /// Log-prob (nats) of each token at the sampling temperature, before top-k and top-p.
    pub logprobs: Vec<f32>,
    /// Log-prob of each token under the truncated distribution, if top-k or top-p is set.
    pub truncated_logprobs: Option<Vec<f32>>,
    /// The version whose weights produced the tokens.
    pub version: SpanVersion,
    /// Whether older weights computed the KV cache before these tokens.
    pub kv_carried: bool,
    /// How the request ended; set on the last chunk only.
    pub finish: Option<Finish>,
}

/// Generates tokens. Implement it for in-process engines, HTTP engines and scripted engines. `Arc<dyn Engine<Weights =
/// W>>` is an engine too.
///
/// A complete engine whose model repeats one token, the weights. (The engine of the example `own_engine` samples in
/// tasks.)
///
/// ```
/// use std::sync::{Arc, Mutex, PoisonError};
///
/// use anabranch_core::{
///     Chunk, Engine, EngineError, Finish, Request, Sampling, SamplingKey, SpanVersion, Version, WeightSync,
/// };
/// use futures::channel::mpsc::{UnboundedSender, unbounded};
/// use futures::future::{BoxFuture, FutureExt, ready};
/// use futures::stream::{BoxStream, StreamExt};
///
/// #[derive(Clone, Default)]
/// struct Parrot(Arc<Mutex<State>>);
///
/// #[derive(Default)]
/// struct State {
///     installed: Option<(u32, Version)>,
///     paused: bool,
///     waiting: Vec<(Request, UnboundedSender<Result<Chunk, EngineError>>)>,
/// }
///
/// impl Parrot {
///     /// Changes the state, then answers the requests that wait, if there are weights and no pause.
///     fn change(&self, change: impl FnOnce(&mut State)) {
///         let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         change(&mut state);
///         let (false, Some((token, version))) = (state.paused, state.installed) else { return };
///         for (request, chunks) in state.waiting.drain(..) {
///             let tokens = vec![token; request.sampling.max_tokens as usize];
///             let chunk = Chunk {
///                 logprobs: vec![0.0; tokens.len()],
///                 tokens,
///                 truncated_logprobs: None,
///                 version: SpanVersion::Exact(version),
///                 kv_carried: false,
///                 finish: Some(Finish::Length),
///             };
///             // Sending fails if the stream was dropped, which cancels the request.
///             let _ = chunks.unbounded_send(Ok(chunk));
///         }
///     }
/// }
///
/// impl Engine for Parrot {
///     type Weights = u32;
///
///     fn generate(&self, request: Request) -> BoxStream<'static, Result<Chunk, EngineError>> {
///         let (sender, chunks) = unbounded();
///         self.change(|state| state.waiting.push((request, sender)));
///         chunks.boxed()
///     }
///
///     // An answer takes no time. Therefore no request runs when a pause begins, whatever the mode.
///     fn pause(&self, _: WeightSync) -> BoxFuture<'static, Result<(), EngineError>> {
///         self.change(|state| state.paused = true);
///         ready(Ok(())).boxed()
///     }
///
///     fn install(&self, token: u32, version: Version) -> BoxFuture<'static, Result<(), EngineError>> {
///         self.change(|state| state.installed = Some((token, version)));
///         ready(Ok(())).boxed()
///     }
///
///     fn resume(&self) -> BoxFuture<'static, Result<(), EngineError>> {
///         self.change(|state| state.paused = false);
///         ready(Ok(())).boxed()
///     }
/// }
///
/// # futures::executor::block_on(async {
/// let parrot = Parrot::default();
/// let sampling = Sampling { max_tokens: 3, ..Sampling::default() };
/// let (id, key) = ("run/d/0/0#0/0".to_owned(), SamplingKey::default());
/// let request = Request { id, tokens: vec![1], position: 0, sampling, key };
///
/// parrot.pause(WeightSync::Drain).await?;
/// let mut chunks = parrot.generate(request);
/// parrot.install(7, Version(4)).await?;
/// assert!(chunks.next().now_or_never().is_none(), "the request waits for the end of the pause");
/// parrot.resume().await?;
/// let chunk = chunks.next().await.expect("one chunk")?;
/// assert_eq!((chunk.tokens, chunk.version), (vec![7, 7, 7], SpanVersion::Exact(Version(4))));
/// # Ok::<_, EngineError>(())
/// # }).unwrap();
/// ```
pub trait Engine: Send + Sync + 'static {
    /// The type of the weights that a publication passes to the engine: device buffers in process, files or handles
    /// over HTTP, a number in a scripted engine.
    type Weights: Send + 'static;

    /// Starts to generate immediately, and continues even if the stream is not polled. Dropping the stream cancels the
    /// request. The last chunk has [`Chunk::finish`].
    fn generate(&self, request: Request) -> BoxStream<'static, Result<Chunk, EngineError>>;

    /// Pauses generation for a publication. Ready when no more tokens are sampled under the old weights. Idempotent.
    fn pause(&self, mode: WeightSync) -> BoxFuture<'static, Result<(), EngineError>>;

    /// Installs weights under a version. Called between [`pause`](Self::pause) and [`resume`](Self::resume).
    fn install(&self, weights: Self::Weights, version: Version) -> BoxFuture<'static, Result<(), EngineError>>;

    /// Resumes generation. Idempotent.
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
