//! The handle through which the user drives a sample of several turns.

use std::sync::Arc;

use anabranch_core::{Engine, Finish, Sampling};
use parking_lot::Mutex;

use super::sample::{Client, Draft, Place};

/// One sample that the user drives: turns of the policy, tokens of the environment, a reward. See
/// [`generate_with`](crate::RolloutExt::generate_with).
///
/// Tokens of the policy get log-probs and version spans; tokens of the environment are masked. The sample ends when the
/// closure returns. It is completed, or truncated if its last turn reached its token limit, failed if the closure
/// returned an error, or aborted if the engine gave up.
#[derive(Debug)]
pub struct Session<E> {
    pub(super) client: Arc<Client<E>>,
    pub(super) draft: Arc<Mutex<Draft>>,
    pub(super) place: Place,
    pub(super) sampling: Sampling,
    pub(super) turns: u32,
    /// Generated tokens at the end of the sample, which [`keep`](Self::keep) may cut.
    pub(super) last_turn: usize,
}

/// The policy's tokens of one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The tokens in order. If there is a stop token, it is the last one.
    pub tokens: Vec<u32>,
    /// How the turn ended: at a stop token or at the token limit.
    pub finish: Finish,
}

/// The sample cannot continue: return from the closure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sample was given up: {cause}")]
pub struct Stopped {
    /// The cause.
    pub cause: String,
}

impl<E: Engine> Session<E> {
    pub(super) fn new(client: Arc<Client<E>>, draft: Draft, place: Place) -> Self {
        let sampling = client.sampling.clone();
        Self { client, draft: Arc::new(Mutex::new(draft)), place, sampling, turns: 0, last_turn: 0 }
    }

    /// The index of the sample in its group, from 0.
    pub fn sample(&self) -> u32 {
        self.place.key.sample
    }

    /// All tokens so far: the prompt's, the policy's and the environment's.
    pub fn tokens(&self) -> Vec<u32> {
        self.draft.lock().tokens.clone()
    }

    /// The sampling settings of the following turns; `max_tokens` limits each turn. The initial value is the operator's
    /// [`sampling`](crate::Generate::sampling).
    pub fn sampling(&mut self) -> &mut Sampling {
        &mut self.sampling
    }

    /// Lets the policy continue the tokens so far. Each token is sampled by the version installed at that moment. Waits
    /// while submissions are closed. Transient faults of the engine are retried with back-off.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request. Tokens that have arrived are part of the sample.
    ///
    /// # Errors
    /// [`Stopped`] if the engine aborted the request, the retries ran out, or the engine failed permanently. Whatever
    /// the closure then returns, the sample is aborted or the pipeline ends with the engine's error.
    pub async fn generate(&mut self) -> Result<Turn, Stopped> {
        let before = self.draft.lock().tokens.len();
        let turn = self.turns;
        self.turns += 1;
        let ended = self.client.turn(&self.draft, &self.place, turn, &self.sampling).await;
        let tokens = self.draft.lock().tokens[before..].to_vec();
        self.last_turn = tokens.len();
        match ended {
            Ok(finish) => Ok(Turn { tokens, finish }),
            Err(stop) => Err(Stopped { cause: stop.cause() }),
        }
    }

    /// Appends tokens that the policy did not generate: a tool's answer, the next question. They are masked in the loss.
    pub fn observe(&mut self, tokens: &[u32]) {
        self.draft.lock().observe(tokens);
        self.last_turn = 0;
    }

    /// Keeps only the first `tokens` tokens of the last turn, for example if you use only the text up to the end of a
    /// tool call. Spans and log-probs are cut too. Does nothing if the turn is not longer, or if environment tokens
    /// follow it.
    pub fn keep(&mut self, tokens: usize) {
        let cut = self.last_turn.saturating_sub(tokens);
        self.draft.lock().take_back(cut);
        self.last_turn -= cut;
    }

    /// Sets the reward of the sample, for environments that compute rewards. A later `score` overwrites it.
    pub fn reward(&mut self, reward: f64) {
        self.draft.lock().reward = Some(reward);
    }
}
