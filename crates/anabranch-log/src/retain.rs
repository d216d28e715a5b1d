//! Retention: a thread of its own drops payloads that are sealed and that no kept checkpoint needs.
//!
//! A payload goes once the event that settled its group, a batch or an exclusion, is not after the batch of the oldest of
//! the last checkpoints, and is sealed. What is in the buffer or on its way to it stays, and so does every batch that
//! training from one of these checkpoints would take again. Checkpoint 0 is kept too, but whatever falls back to it reads
//! what was dropped out of the segments.

use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anabranch_core::Seq;

use crate::SealError;
use crate::write::Store;

/// How many groups make a round worthwhile.
const ROUND: usize = 256;
/// How long fewer of them wait at most.
const ROUND_EVERY: Duration = Duration::from_mins(1);
/// The most groups dropped in one commit, about.
const AT_ONCE: usize = 1 << 16;

/// The thread that drops payloads.
#[derive(Debug)]
pub(crate) struct Retention {
    sealed: mpsc::Sender<u64>,
    thread: JoinHandle<()>,
}

/// What it works on.
struct Rounds {
    store: Arc<Store>,
    /// The payloads of groups settled before this event are dropped.
    next: Seq,
    last: Instant,
}

impl Retention {
    /// Starts it; the payloads of groups settled before `next` are dropped already.
    pub(crate) fn start(thread: Builder, store: Arc<Store>, next: Seq) -> std::io::Result<Self> {
        let (sealed, progress) = mpsc::channel();
        let rounds = Rounds { store, next, last: Instant::now() };
        Ok(Self { sealed, thread: thread.spawn(move || rounds.run(&progress))? })
    }

    /// The first `events` events are sealed.
    pub(crate) fn sealed(&self, events: u64) {
        // It has ended where it failed, which it has traced.
        let _ = self.sealed.send(events);
    }

    /// Waits for the last round.
    pub(crate) fn finish(self) {
        drop(self.sealed);
        if self.thread.join().is_err() {
            tracing::error!("the thread that drops payloads panicked; all are in the log or in the segments");
        }
    }
}

impl Rounds {
    fn run(mut self, progress: &mpsc::Receiver<u64>) {
        let mut sealed = 0;
        loop {
            let closing = match progress.recv() {
                Ok(events) => {
                    sealed = progress.try_iter().last().unwrap_or(events);
                    false
                }
                Err(mpsc::RecvError) => true,
            };
            if let Err(error) = self.round(sealed, closing) {
                self.store.forget_completions();
                tracing::error!(%error, "payloads could not be dropped; the log keeps them until it is opened again");
                return;
            }
            if closing {
                return;
            }
        }
    }

    /// Drops what may go, if that is enough to be worthwhile, or `anyway`.
    fn round(&mut self, sealed: u64, anyway: bool) -> Result<(), SealError> {
        let Some(taken) = self.store.checkpoints.oldest_kept().and_then(|cursor| cursor.taken) else { return Ok(()) };
        let end = Seq(sealed.min(taken.0 + 1));
        let mut dropped = false;
        while self.next < end {
            let (mut keys, before) =
                self.store.with_database(|database| database.settled(self.next, end, AT_ONCE))??;
            let worthwhile = anyway || keys.len() >= ROUND || self.last.elapsed() >= ROUND_EVERY;
            if !worthwhile && !dropped {
                return Ok(());
            }
            let appended = self.store.note_completions();
            self.store.wait_written(appended)?;
            // A group adopted again under its old name has a new payload, which is not settled.
            self.store.with_database(|database| database.keep_completed(&mut keys, before, Seq(appended)))??;
            self.store.drop_payloads(&keys, before)?;
            (self.next, dropped) = (before, true);
        }
        if dropped {
            let reclaimed = self.store.with_database(crate::database::Database::reclaim)?;
            reclaimed.map_err(|error| self.store.poison("reclaiming room in", &error))?;
            self.last = Instant::now();
        }
        Ok(())
    }
}
