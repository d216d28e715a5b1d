//! The flags of the demo.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};

/// Train a tiny decoder on the sort4 task with asynchronous GRPO, and log the run.
///
/// If the run is killed, give the same command again to resume it.
#[derive(Debug, Parser)]
#[command(name = "async_grpo")]
pub struct Arguments {
    /// Number of training steps, including those of earlier sessions
    #[arg(long, default_value_t = 240, value_parser = positive::<u64>)]
    pub steps: u64,
    /// Number of groups in a batch
    #[arg(long, default_value_t = 64, value_parser = positive::<usize>)]
    pub batch: usize,
    /// Number of samples per prompt
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..))]
    pub group_size: u32,
    /// Number of groups generated at once
    #[arg(long, default_value_t = 32, value_parser = positive::<usize>)]
    pub in_flight: usize,
    /// Number of complete groups that the buffer holds
    #[arg(long, default_value_t = 32, value_parser = positive::<usize>)]
    pub capacity: usize,
    /// Largest version gap that a group may have when it is trained on
    #[arg(long, default_value_t = 1)]
    pub max_staleness: u64,
    /// Number of training steps between publications
    #[arg(long, default_value_t = 1, value_parser = positive::<u64>)]
    pub update_interval: u64,
    /// What to do with the samples in flight when new weights are published
    #[arg(long, alias = "in-flight-mode", value_enum, default_value_t = InFlightSamples::Retract)]
    pub weight_sync: InFlightSamples,
    /// What to do with the prompts of stale and aborted groups
    #[arg(long, value_enum, default_value_t = UnusedPrompts::Retry)]
    pub unused: UnusedPrompts,
    /// Number of training steps between checkpoints
    #[arg(long, default_value_t = 20, value_parser = positive::<u64>)]
    pub checkpoint_every: u64,
    /// Seed for weights, shuffling and sampling
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where to compute: `auto` uses CUDA if there is a CUDA device, otherwise wgpu
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Directory of the run, which is created or resumed
    #[arg(long, default_value = "runs/demo")]
    pub run_dir: PathBuf,
    /// Training prompts, JSON Lines
    #[arg(long, default_value = "datasets/sort4.jsonl")]
    pub train: PathBuf,
    /// Held-out prompts, JSON Lines
    #[arg(long, default_value = "datasets/sort4-held-out.jsonl")]
    pub held_out: PathBuf,
    /// Use the synchronous schedule, for comparison: the same chain without its buffer
    #[arg(long)]
    pub sync: bool,
    /// Resume the run even if its recorded settings or dataset differ
    #[arg(long)]
    pub accept_changes: bool,
}

/// What happens to the samples in flight when new weights are published.
#[derive(Copy, Clone, Debug, ValueEnum)]
pub enum InFlightSamples {
    /// Samples continue after the publication; their KV cache is computed again
    Retract,
    /// Samples continue after the publication with their old KV cache
    InPlace,
    /// The publication waits until the samples are complete
    Drain,
    /// Samples are aborted
    Abort,
}

/// What happens to the prompts of stale and aborted groups.
#[derive(Copy, Clone, Debug, ValueEnum)]
pub enum UnusedPrompts {
    /// Prompts are not used again
    Drop,
    /// Prompts are leased again, up to three times in all
    Retry,
}

fn positive<T: FromStr + PartialEq + Default>(text: &str) -> Result<T, String> {
    match text.parse() {
        Ok(count) if count != T::default() => Ok(count),
        _ => Err(format!("expected a whole number of at least 1, found `{text}`")),
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
