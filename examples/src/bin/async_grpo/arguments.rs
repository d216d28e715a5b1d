//! The flags of the demo.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};

/// Asynchronous GRPO of a tiny decoder on the sort4 task, logged and resumable.
///
/// A killed run goes on where it was when the same command is given again.
#[derive(Debug, Parser)]
#[command(name = "async_grpo")]
pub struct Arguments {
    /// Training steps, those of earlier sessions included
    #[arg(long, default_value_t = 240, value_parser = positive::<u64>)]
    pub steps: u64,
    /// Groups in a batch
    #[arg(long, default_value_t = 64, value_parser = positive::<usize>)]
    pub batch: usize,
    /// Samples of each prompt
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..))]
    pub group_size: u32,
    /// Groups in generation at once
    #[arg(long, default_value_t = 32, value_parser = positive::<usize>)]
    pub in_flight: usize,
    /// Complete groups the buffer holds
    #[arg(long, default_value_t = 32, value_parser = positive::<usize>)]
    pub capacity: usize,
    /// Largest version gap to train on
    #[arg(long, default_value_t = 1)]
    pub max_staleness: u64,
    /// Training steps between publications
    #[arg(long, default_value_t = 1, value_parser = positive::<u64>)]
    pub update_interval: u64,
    /// What becomes of the samples in flight when weights are published
    #[arg(long, alias = "in-flight-mode", value_enum, default_value_t = InFlightSamples::Retract)]
    pub weight_sync: InFlightSamples,
    /// What becomes of the prompts of stale and aborted groups
    #[arg(long, value_enum, default_value_t = UnusedPrompts::Retry)]
    pub unused: UnusedPrompts,
    /// Training steps between checkpoints
    #[arg(long, default_value_t = 20, value_parser = positive::<u64>)]
    pub checkpoint_every: u64,
    /// Seed of weights, shuffling and sampling
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where to compute: auto takes CUDA where it answers, else wgpu
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Directory of the run: created, or resumed
    #[arg(long, default_value = "runs/demo")]
    pub run_dir: PathBuf,
    /// Training prompts, JSON Lines
    #[arg(long, default_value = "datasets/sort4.jsonl")]
    pub train: PathBuf,
    /// Held-out prompts, JSON Lines
    #[arg(long, default_value = "datasets/sort4-held-out.jsonl")]
    pub held_out: PathBuf,
    /// The synchronous schedule, for comparison: the same chain without its buffer
    #[arg(long)]
    pub sync: bool,
    /// Go on with a run whose recorded settings or dataset differ
    #[arg(long)]
    pub accept_changes: bool,
}

/// What becomes of the samples in flight when weights are published.
#[derive(Copy, Clone, Debug, ValueEnum)]
pub enum InFlightSamples {
    /// They go on after it, their KV cache computed anew
    Retract,
    /// They go on after it with the KV cache they have
    InPlace,
    /// It waits for them
    Drain,
    /// They end aborted
    Abort,
}

/// What becomes of the prompts of stale and aborted groups.
#[derive(Copy, Clone, Debug, ValueEnum)]
pub enum UnusedPrompts {
    /// Nothing
    Drop,
    /// They are leased again, up to three times in all
    Retry,
}

fn positive<T: FromStr + PartialEq + Default>(text: &str) -> Result<T, String> {
    match text.parse() {
        Ok(count) if count == T::default() => Err("must be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("expected a whole number, at least 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_refused_with_their_flag() {
        for (flag, value) in [("--steps", "0"), ("--group-size", "1"), ("--capacity", "x"), ("--unused", "keep")] {
            let error = Arguments::try_parse_from(["async_grpo", flag, value]).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
        assert!(Arguments::try_parse_from(["async_grpo", "--max-staleness", "0", "--sync"]).is_ok());
    }
}
