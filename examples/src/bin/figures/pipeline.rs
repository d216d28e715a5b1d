//! The chain behind every figure and table, on a scripted engine in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anabranch::prelude::*;
use anabranch::sim::{HashChain, Reply, Sim};
use anabranch::{Event, EventKind, Fields, Granularity, Group, GroupId, Journal, MemoryJournal, tokio_clock};
use anyhow::Result;
use tokio::time::{Instant, sleep, sleep_until};

/// A chain and the script of its engine.
#[derive(Copy, Clone)]
pub struct Setup {
    /// Number of prompts in the dataset.
    pub rows: u32,
    /// The script of each sample of a prompt.
    pub reply: fn(row: u32, sample: u32) -> Reply,
    /// When a prompt becomes available, since the start.
    pub arrival: fn(row: u32) -> Duration,
    /// Whether to filter groups whose samples all have the same length.
    pub spread: bool,
    pub samples: u32,
    pub in_flight: usize,
    pub granularity: Granularity,
    /// Number of groups that the buffer holds; without a buffer the chain is synchronous.
    pub capacity: Option<usize>,
    pub limit: u64,
    pub batch: usize,
    pub training: Duration,
    pub installation: Duration,
    /// Number of training steps between publications.
    pub interval: u64,
    /// After this many training steps the chain is dropped.
    pub steps: usize,
}

/// The result of a run: its log, its completed groups, and its length.
pub struct Recording {
    pub events: Vec<Event>,
    pub groups: BTreeMap<GroupId, Group>,
    pub makespan: Duration,
}

/// Runs the chain on a clock of its own.
pub fn record(setup: Setup) -> Result<Recording> {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(run(setup))
}

async fn run(setup: Setup) -> Result<Recording> {
    let journal = Arc::new(MemoryJournal::new());
    let run = Run::builder("figures").journal(journal.clone()).clock(tokio_clock()).open()?;
    let engine = Sim::scripted(move |call| (setup.reply)(call.request.tokens[0], call.request.key.sample));
    let engine = engine.install_time(setup.installation);
    let learner = run.restore(HashChain::new(0))?;
    let dataset = Dataset::new("d", (0..setup.rows).map(|row| (vec![row], Fields::new())).collect())?;
    let began = Instant::now();
    let groups = run
        .prompts(dataset)
        .then(move |lease| async move {
            if let Ok(lease) = &lease {
                sleep_until(began + (setup.arrival)(lease.id().prompt.row as u32)).await;
            }
            lease
        })
        .generate(&engine, InFlight::groups(setup.in_flight), Samples(setup.samples))
        .granularity(setup.granularity)
        .score(|response| response.response().len() as u32)
        .admit("spread", move |group| !setup.spread || group.reward_spread() > 0.0)
        .log(&run);
    let groups = match setup.capacity {
        Some(capacity) => groups.buffer(Capacity::groups(capacity)).boxed(),
        None => groups.boxed(),
    };
    groups
        .fresh(MaxStaleness(setup.limit))
        .batch(setup.batch)
        // The scripted training time passes here, because paused time does not advance while the learner's thread runs.
        .then(move |batch| async move {
            sleep(setup.training).await;
            batch
        })
        .train(learner)
        .publish_every(setup.interval, &engine)
        .take(setup.steps)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let makespan = began.elapsed();
    let events = journal.events();
    let completed = events.iter().filter_map(|event| match &event.kind {
        EventKind::Completed { id, .. } => Some(id.clone()),
        _ => None,
    });
    let groups = completed.map(|id| Ok((id.clone(), journal.payload(&id)?))).collect::<Result<_>>()?;
    Ok(Recording { events, groups, makespan })
}

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
