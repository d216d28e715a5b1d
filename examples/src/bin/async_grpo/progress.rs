//! Shows live progress: bars on a terminal, plain lines if the output is piped.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anabranch::{Run, Step};
use indicatif::{ProgressBar, ProgressStyle};

/// About how many lines a whole run prints if the output is piped.
const LINES: u64 = 20;

/// Shows the progress of the run.
pub struct Progress {
    bar: Option<ProgressBar>,
    run: Run,
    capacity: Option<usize>,
    begun: Instant,
    tokens_before: u64,
    steps: u64,
}

impl Progress {
    /// Creates the display for a run of `steps` steps in all, whose buffer holds `capacity` groups (`None`: no buffer).
    pub fn new(run: &Run, steps: u64, capacity: Option<usize>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps);
            let style = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed} (eta {eta})\n{wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self {
            bar,
            run: run.clone(),
            capacity,
            begun: Instant::now(),
            tokens_before: run.metrics().counters.generated_tokens,
            steps,
        }
    }

    /// Shows a step, and how many groups are in flight and in the buffer.
    pub fn step(&self, step: &Step) {
        let metrics = self.run.metrics();
        let tokens = metrics.counters.generated_tokens - self.tokens_before;
        let rate = tokens as f64 / self.begun.elapsed().as_secs_f64().max(1e-9);
        let (queue, upstream) = (metrics.gauges.queue.unwrap_or(0), metrics.gauges.in_flight + metrics.gauges.waiting);
        let buffer = self.capacity.map_or("no buffer".to_owned(), |capacity| format!("buffer {queue}/{capacity}"));
        let line = format!("{step} | {rate:.0} tok/s | in flight {upstream} | {buffer}");
        match &self.bar {
            Some(bar) => {
                bar.set_position(step.step.0);
                bar.set_message(line);
            }
            None if step.step.0.is_multiple_of((self.steps / LINES).max(1)) || step.step.0 == self.steps => {
                println!("{line}");
            }
            None => {}
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
