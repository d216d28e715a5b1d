//! The in-process engine: continuous batching over KV slots on its own thread.
//!
//! Each turn of the thread takes waiting requests into free slots, runs all their unread tokens and the next token of
//! every running request through the model in one pass, samples on the device, and reads the tokens back once. A token
//! depends on its prefix, the weights and its [`SamplingKey`](anabranch_core::SamplingKey) alone: not on what shared
//! its pass, nor on a retraction or a restart.

mod scheduler;
mod worker;

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Poll, ready};

use anabranch_core::{Chunk, Engine, EngineError, Request, Sampling, Version, WeightSync};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream};
use futures::{FutureExt, StreamExt};

use crate::error::PolicyError;
use crate::policy::Policy;
use crate::weights::Weights;

/// How much the engine does at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Requests that generate at the same time; further ones wait.
    pub slots: usize,
    /// Longest sequence, prompt included, in tokens; `None` for the model's own limit. Each slot holds KV for as many.
    pub max_len: Option<usize>,
    /// Tokens read in one pass; longer prompts are read in several.
    pub rows_per_pass: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { slots: 512, max_len: None, rows_per_pass: 4096 }
    }
}

/// Counts since the engine was started, and its requests now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Passes through the model.
    pub passes: u64,
    /// Rows of those passes: tokens read.
    pub rows: u64,
    /// Tokens sampled.
    pub tokens: u64,
    /// Requests in a slot.
    pub running: u64,
    /// Requests waiting for a slot.
    pub waiting: u64,
}

/// Generates with the policy's model, in process. Clones are handles to the same engine, which stops when the last
/// handle and the last unfinished stream are gone.
#[derive(Clone)]
pub struct PolicyEngine {
    shared: Arc<Shared>,
}

struct Shared {
    commands: mpsc::Sender<Command>,
    state: Arc<Published>,
}

/// The state of the engine's thread that its handles can read.
#[derive(Default)]
struct Published {
    passes: AtomicU64,
    rows: AtomicU64,
    tokens: AtomicU64,
    running: AtomicU64,
    waiting: AtomicU64,
    /// Why the thread ended, if it failed.
    failure: OnceLock<String>,
}

type Reply = oneshot::Sender<Result<(), EngineError>>;
type Output = UnboundedSender<Result<Chunk, EngineError>>;

/// A command from a handle to the engine's thread.
enum Command {
    Generate(Request, Output),
    Pause(WeightSync, Reply),
    Install(Weights, Version, Reply),
    Resume(Reply),
}

impl PolicyEngine {
    pub(crate) fn new(policy: &Policy, options: EngineOptions) -> Result<Self, PolicyError> {
        let zero = |field| Err(PolicyError::Config { field, found: "0".into(), expected: "at least 1".into() });
        if options.slots == 0 {
            return zero("slots");
        }
        if options.rows_per_pass == 0 {
            return zero("rows_per_pass");
        }
        let positions = policy.config().max_positions;
        let max_len = options.max_len.unwrap_or(positions);
        if !(2..=positions).contains(&max_len) {
            return Err(PolicyError::Config {
                field: "max_len",
                found: max_len.to_string(),
                expected: format!("a length from 2 to the model's {positions} positions"),
            });
        }
        let (commands, receiver) = mpsc::channel();
        let state = Arc::new(Published::default());
        let options = EngineOptions { max_len: Some(max_len), ..options };
        worker::spawn(policy, options, receiver, state.clone())?;
        Ok(Self { shared: Arc::new(Shared { commands, state }) })
    }

    /// Returns what the engine has done, and how many requests it has now.
    pub fn stats(&self) -> EngineStats {
        let state = &self.shared.state;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EngineStats {
            passes: read(&state.passes),
            rows: read(&state.rows),
            tokens: read(&state.tokens),
            running: read(&state.running),
            waiting: read(&state.waiting),
        }
    }

    /// Generates the most likely continuation of each prompt under the installed weights, at most `max_tokens` long,
    /// for evaluation. Generation starts at the call.
    pub fn greedy(
        &self,
        prompts: &[Vec<u32>],
        max_tokens: u32,
    ) -> BoxFuture<'static, Result<Vec<Vec<u32>>, EngineError>> {
        let submit = |(index, tokens): (usize, &Vec<u32>)| {
            self.generate(Request {
                id: format!("greedy-{index}"),
                tokens: tokens.clone(),
                position: 0,
                sampling: Sampling { temperature: 0.0, max_tokens, ..Sampling::default() },
                key: anabranch_core::SamplingKey::default(),
            })
        };
        let streams: Vec<_> = prompts.iter().enumerate().map(submit).collect();
        async move {
            let mut answers = Vec::with_capacity(streams.len());
            for mut stream in streams {
                let mut answer = Vec::new();
                while let Some(chunk) = stream.next().await {
                    answer.extend(chunk?.tokens);
                }
                answers.push(answer);
            }
            Ok(answers)
        }
        .boxed()
    }

    /// Sends a command at once and waits for its answer in the future.
    fn ask(&self, command: impl FnOnce(Reply) -> Command) -> BoxFuture<'static, Result<(), EngineError>> {
        let (reply, answer) = oneshot::channel();
        // If the thread has ended, it drops the reply, which the future notices.
        let _ = self.shared.commands.send(command(reply));
        let shared = self.shared.clone();
        async move { answer.await.unwrap_or_else(|_| Err(shared.state.ended())) }.boxed()
    }
}

impl Published {
    fn ended(&self) -> EngineError {
        let reason = self.failure.get().map_or("no reason given", String::as_str);
        EngineError::fatal(format!("the engine's thread has ended: {reason}"))
    }
}

impl Engine for PolicyEngine {
    type Weights = Weights;

    fn generate(&self, request: Request) -> BoxStream<'static, Result<Chunk, EngineError>> {
        let (output, receiver) = unbounded();
        let _ = self.shared.commands.send(Command::Generate(request, output));
        Generation { receiver, shared: self.shared.clone(), ended: false }.boxed()
    }

    fn pause(&self, mode: WeightSync) -> BoxFuture<'static, Result<(), EngineError>> {
        self.ask(|reply| Command::Pause(mode, reply))
    }

    fn install(&self, weights: Weights, version: Version) -> BoxFuture<'static, Result<(), EngineError>> {
        self.ask(|reply| Command::Install(weights, version, reply))
    }

    fn resume(&self) -> BoxFuture<'static, Result<(), EngineError>> {
        self.ask(Command::Resume)
    }
}

/// The chunks of one request. Dropping it cancels the request; until then it keeps the engine alive.
struct Generation {
    receiver: UnboundedReceiver<Result<Chunk, EngineError>>,
    shared: Arc<Shared>,
    ended: bool,
}

impl Stream for Generation {
    type Item = Result<Chunk, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let item = ready!(self.receiver.poll_next_unpin(context));
        let item = item.unwrap_or_else(|| Err(self.shared.state.ended()));
        self.ended = match &item {
            Ok(chunk) => chunk.finish.is_some(),
            Err(_) => true,
        };
        Poll::Ready(Some(item))
    }
}
