//! What drives a sample through several turns.

use std::sync::Arc;

use anabranch_core::{Engine, Finish, Sampling};
use parking_lot::Mutex;

use super::sample::{Client, Draft, Place};

/// One sample in the hands of the user: turns of the policy, tokens of its environment, a reward. See
/// [`generate_with`](crate::RolloutExt::generate_with).
///
/// Tokens of the policy get log-probs and version spans, tokens of the environment are masked. The sample ends when the
/// closure returns: completed, or truncated where its last turn met its token limit; failed where the closure returned an
/// error; aborted where the engine gave it up.
#[derive(Debug)]
pub struct Session<E> {
    pub(super) client: Arc<Client<E>>,
    pub(super) draft: Arc<Mutex<Draft>>,
    pub(super) place: Place,
    pub(super) sampling: Sampling,
    pub(super) turns: u32,
    /// Generated tokens of the last turn that nothing has followed yet.
    pub(super) last_turn: usize,
}

/// What the policy said in one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The tokens, in order; a stop token is the last of them.
    pub tokens: Vec<u32>,
    /// How it ended: at a stop token or at the token limit.
    pub finish: Finish,
}

/// The sample gets no further: return from the closure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sample was given up: {cause}")]
pub struct Stopped {
    /// Why.
    pub cause: String,
}

impl<E: Engine> Session<E> {
    pub(super) fn new(client: Arc<Client<E>>, draft: Draft, place: Place) -> Self {
        let sampling = client.sampling.clone();
        Self { client, draft: Arc::new(Mutex::new(draft)), place, sampling, turns: 0, last_turn: 0 }
    }

    /// Which sample of its group, from 0.
    pub fn sample(&self) -> u32 {
        self.place.key.sample
    }

    /// All tokens so far: the prompt's, the policy's and the environment's.
    pub fn tokens(&self) -> Vec<u32> {
        self.draft.lock().tokens.clone()
    }

    /// How the turns after this are drawn; `max_tokens` bounds each turn. Begins as the operator's
    /// [`sampling`](crate::Generate::sampling) says.
    pub fn sampling(&mut self) -> &mut Sampling {
        &mut self.sampling
    }

    /// Lets the policy continue all tokens so far, under whatever version is installed when each token is sampled.
    /// Waits while submissions are closed. Transient faults of the engine are retried with back-off.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request; tokens that came are part of the sample.
    ///
    /// # Errors
    /// [`Stopped`] where the engine aborted the request, its retries are used up, or it failed for good. Whatever the
    /// closure returns then, the sample is aborted, or the pipeline ends with the engine's error.
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

    /// Keeps only the first `tokens` tokens of the last turn: where the visible text ends before what was sampled, at a
    /// tool call's end for instance. Spans and log-probs are cut with it. Nothing happens where the turn was no longer,
    /// or the environment has answered it.
    pub fn keep(&mut self, tokens: usize) {
        let cut = self.last_turn.saturating_sub(tokens);
        self.draft.lock().take_back(cut);
        self.last_turn -= cut;
    }

    /// Sets the sample's reward, for environments that give it themselves. A `score` after it gives another.
    pub fn reward(&mut self, reward: f64) {
        self.draft.lock().reward = Some(reward);
    }
}
