//! One request of a scripted engine, from its start to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anabranch_core::{Chunk, EngineError, Finish, Request, SpanVersion};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::gate::{Gate, Seat, Work};
use super::{Chunking, End, Inner, Reply};

type Item = Result<Chunk, EngineError>;

/// A request, its script, and the chunk being filled.
pub(super) struct Writer {
    request: Request,
    reply: Reply,
    chunking: Chunking,
    next: usize,
    chunk: Option<Chunk>,
}

impl Writer {
    pub(super) fn new(request: Request, mut reply: Reply, chunking: Chunking) -> Self {
        let limit = request.sampling.max_tokens as usize;
        if reply.times.len() > limit {
            reply.times.truncate(limit);
        }
        Self { request, reply, chunking, next: 0, chunk: None }
    }

    fn is_instant(&self) -> bool {
        self.reply.wait.is_zero() && self.reply.times.iter().all(Duration::is_zero)
    }

    /// Returns the time of the next token, if there is one.
    fn next_time(&self) -> Option<Duration> {
        let wait = if self.next == 0 { self.reply.wait } else { Duration::ZERO };
        self.reply.times.get(self.next).map(|&time| time + wait)
    }

    /// Adds the next token. Returns the chunk that ends with it, if one does.
    fn push(&mut self, version: SpanVersion, kv_carried: bool) -> Option<Chunk> {
        let version = self.reply.claim.unwrap_or(version);
        let position = u64::from(self.request.position) + self.next as u64;
        let (token, logprob) = self.reply.token(self.next, self.request.key, position);
        self.next += 1;
        let full = self.chunk.take_if(|chunk| chunk.version != version || chunk.kv_carried != kv_carried);
        let chunk = self.chunk.get_or_insert_with(|| empty(version, kv_carried));
        chunk.tokens.push(token);
        chunk.logprobs.push(logprob);
        // With one chunk for each token, a chunk leaves with its token. Only the last waits, because it brings the end.
        let single = self.chunking == Chunking::Token && self.next < self.reply.times.len();
        if single { self.chunk.take() } else { full }
    }

    /// Returns the last chunk, and the fault after it if the script has one.
    fn finish(&mut self, aborted: bool) -> (Option<Chunk>, Option<EngineError>) {
        let finish = if aborted {
            Finish::Abort { cause: "publication".to_owned() }
        } else {
            match &self.reply.end {
                End::Stop if self.next == self.request.sampling.max_tokens as usize => Finish::Length,
                End::Stop => Finish::Stop,
                End::Abort(cause) => Finish::Abort { cause: cause.clone() },
                End::Transient(fault) => return (self.chunk.take(), Some(EngineError::transient(fault.clone()))),
                End::Fatal(fault) => return (self.chunk.take(), Some(EngineError::fatal(fault.clone()))),
            }
        };
        let mut chunk = self.chunk.take().unwrap_or_else(|| empty(SpanVersion::Unknown, false));
        chunk.finish = Some(finish);
        (Some(chunk), None)
    }

    /// Returns everything from the next token on, if none of it takes time.
    fn run_instantly(&mut self, gate: &Gate, seat: &mut Seat, chunks: &mut Vec<Item>) {
        while self.next < self.reply.times.len() {
            let (version, kv_carried) = gate.sample(seat);
            chunks.extend(self.push(version, kv_carried).map(Ok));
        }
        let (last, fault) = self.finish(false);
        chunks.extend(last.map(Ok));
        chunks.extend(fault.map(Err));
    }
}

fn empty(version: SpanVersion, kv_carried: bool) -> Chunk {
    Chunk { tokens: Vec::new(), logprobs: Vec::new(), truncated_logprobs: None, version, kv_carried, finish: None }
}

/// Returns all chunks of a request that takes no time, if it may start now.
pub(super) fn instantly(gate: &Gate, writer: &mut Writer) -> Option<Vec<Item>> {
    if !writer.is_instant() {
        return None;
    }
    let mut seat = gate.try_enter()?;
    let mut chunks = Vec::new();
    writer.run_instantly(gate, &mut seat, &mut chunks);
    gate.leave(true);
    Some(chunks)
}

/// Frees the seat of a request, however it ends.
struct Seated {
    inner: Arc<Inner>,
    finished: bool,
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.inner.gate.leave(self.finished);
    }
}

pub(super) async fn drive(inner: Arc<Inner>, mut writer: Writer, out: UnboundedSender<Item>) {
    let mut seat = inner.gate.enter().await;
    let mut seated = Seated { inner: inner.clone(), finished: false };
    // A closed receiver means that the request was cancelled: the task is about to be aborted.
    let send = |item: Item| drop(out.send(item));
    let mut work = Work::Done;
    while let Some(time) = writer.next_time() {
        work = inner.gate.work(&seat, time).await;
        if work == Work::Aborted {
            break;
        }
        let (version, kv_carried) = inner.gate.sample(&mut seat);
        if let Some(chunk) = writer.push(version, kv_carried) {
            send(Ok(chunk));
        }
    }
    if writer.reply.times.is_empty() {
        work = inner.gate.work(&seat, writer.reply.wait).await;
    }
    let (last, fault) = writer.finish(work == Work::Aborted);
    for item in last.map(Ok).into_iter().chain(fault.map(Err)) {
        send(item);
    }
    seated.finished = true;
}

/// Ends the task of a request when its stream is dropped.
pub(super) struct Canceller {
    inner: Arc<Inner>,
    task: JoinHandle<()>,
    ended: AtomicBool,
}

impl Canceller {
    pub(super) fn new(inner: Arc<Inner>, task: JoinHandle<()>) -> Self {
        Self { inner, task, ended: AtomicBool::new(false) }
    }

    /// Whether the stream has given its last item.
    pub(super) fn ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Relaxed) && !self.task.is_finished() {
            self.inner.gate.cancelled();
            self.task.abort();
        }
    }
}
