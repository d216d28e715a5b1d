//! One sample: its request, the chunks that come, and its retries.

use std::time::Duration;

use anabranch_core::{Chunk, Engine, EngineError, Finish, Request, Run, Sample, SampleTimes, Spans, Status};
use futures::StreamExt;

/// What happens after a transient fault.
#[derive(Copy, Clone, Debug)]
pub(super) struct Retries {
    /// How often a sample is tried again.
    pub(super) limit: u32,
    /// The wait before the first of them; it doubles with each.
    pub(super) backoff: Duration,
}

/// A sample while it is generated.
struct Draft {
    request: Request,
    prompt_len: usize,
    max_tokens: u32,
    loss_mask: Vec<bool>,
    logprobs: Vec<f32>,
    truncated: Option<Vec<f32>>,
    spans: Spans,
    times: SampleTimes,
}

impl Draft {
    fn new(request: Request, now: u64) -> Self {
        Self {
            prompt_len: request.tokens.len(),
            max_tokens: request.sampling.max_tokens,
            loss_mask: Vec::new(),
            logprobs: Vec::new(),
            truncated: None,
            spans: Spans::new(),
            times: SampleTimes { submitted: Some(now), ..SampleTimes::default() },
            request,
        }
    }

    /// Adds a chunk; what the request continues grows with it, so that a retry goes on where the fault struck.
    fn push(&mut self, chunk: &Chunk, now: u64) {
        let tokens = chunk.tokens.len();
        if tokens > 0 {
            self.times.first_token.get_or_insert(now);
        }
        self.request.tokens.extend_from_slice(&chunk.tokens);
        self.request.position += tokens as u32;
        self.request.sampling.max_tokens = self.max_tokens.saturating_sub(self.request.position);
        self.loss_mask.extend(std::iter::repeat_n(true, tokens));
        self.logprobs.extend_from_slice(&chunk.logprobs);
        if let Some(truncated) = &chunk.truncated_logprobs {
            self.truncated.get_or_insert_default().extend_from_slice(truncated);
        }
        self.spans.push(tokens as u32, chunk.version, chunk.kv_carried);
    }

    fn finish(mut self, finish: Finish, now: u64) -> Sample {
        let (status, cause) = match finish {
            Finish::Stop => (Status::Completed, None),
            Finish::Length => (Status::Truncated, None),
            Finish::Abort { cause } => (Status::Aborted, Some(cause)),
        };
        self.times.ended = Some(now);
        Sample {
            tokens: self.request.tokens,
            prompt_len: self.prompt_len as u32,
            loss_mask: self.loss_mask,
            logprobs: self.logprobs,
            truncated_logprobs: self.truncated,
            spans: self.spans.into_vec(),
            reward: None,
            status,
            cause,
            times: self.times,
        }
    }
}

/// Generates one sample. Transient faults are retried with back-off from the tokens already there; past the limit the
/// sample is aborted.
///
/// # Errors
/// The engine's fatal fault.
pub(super) async fn generate_sample<E: Engine>(
    engine: E,
    run: Run,
    request: Request,
    retries: Retries,
) -> Result<Sample, EngineError> {
    let mut draft = Draft::new(request, run.now());
    let mut faults = 0;
    loop {
        if draft.request.sampling.max_tokens == 0 && draft.max_tokens > 0 {
            return Ok(draft.finish(Finish::Length, run.now()));
        }
        let mut chunks = engine.generate(draft.request.clone());
        let fault = loop {
            match chunks.next().await {
                Some(Ok(chunk)) => {
                    draft.push(&chunk, run.now());
                    if let Some(finish) = chunk.finish {
                        return Ok(draft.finish(finish, run.now()));
                    }
                }
                Some(Err(EngineError::Transient(fault))) => break fault,
                Some(Err(fatal)) => return Err(fatal),
                None => break "its stream ended without a finish".to_owned(),
            }
        };
        drop(chunks);
        if faults == retries.limit {
            let cause = format!("engine, after {faults} retries: {fault}");
            return Ok(draft.finish(Finish::Abort { cause }, run.now()));
        }
        tokio::time::sleep(retries.backoff.saturating_mul(1 << faults.min(16))).await;
        faults += 1;
    }
}
