//! The engine's thread: it takes commands and runs passes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};

use anabranch_core::{EngineError, Version, WeightSync};
use anabranch_kernels::{Device, Tensor, elementwise};
use cubecl::Runtime;

use super::scheduler::Scheduler;
use super::{Command, EngineOptions, Published, Reply};
use crate::config::Config;
use crate::device::{OnDevice, panic_text};
use crate::error::PolicyError;
use crate::model::{KvSlots, Model};
use crate::policy::Policy;
use crate::weights::Weights;

/// Starts the engine's thread; it ends when the last sender of commands is gone.
pub(super) fn spawn(
    policy: &Policy,
    options: EngineOptions,
    commands: Receiver<Command>,
    state: Arc<Published>,
) -> Result<(), PolicyError> {
    let (device, config) = (policy.device(), policy.config().clone());
    let body = move || {
        let failure = state.clone();
        let work = Start { config, options, commands, state };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| device.run(work))) {
            let _ = failure.failure.set(panic_text(panic.as_ref()).to_string());
        }
    };
    let thread = std::thread::Builder::new().name("anabranch-engine".into());
    match thread.spawn(body) {
        Ok(_) => Ok(()),
        Err(error) => Err(PolicyError::Runtime { action: "starting the engine's thread", reason: error.to_string() }),
    }
}

struct Start {
    config: Arc<Config>,
    options: EngineOptions,
    commands: Receiver<Command>,
    state: Arc<Published>,
}

impl OnDevice for Start {
    type Output = ();

    fn run<R: Runtime>(self, device: Device<R>) {
        let model = Model::new(&device, &self.config);
        let max_len = self.options.max_len.unwrap_or(self.config.max_positions);
        let slots = self.options.slots;
        Worker {
            kv: KvSlots::new(&model, slots, max_len),
            scheduler: Scheduler::new(slots, max_len, self.options.rows_per_pass, self.config.vocab),
            model,
            installed: None,
            spare: None,
            paused: false,
            draining: Vec::new(),
            state: self.state,
        }
        .run(&self.commands);
    }
}

struct Worker<R: Runtime> {
    model: Model<R>,
    kv: KvSlots<R>,
    scheduler: Scheduler,
    /// The weights that generate, and their version.
    installed: Option<(Tensor<R>, Version)>,
    /// The second set, into which the next installation copies.
    spare: Option<Tensor<R>>,
    paused: bool,
    /// The replies that wait until no request runs.
    draining: Vec<Reply>,
    state: Arc<Published>,
}

impl<R: Runtime> Worker<R> {
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            let idle =
                self.paused && self.draining.is_empty() || self.scheduler.running() + self.scheduler.waiting() == 0;
            if idle {
                match commands.recv() {
                    Ok(command) => self.obey(command),
                    Err(_) => return,
                }
            }
            loop {
                match commands.try_recv() {
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => break,
                    // Each stream keeps a sender, so no stream is left either. No request needs an answer any more.
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.turn();
            self.publish_state();
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Generate(request, output) => self.scheduler.submit(request, output),
            Command::Pause(mode, reply) => self.pause(mode, reply),
            Command::Install(weights, version, reply) => {
                let _ = reply.send(self.install(&weights, version));
            }
            Command::Resume(reply) => {
                self.paused = false;
                for drained in self.draining.drain(..) {
                    let resumed = "generation was resumed before it had drained".to_string();
                    let _ = drained.send(Err(EngineError::transient(resumed)));
                }
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn pause(&mut self, mode: WeightSync, reply: Reply) {
        self.paused = true;
        if let Some((_, version)) = self.installed {
            self.scheduler.flush(version);
            match mode {
                WeightSync::Retract => self.scheduler.retract(),
                WeightSync::Abort => self.scheduler.abort(version, "publication"),
                WeightSync::Drain | WeightSync::InPlace => {}
            }
        }
        if mode == WeightSync::Drain {
            self.draining.push(reply);
        } else {
            let _ = reply.send(Ok(()));
        }
        self.answer_drained();
    }

    fn answer_drained(&mut self) {
        if self.scheduler.running() == 0 {
            for reply in self.draining.drain(..) {
                let _ = reply.send(Ok(()));
            }
        }
    }

    /// Copies the weights into the second set, device to device, and swaps the sets.
    fn install(&mut self, weights: &Weights, version: Version) -> Result<(), EngineError> {
        if !self.paused && self.scheduler.running() > 0 {
            let problem = "weights can be installed only between pause and resume";
            return Err(EngineError::fatal(problem));
        }
        let len = self.model.layout().len();
        let source = weights.tensor::<R>().filter(|tensor| tensor.len() == len);
        let Some(source) = source else {
            let problem = "the weights are of another model or live on another device";
            return Err(EngineError::fatal(problem));
        };
        let device = self.model.device();
        let target = self.spare.take().unwrap_or_else(|| device.empty(&[len]));
        elementwise::copy(device, source, &target);
        self.scheduler.carry();
        self.spare = self.installed.replace((target, version)).map(|(old, _)| old);
        Ok(())
    }

    /// One pass through the model, unless generation is paused.
    fn turn(&mut self) {
        self.scheduler.drop_cancelled();
        if self.paused && self.draining.is_empty() {
            return;
        }
        let Some((parameters, version)) = &self.installed else {
            if !self.paused {
                let problem = "no weights are installed: publish once before generating";
                self.scheduler.refuse_waiting(&EngineError::fatal(problem));
            }
            return;
        };
        if !self.paused {
            self.scheduler.admit();
        }
        let plan = self.scheduler.plan();
        if !plan.is_empty() {
            let sampled = match self.model.infer(parameters, &plan.rows, &self.kv) {
                Some(logits) => self.model.sample(&logits, &plan.settings),
                None => Vec::new(),
            };
            self.state.passes.fetch_add(1, Ordering::Relaxed);
            self.state.rows.fetch_add(plan.rows.tokens.len() as u64, Ordering::Relaxed);
            self.state.tokens.fetch_add(sampled.len() as u64, Ordering::Relaxed);
            self.scheduler.deliver(&plan, &sampled, *version);
        }
        self.answer_drained();
    }

    fn publish_state(&self) {
        self.state.running.store(self.scheduler.running() as u64, Ordering::Relaxed);
        self.state.waiting.store(self.scheduler.waiting() as u64, Ordering::Relaxed);
    }
}
