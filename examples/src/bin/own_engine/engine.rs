//! The engine: it samples from a table, in tasks of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anabranch::prelude::*;
use anabranch::{Chunk, EngineError, Finish, Request, SamplingKey, SpanVersion};
use futures::channel::mpsc::{self, UnboundedSender};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream};
use tokio::sync::{Mutex, OwnedRwLockWriteGuard, RwLock};

use crate::table::{DIGITS, Table};

/// How long the model computes one token.
pub const TOKEN_TIME: Duration = Duration::from_millis(10);

/// An engine for a [`Table`]. Clones share the engine.
///
/// Two locks implement the contract. A request holds `requests` for reading from its start to its end, and `installed`
/// for reading while it samples a token. A pause holds `installed` for writing until `resume`, so no token is sampled in
/// between. `Drain` and `Abort` lock `requests` for writing first, which waits until all running requests have ended.
#[derive(Clone)]
pub struct TableEngine(Arc<Inner>);

struct Inner {
    requests: Arc<RwLock<()>>,
    installed: Arc<RwLock<Installed>>,
    pause: Mutex<Option<Pause>>,
    /// The number of pauses that aborted the running requests.
    aborts: AtomicU64,
}

/// The weights and their version.
#[derive(Default)]
struct Installed {
    table: Table,
    version: Version,
}

/// The locks that a pause holds.
struct Pause {
    installed: OwnedRwLockWriteGuard<Installed>,
    _requests: Option<OwnedRwLockWriteGuard<()>>,
}

impl TableEngine {
    /// Creates an engine without weights. It is paused: requests wait for the first installation.
    pub fn new() -> Self {
        let installed = Arc::new(RwLock::new(Installed::default()));
        let locked = installed.clone().try_write_owned();
        let pause = Mutex::new(locked.ok().map(|installed| Pause { installed, _requests: None }));
        Self(Arc::new(Inner { requests: Arc::default(), installed, pause, aborts: AtomicU64::new(0) }))
    }
}

impl Engine for TableEngine {
    type Weights = Table;

    fn generate(&self, request: Request) -> BoxStream<'static, Result<Chunk, EngineError>> {
        if let Err(error) = check(&request) {
            return stream::iter([Err(error)]).boxed();
        }
        // The task starts now and needs no reader: the channel is unbounded.
        let (chunks, stream) = mpsc::unbounded();
        tokio::spawn(write(self.0.clone(), request, chunks));
        stream.boxed()
    }

    fn pause(&self, mode: WeightSync) -> BoxFuture<'static, Result<(), EngineError>> {
        let engine = self.0.clone();
        async move {
            let mut pause = engine.pause.lock().await;
            if pause.is_none() {
                if mode == WeightSync::Abort {
                    engine.aborts.fetch_add(1, Ordering::SeqCst);
                }
                // A table has no KV cache. `Retract` and `InPlace` are therefore the same: the next token of each
                // request waits for the new weights.
                let requests = match mode {
                    WeightSync::Drain | WeightSync::Abort => Some(engine.requests.clone().write_owned().await),
                    WeightSync::Retract | WeightSync::InPlace => None,
                };
                let installed = engine.installed.clone().write_owned().await;
                *pause = Some(Pause { installed, _requests: requests });
            }
            Ok(())
        }
        .boxed()
    }

    fn install(&self, table: Table, version: Version) -> BoxFuture<'static, Result<(), EngineError>> {
        let engine = self.0.clone();
        async move {
            let mut pause = engine.pause.lock().await;
            let running = || EngineError::fatal("expected a paused engine, found a running one: pause it first");
            *pause.as_mut().ok_or_else(running)?.installed = Installed { table, version };
            Ok(())
        }
        .boxed()
    }

    fn resume(&self) -> BoxFuture<'static, Result<(), EngineError>> {
        let engine = self.0.clone();
        async move {
            *engine.pause.lock().await = None;
            Ok(())
        }
        .boxed()
    }
}

/// Refuses what this engine cannot do, instead of ignoring it.
fn check(request: &Request) -> Result<(), EngineError> {
    if request.sampling.top_k.is_some() || request.sampling.top_p.is_some() {
        return Err(EngineError::fatal("expected neither top_k nor top_p: this engine samples from all digits"));
    }
    match request.tokens.last() {
        Some(&last) if (last as usize) < DIGITS => Ok(()),
        last => Err(EngineError::fatal(format!("expected a digit from 0 to 9 as the last token, found {last:?}"))),
    }
}

/// Runs one request and sends each token as a chunk of its own.
async fn write(engine: Arc<Inner>, request: Request, chunks: UnboundedSender<Result<Chunk, EngineError>>) {
    let _running = engine.requests.read().await;
    let aborts = engine.aborts.load(Ordering::SeqCst);
    let Request { tokens, position, sampling, key, .. } = request;
    let mut last = tokens.last().map_or(0, |&token| token as usize);
    for index in 1..=sampling.max_tokens {
        tokio::time::sleep(TOKEN_TIME).await;
        let installed = engine.installed.read().await;
        let mut chunk = Chunk {
            tokens: Vec::new(),
            logprobs: Vec::new(),
            truncated_logprobs: None,
            version: SpanVersion::Exact(installed.version),
            kv_carried: false,
            finish: None,
        };
        if aborts == engine.aborts.load(Ordering::SeqCst) {
            let probabilities = installed.table.probabilities(last, f64::from(sampling.temperature));
            last = draw(&probabilities, key, position + index);
            chunk.tokens.push(last as u32);
            chunk.logprobs.push(probabilities[last].ln() as f32);
            let stopped = sampling.stop.contains(&(last as u32)).then_some(Finish::Stop);
            chunk.finish = stopped.or((index == sampling.max_tokens).then_some(Finish::Length));
        } else {
            chunk.finish = Some(Finish::Abort { cause: "a publication aborted the request".to_owned() });
        }
        let ended = chunk.finish.is_some();
        // Sending fails if the stream was dropped, which cancels the request.
        if chunks.unbounded_send(Ok(chunk)).is_err() || ended {
            return;
        }
    }
}

/// Draws a digit. The draw depends on the key and the position alone (`SplitMix64`), so a sample is the same whatever
/// runs beside it.
fn draw(probabilities: &[f64; DIGITS], key: SamplingKey, position: u32) -> usize {
    let mut state = 0_u64;
    for word in [key.seed, key.lease, u64::from(key.sample), u64::from(position)] {
        state = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    let mut left = (state >> 11) as f64 / (1_u64 << 53) as f64;
    for (digit, probability) in probabilities.iter().enumerate() {
        left -= probability;
        if left < 0.0 {
            return digit;
        }
    }
    // Rounding may leave a little: the last digit that is possible at all.
    probabilities.iter().rposition(|probability| *probability > 0.0).unwrap_or(0)
}
