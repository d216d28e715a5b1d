//! A scripted engine in virtual time.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anabranch_core::{Chunk, Engine, EngineError, Request, Version, WeightSync};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc;

use self::drive::{Canceller, Writer, drive, instantly};
use self::gate::Gate;

mod drive;
mod gate;
mod script;

pub use self::script::{Call, End, Reply};

/// Where chunks end.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Chunking {
    /// One chunk for all tokens between two publications.
    #[default]
    Publication,
    /// One chunk a token.
    Token,
}

/// An installation of weights.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// The version of the weights.
    pub version: Version,
    /// The scripted weights.
    pub weights: u64,
}

/// Counts of what an engine has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimStats {
    /// How many requests it received.
    pub started: u64,
    /// How many requests ended by their script or by an aborting publication.
    pub finished: u64,
    /// How many requests had their stream dropped before its end.
    pub cancelled: u64,
    /// How many requests run now. Requests that wait for a publication to end do not count.
    pub running: usize,
    /// All installations, in order.
    pub installs: Vec<Install>,
}

/// A scripted engine: a closure says what each request does, and when. Clones share one engine.
///
/// Time is tokio's. If it is paused, a schedule of hours runs in milliseconds, the same each time. Tokio's timer rounds
/// up to whole milliseconds, so an exact script uses whole milliseconds. Requests wait until weights are installed.
///
/// ```
/// use std::time::Duration;
/// use anabranch_core::{Engine, Finish, Request, Sampling, SamplingKey, Version};
/// use anabranch_sim::{Reply, Sim};
/// use futures::TryStreamExt;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), anabranch_core::EngineError> {
/// let sim = Sim::scripted(|call| Reply::tokens(call.request.tokens[0], Duration::from_millis(10)));
/// sim.install(7, Version(0)).await?;
/// let request = Request {
///     id: "run/d/0/0#0/0".into(),
///     tokens: vec![5],
///     position: 0,
///     sampling: Sampling::default(),
///     key: SamplingKey::default(),
/// };
/// let chunks: Vec<_> = sim.generate(request).try_collect().await?;
/// assert_eq!((chunks.len(), chunks[0].tokens.len()), (1, 5));
/// assert_eq!(chunks[0].finish, Some(Finish::Stop));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sim(Arc<Inner>);

struct Inner {
    script: Box<dyn Fn(&Call<'_>) -> Reply + Send + Sync>,
    chunking: Chunking,
    install_time: Duration,
    gate: Gate,
}

impl Sim {
    /// Creates an engine whose requests do what `script` says. The script must depend only on its argument.
    pub fn scripted(script: impl Fn(&Call<'_>) -> Reply + Send + Sync + 'static) -> Self {
        let (chunking, install_time) = (Chunking::default(), Duration::ZERO);
        Self(Arc::new(Inner { script: Box::new(script), chunking, install_time, gate: Gate::new() }))
    }

    /// Creates an engine that answers every request with `tokens` tokens, `each` apart.
    pub fn fixed(tokens: u32, each: Duration) -> Self {
        Self::scripted(move |_| Reply::tokens(tokens, each))
    }

    /// Creates an engine for samples of several turns. `script` gets the number of a turn and returns its reply.
    pub fn by_turn(script: impl Fn(u32) -> Reply + Send + Sync + 'static) -> Self {
        Self::scripted(move |call| script(call.turn))
    }

    /// Creates an engine that draws the number of tokens of each sample from `tokens` and the time of each token, in
    /// milliseconds, from `millis`. Draws depend on `seed`, lease and sample, so that a sample is the same in every
    /// run.
    ///
    /// # Panics
    /// Panics if a range is empty.
    pub fn random(seed: u64, tokens: RangeInclusive<u32>, millis: RangeInclusive<u64>) -> Self {
        assert!(!tokens.is_empty(), "tokens: the range is empty");
        assert!(!millis.is_empty(), "millis: the range is empty");
        Self::scripted(move |call| {
            let count = script::draw(seed, call.request.key, 0, u64::from(*tokens.start()), u64::from(*tokens.end()));
            let times = (1..=count)
                .map(|index| script::draw(seed, call.request.key, index, *millis.start(), *millis.end()))
                .map(Duration::from_millis);
            Reply::timed(times.collect())
        })
    }

    /// Sets how long an installation takes. By default it takes no time.
    ///
    /// # Panics
    /// Panics if the engine is already shared.
    pub fn install_time(self, install_time: Duration) -> Self {
        self.set(|inner| inner.install_time = install_time)
    }

    /// Sets where chunks end. By default they end only at publications.
    ///
    /// # Panics
    /// Panics if the engine is already shared.
    pub fn chunking(self, chunking: Chunking) -> Self {
        self.set(|inner| inner.chunking = chunking)
    }

    /// Returns counts of what the engine has done so far.
    pub fn stats(&self) -> SimStats {
        self.0.gate.stats()
    }

    fn set(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::get_mut(&mut self.0).expect("an engine is configured before it is cloned"));
        self
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Engine for Sim {
    type Weights = u64;

    /// # Panics
    /// Outside a tokio runtime, unless the request takes no time.
    fn generate(&self, request: Request) -> BoxStream<'static, Result<Chunk, EngineError>> {
        let (turn, retry) = self.0.gate.receive(&request);
        let reply = (self.0.script)(&Call { request: &request, retry, turn });
        let mut writer = Writer::new(request, reply, self.0.chunking);
        if let Some(chunks) = instantly(&self.0.gate, &mut writer) {
            return stream::iter(chunks).boxed();
        }
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let canceller = Canceller::new(self.0.clone(), tokio::spawn(drive(self.0.clone(), writer, sender)));
        stream::poll_fn(move |cx| {
            let polled = receiver.poll_recv(cx);
            if matches!(polled, std::task::Poll::Ready(None)) {
                canceller.ended();
            }
            polled
        })
        .boxed()
    }

    fn pause(&self, mode: WeightSync) -> BoxFuture<'static, Result<(), EngineError>> {
        let inner = self.0.clone();
        async move {
            inner.gate.pause(mode).await;
            Ok(())
        }
        .boxed()
    }

    fn install(&self, weights: u64, version: Version) -> BoxFuture<'static, Result<(), EngineError>> {
        let inner = self.0.clone();
        async move {
            if !inner.install_time.is_zero() {
                tokio::time::sleep(inner.install_time).await;
            }
            inner.gate.install(Install { version, weights });
            Ok(())
        }
        .boxed()
    }

    fn resume(&self) -> BoxFuture<'static, Result<(), EngineError>> {
        self.0.gate.resume();
        std::future::ready(Ok(())).boxed()
    }
}
