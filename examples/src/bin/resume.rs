//! Starts a training process, kills it with SIGKILL, and resumes its run. The log shows that no group was trained
//! twice.
//!
//! The process may make more steps before it dies than it printed. A step after the last checkpoint is made again from
//! the batch in the log.
//!
//! ```text
//! session 0
//! step  1
//! step  2
//! step  3
//! killed
//! session 1
//! step  5, again from the log
//! step  6, again from the log
//! step  7
//! step  8
//! step  9
//! step 10
//! 20 groups trained, 0 of them twice
//! ```

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anabranch::prelude::*;
use anabranch::sim::{HashChain, Sim};
use anabranch::{Event, EventKind, Fields, GroupId, ReadLog};

/// Begins or resumes the run in `dir`, and trains until the dataset is used up.
async fn train(dir: &Path) -> anyhow::Result<()> {
    let run = RunLog::open(dir, Durability::Process)?;
    println!("session {}", run.found().session);
    let engine = Sim::fixed(4, Duration::from_millis(5));
    let rows = (0..20).map(|row| (vec![row], Fields::new())).collect();

    let mut steps = run
        .prompts(Dataset::new("numbers", rows)?)
        .generate(&engine, InFlight::groups(2), Samples(2))
        .score(|response| f64::from(response.sample.tokens[0]))
        .log(&run)
        .buffer(Capacity::groups(4))
        .batch(2)
        .train(run.restore(HashChain::new(1))?)
        .checkpoint_every(2)
        .publish_every(1, &engine);

    while let Some(step) = steps.try_next().await? {
        println!("step {:>2}{}", step.step.0, if step.replayed { ", again from the log" } else { "" });
    }
    drop(steps);
    run.close()?;
    Ok(())
}

/// Trains in another process, and kills it when it has printed `line`.
fn kill_after(line: &str, dir: &Path) -> anyhow::Result<()> {
    let mut child = Command::new(std::env::current_exe()?).arg(dir).stdout(Stdio::piped()).spawn()?;
    for printed in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let printed = printed?;
        println!("{printed}");
        if printed == line {
            break;
        }
    }
    child.kill()?; // SIGKILL
    child.wait()?;
    println!("killed");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if let Some(dir) = std::env::args_os().nth(1) {
        return train(Path::new(&dir)).await;
    }
    let dir = tempfile::tempdir()?;
    kill_after("step  3", dir.path())?;
    train(dir.path()).await?;

    let events: Vec<Event> = ReadLog::open(dir.path())?.events().collect::<Result<_, _>>()?;
    let batches = events.iter().filter_map(|event| match &event.kind {
        EventKind::BatchTaken { groups, .. } => Some(groups),
        _ => None,
    });
    let trained: Vec<&GroupId> = batches.flatten().map(|taken| &taken.id).collect();
    let distinct: BTreeSet<_> = trained.iter().collect();
    println!("{} groups trained, {} of them twice", trained.len(), trained.len() - distinct.len());
    Ok(())
}
