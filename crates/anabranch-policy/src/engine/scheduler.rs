//! The scheduler chooses which tokens go through the model next. It has the requests, slots and queue, and no device.

use std::collections::{HashMap, VecDeque};

use anabranch_core::{Chunk, EngineError, Finish, Request, SpanVersion, Version};
use anabranch_kernels::sample::{RowSettings, Sampled};

use super::Output;
use crate::model::InferenceRows;

/// How many tokens a chunk gathers. A chunk is also sent with the first token, and before weights change.
const CHUNK: usize = 16;

/// A request within the engine.
pub(super) struct Sequence {
    request: Request,
    output: Output,
    /// Prompt and generated tokens.
    tokens: Vec<u32>,
    /// Length at which generation ends.
    limit: usize,
    /// Tokens whose keys and values are in the slot.
    cached: usize,
    /// Whether any of those were computed by older weights.
    carried: bool,
    /// Generated tokens not sent yet.
    unsent: Unsent,
}

#[derive(Default)]
struct Unsent {
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    truncated: Vec<f32>,
}

/// One pass: its rows, and for each wanted row the slot it is for and how to sample.
#[derive(Default)]
pub(super) struct Plan {
    pub rows: InferenceRows,
    pub settings: Vec<RowSettings>,
    slots: Vec<usize>,
}

/// Requests in slots and in the queue.
pub(super) struct Scheduler {
    waiting: VecDeque<Sequence>,
    slots: Vec<Option<Sequence>>,
    /// Slots in the order in which their requests arrived.
    order: Vec<usize>,
    max_len: usize,
    rows_per_pass: usize,
    vocab: usize,
}

impl Scheduler {
    pub fn new(slots: usize, max_len: usize, rows_per_pass: usize, vocab: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            slots: (0..slots).map(|_| None).collect(),
            order: Vec::new(),
            max_len,
            rows_per_pass,
            vocab,
        }
    }

    pub fn running(&self) -> usize {
        self.order.len()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Queues a request, or refuses it through its own stream.
    pub fn submit(&mut self, request: Request, output: Output) {
        if let Some(fault) = self.fault(&request) {
            let error = EngineError::fatal(format!("request {}: {fault}", request.id));
            let _ = output.unbounded_send(Err(error));
            return;
        }
        let tokens = request.tokens.clone();
        let limit = tokens.len().saturating_add(request.sampling.max_tokens as usize);
        self.waiting.push_back(Sequence {
            limit: limit.min(self.max_len),
            request,
            output,
            tokens,
            cached: 0,
            carried: false,
            unsent: Unsent::default(),
        });
    }

    fn fault(&self, request: &Request) -> Option<String> {
        let (len, sampling) = (request.tokens.len(), &request.sampling);
        if len == 0 {
            return Some("expected at least one prompt token, found none: begin with a BOS token".into());
        }
        if len >= self.max_len && sampling.max_tokens > 0 {
            let max_len = self.max_len;
            return Some(format!("expected fewer prompt tokens than `max_len` ({max_len}), found {len}"));
        }
        if let Some(token) = request.tokens.iter().find(|token| **token as usize >= self.vocab) {
            return Some(format!("expected tokens below the vocabulary size {}, found {token}", self.vocab));
        }
        if !(sampling.temperature.is_finite() && sampling.temperature >= 0.0) {
            return Some(format!("expected a temperature of at least 0, found {}", sampling.temperature));
        }
        if let Some(top_p) = sampling.top_p.filter(|top_p| !(*top_p > 0.0 && *top_p <= 1.0)) {
            return Some(format!("expected top_p above 0 and at most 1, found {top_p}"));
        }
        None
    }

    /// Refuses all requests that wait.
    pub fn refuse_waiting(&mut self, error: &EngineError) {
        for sequence in self.waiting.drain(..) {
            let _ = sequence.output.unbounded_send(Err(error.clone()));
        }
    }

    /// Forgets requests whose stream was dropped.
    pub fn drop_cancelled(&mut self) {
        self.waiting.retain(|sequence| !sequence.output.is_closed());
        let slots = &mut self.slots;
        self.order.retain(|slot| {
            let keep = slots[*slot].as_ref().is_some_and(|sequence| !sequence.output.is_closed());
            if !keep {
                slots[*slot] = None;
            }
            keep
        });
    }

    /// Moves waiting requests into free slots in the order of their arrival.
    pub fn admit(&mut self) {
        let mut free = 0;
        while let Some(sequence) = self.waiting.front() {
            if sequence.tokens.len() >= sequence.limit {
                let mut sequence = self.waiting.pop_front().expect("there is a front");
                sequence.send(Version(0), Some(Finish::Length));
                continue;
            }
            let Some(slot) = (free..self.slots.len()).find(|slot| self.slots[*slot].is_none()) else {
                return;
            };
            self.slots[slot] = self.waiting.pop_front();
            self.order.push(slot);
            free = slot + 1;
        }
    }

    /// Returns running requests to the head of the queue. It keeps their tokens and drops their KV. Call
    /// [`flush`](Self::flush) first.
    pub fn retract(&mut self) {
        for slot in self.order.drain(..).rev() {
            if let Some(mut sequence) = self.slots[slot].take() {
                sequence.cached = 0;
                sequence.carried = false;
                self.waiting.push_front(sequence);
            }
        }
    }

    /// Ends running requests.
    pub fn abort(&mut self, version: Version, cause: &str) {
        for slot in self.order.drain(..) {
            if let Some(mut sequence) = self.slots[slot].take() {
                sequence.send(version, Some(Finish::Abort { cause: cause.into() }));
            }
        }
    }

    /// Marks the KV of running requests as computed by older weights.
    pub fn carry(&mut self) {
        for sequence in self.slots.iter_mut().flatten() {
            sequence.carried |= sequence.cached > 0;
        }
    }

    /// Sends every token that `version` generated and that was not sent yet.
    pub fn flush(&mut self, version: Version) {
        for sequence in self.slots.iter_mut().flatten() {
            if !sequence.unsent.tokens.is_empty() {
                sequence.send(version, None);
            }
        }
    }

    /// Builds the next pass: first the next token of every running request, then unread prompts while there is room.
    pub fn plan(&mut self) -> Plan {
        let mut plan = Plan::default();
        let mut room = self.rows_per_pass;
        // The first row of each whole prompt in this pass. Requests with the same prompt copy its KV.
        let mut prompts: HashMap<Vec<u32>, usize> = HashMap::new();
        for next_token_only in [true, false] {
            for slot in &self.order {
                let Some(sequence) = &mut self.slots[*slot] else { continue };
                let unread = sequence.tokens.len() - sequence.cached;
                if room == 0 || unread == 0 || (unread == 1) != next_token_only {
                    continue;
                }
                if sequence.cached == 0
                    && let Some(first) = prompts.get(&sequence.tokens)
                {
                    plan.copy(*first, *slot, sequence);
                    continue;
                }
                let count = unread.min(room);
                if sequence.cached == 0 && count == unread {
                    prompts.insert(sequence.tokens.clone(), plan.rows.tokens.len());
                }
                plan.read(*slot, sequence, count);
                room -= count;
            }
        }
        plan
    }

    /// Appends the sampled tokens, sends the chunks that are due, and frees the slots of requests that ended.
    pub fn deliver(&mut self, plan: &Plan, sampled: &[Sampled], version: Version) {
        for (slot, sampled) in plan.slots.iter().zip(sampled) {
            let Some(sequence) = &mut self.slots[*slot] else { continue };
            if sampled.token as usize >= self.vocab {
                sequence.fail("its logits are not finite: the installed weights are damaged");
                self.slots[*slot] = None;
            } else if sequence.accept(sampled, version) {
                self.slots[*slot] = None;
            }
        }
        let slots = &self.slots;
        self.order.retain(|slot| slots[*slot].is_some());
    }
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.rows.tokens.is_empty()
    }

    /// Reads the next `count` unread tokens of a sequence, and samples if they are its last.
    fn read(&mut self, slot: usize, sequence: &mut Sequence, count: usize) {
        for position in sequence.cached..sequence.cached + count {
            self.rows.tokens.push(sequence.tokens[position]);
            self.rows.slots.push(slot as u32);
            self.rows.positions.push(position as u32);
        }
        sequence.cached += count;
        if sequence.cached == sequence.tokens.len() {
            self.want(self.rows.tokens.len() - 1, slot, sequence);
        }
    }

    /// Copies the KV of a prompt that this pass reads from row `first` on, and samples after it.
    fn copy(&mut self, first: usize, slot: usize, sequence: &mut Sequence) {
        let len = sequence.tokens.len();
        self.rows.copies.extend((first..first + len).map(|row| (row as u32, slot as u32)));
        sequence.cached = len;
        self.want(first + len - 1, slot, sequence);
    }

    fn want(&mut self, row: usize, slot: usize, sequence: &Sequence) {
        self.rows.wanted.push(row as u32);
        self.slots.push(slot);
        self.settings.push(sequence.settings());
    }
}

impl Sequence {
    fn generated(&self) -> usize {
        self.tokens.len() - self.request.tokens.len()
    }

    fn settings(&self) -> RowSettings {
        let (key, sampling) = (self.request.key, &self.request.sampling);
        let position = self.request.position + self.generated() as u32;
        RowSettings {
            temperature: sampling.temperature,
            top_k: sampling.top_k.unwrap_or(0),
            top_p: sampling.top_p.unwrap_or(1.0),
            key: halves(key.seed),
            counter: [halves(key.lease)[0], halves(key.lease)[1], key.sample, position],
        }
    }

    fn fail(&mut self, problem: &str) {
        let error = EngineError::fatal(format!("request {}: {problem}", self.request.id));
        let _ = self.output.unbounded_send(Err(error));
    }

    /// Appends a token. Returns whether the request ends with it.
    fn accept(&mut self, sampled: &Sampled, version: Version) -> bool {
        let first = self.generated() == 0;
        self.tokens.push(sampled.token);
        self.unsent.tokens.push(sampled.token);
        self.unsent.logprobs.push(sampled.log_prob);
        self.unsent.truncated.push(sampled.log_prob_truncated);
        let finish = if self.request.sampling.stop.contains(&sampled.token) {
            Some(Finish::Stop)
        } else {
            (self.tokens.len() >= self.limit).then_some(Finish::Length)
        };
        let ended = finish.is_some();
        if ended || first || self.unsent.tokens.len() >= CHUNK {
            self.send(version, finish);
        }
        ended
    }

    fn send(&mut self, version: Version, finish: Option<Finish>) {
        let unsent = std::mem::take(&mut self.unsent);
        let sampling = &self.request.sampling;
        let truncating = sampling.top_k.is_some() || sampling.top_p.is_some();
        // If the receiver is gone, the request is cancelled. The next turn notices that.
        let _ = self.output.unbounded_send(Ok(Chunk {
            tokens: unsent.tokens,
            logprobs: unsent.logprobs,
            truncated_logprobs: truncating.then_some(unsent.truncated),
            version: SpanVersion::Exact(version),
            kv_carried: self.carried,
            finish,
        }));
    }
}

/// Returns the low half and the high half.
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}
