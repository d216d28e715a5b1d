//! One sample while it is being generated.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Run;
use anabranch_core::{
    Chunk, Engine, EngineError, EngineErrorKind, Finish, Request, Sample, SampleTimes, Sampling, SamplingKey, Spans,
    Status,
};
use futures::StreamExt;
use parking_lot::Mutex;

/// The reaction to a transient fault.
#[derive(Copy, Clone, Debug)]
pub(super) struct Retries {
    /// How often a request is retried.
    pub(super) limit: u32,
    /// The wait before the first retry; it doubles with each retry.
    pub(super) backoff: Duration,
}

/// Why a sample ended early.
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// The sample is aborted for this cause.
    Aborted(String),
    /// The engine is broken.
    Fatal(EngineError),
}

impl Stop {
    /// The message for the user.
    pub(super) fn cause(self) -> String {
        match self {
            Self::Aborted(cause) => cause,
            Self::Fatal(error) => error.to_string(),
        }
    }
}

/// The identity of a sample: it names the requests and seeds the random draws.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The run and the lease.
    pub(super) group: Arc<str>,
    pub(super) key: SamplingKey,
}

impl Place {
    /// The name of the request of a turn. The first turn is 0; later turns have their number in the name.
    fn request(&self, turn: u32) -> String {
        let mut name = String::with_capacity(self.group.len() + 8);
        name.push_str(&self.group);
        // Writing to a string cannot fail.
        let _ = write!(name, "/{}", self.key.sample);
        if turn > 0 {
            let _ = write!(name, "/{turn}");
        }
        name
    }
}

/// An unfinished sample: its tokens so far, with their log-probs, masks and spans.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) tokens: Vec<u32>,
    prompt_len: usize,
    loss_mask: Vec<bool>,
    logprobs: Vec<f32>,
    truncated: Option<Vec<f32>>,
    spans: Spans,
    times: SampleTimes,
    pub(super) reward: Option<f64>,
    /// How the last turn ended.
    pub(super) finish: Finish,
    pub(super) stop: Option<Stop>,
}

impl Draft {
    /// The buffer of a new sample: the tokens of its prompt, and room for a short response.
    pub(super) fn tokens(prompt: &[u32]) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(prompt.len() + 16);
        tokens.extend_from_slice(prompt);
        tokens
    }

    pub(super) fn new(prompt: Vec<u32>, now: u64) -> Self {
        Self {
            prompt_len: prompt.len(),
            tokens: prompt,
            loss_mask: Vec::new(),
            logprobs: Vec::new(),
            truncated: None,
            spans: Spans::new(),
            times: SampleTimes { submitted: Some(now), ..SampleTimes::default() },
            reward: None,
            finish: Finish::Stop,
            stop: None,
        }
    }

    /// How many tokens the policy generated.
    pub(super) fn generated(&self) -> usize {
        self.logprobs.len()
    }

    fn push(&mut self, chunk: Chunk, now: u64) {
        let tokens = chunk.tokens.len();
        if tokens > 0 {
            self.times.first_token.get_or_insert(now);
        }
        self.tokens.extend_from_slice(&chunk.tokens);
        self.loss_mask.extend(std::iter::repeat_n(true, tokens));
        // If nothing was cut off, the truncated distribution is the whole one.
        match (&mut self.truncated, &chunk.truncated_logprobs) {
            (Some(truncated), more) => truncated.extend_from_slice(more.as_ref().unwrap_or(&chunk.logprobs)),
            (None, Some(first)) => self.truncated = Some([&self.logprobs, first.as_slice()].concat()),
            (None, None) => {}
        }
        if self.logprobs.is_empty() {
            self.logprobs = chunk.logprobs;
        } else {
            self.logprobs.extend_from_slice(&chunk.logprobs);
        }
        self.spans.push(tokens as u32, chunk.version, chunk.kv_carried);
    }

    /// Adds tokens that the policy did not generate.
    pub(super) fn observe(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        self.loss_mask.extend(std::iter::repeat_n(false, tokens.len()));
    }

    /// Removes the last `tokens` tokens, which must be generated ones.
    pub(super) fn take_back(&mut self, tokens: usize) {
        let generated = self.generated() - tokens;
        self.tokens.truncate(self.tokens.len() - tokens);
        self.loss_mask.truncate(self.loss_mask.len() - tokens);
        self.logprobs.truncate(generated);
        self.truncated.iter_mut().for_each(|truncated| truncated.truncate(generated));
        self.spans.clamp(generated as u32);
    }

    pub(super) fn end(self, status: Status, cause: Option<String>, now: u64) -> Sample {
        Sample {
            tokens: self.tokens,
            prompt_len: self.prompt_len as u32,
            loss_mask: self.loss_mask,
            logprobs: self.logprobs,
            truncated_logprobs: self.truncated,
            spans: self.spans.into_vec(),
            reward: self.reward,
            status,
            cause,
            times: SampleTimes { ended: Some(now), ..self.times },
        }
    }
}

/// What the requests of all samples need.
#[derive(Debug)]
pub(super) struct Client<E> {
    pub(super) engine: E,
    pub(super) run: Run,
    pub(super) sampling: Sampling,
    pub(super) retries: Retries,
    /// How long a group may take.
    pub(super) timeout: Option<Duration>,
    /// The generation time of the last chunk of any sample, if a watchdog needs it.
    pub(super) progress: Option<Arc<AtomicU64>>,
}

impl<E: Engine> Client<E> {
    /// Runs one turn: continues the tokens of `draft` with the settings `sampling`. Transient faults are retried with
    /// back-off, from the tokens that already exist. If the retries run out, the sample is aborted. If submissions are
    /// closed, the turn waits.
    ///
    /// # Errors
    /// Returns the reason if the sample cannot continue; `draft` records it too.
    pub(super) async fn turn(
        &self,
        draft: &Mutex<Draft>,
        place: &Place,
        turn: u32,
        sampling: &Sampling,
    ) -> Result<Finish, Stop> {
        let stopped = |stop: Stop| {
            draft.lock().stop = Some(stop.clone());
            Err(stop)
        };
        let begun = draft.lock().generated();
        let (mut faults, mut fault) = (0, None);
        loop {
            let request = {
                let mut draft = draft.lock();
                let generated = draft.generated();
                let max_tokens = sampling.max_tokens.saturating_sub((generated - begun) as u32);
                if max_tokens == 0 {
                    draft.finish = Finish::Length;
                    return Ok(Finish::Length);
                }
                Request {
                    id: place.request(turn),
                    tokens: draft.tokens.clone(),
                    position: generated as u32,
                    sampling: Sampling { max_tokens, ..sampling.clone() },
                    key: place.key,
                }
            };
            if let Some(fault) = fault.take().filter(|_| faults > self.retries.limit) {
                return stopped(Stop::Aborted(format!("engine, after {} retries: {fault}", self.retries.limit)));
            }
            if faults > 0 {
                let doubled = 1 << (faults - 1).min(16);
                tokio::time::sleep(self.retries.backoff.saturating_mul(doubled)).await;
            }
            match self.request(draft, request).await {
                Ok(Finish::Abort { cause }) => return stopped(Stop::Aborted(cause)),
                Ok(finish) => {
                    draft.lock().finish = finish.clone();
                    return Ok(finish);
                }
                Err(error) if error.kind == EngineErrorKind::Transient => fault = Some(error.message),
                Err(fatal) => return stopped(Stop::Fatal(fatal)),
            }
            faults += 1;
        }
    }

    async fn request(&self, draft: &Mutex<Draft>, request: Request) -> Result<Finish, EngineError> {
        let _running = self.run.submit().await;
        let mut chunks = self.engine.generate(request);
        while let Some(chunk) = chunks.next().await {
            let mut chunk = chunk?;
            if let Some(progress) = &self.progress {
                progress.store(self.run.generation_time(), Ordering::Relaxed);
            }
            let finish = chunk.finish.take();
            draft.lock().push(chunk, self.run.now());
            if let Some(finish) = finish {
                return Ok(finish);
            }
        }
        Err(EngineError::transient("its stream ended without a finish"))
    }
}
