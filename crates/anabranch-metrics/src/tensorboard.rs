//! Writes the metrics of a run as TensorBoard event files: one scalar per metric and training step.
//!
//! The tags are the names of `docs/metrics.md`, followed by the label's value after a slash:
//! `anabranch_excluded_total/stale`. A histogram has two tags: `anabranch_gap/consumed/mean` and `…/max`. [`STEP_TAGS`]
//! lists the tags that describe a step alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch_core::Step;

use crate::{MetricValue, Metrics, Reading};

mod record;

/// A scalar of a single training step: its tag, its unit and its meaning.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StepTag {
    /// The tag.
    pub tag: &'static str,
    /// The unit.
    pub unit: &'static str,
    /// The meaning.
    pub meaning: &'static str,
}

const fn tag(tag: &'static str, unit: &'static str, meaning: &'static str) -> StepTag {
    StepTag { tag, unit, meaning }
}

/// The scalars that describe a step alone and are not metrics of the run. `docs/metrics.md` prints this list; a test
/// compares the two.
pub const STEP_TAGS: [StepTag; 9] = [
    tag("step/reward_mean", "reward", "mean reward over the samples of the batch that have one"),
    tag("step/gap_mean", "versions", "mean version gap of the groups of the batch, when it was taken"),
    tag("step/gap_max", "versions", "largest version gap of the groups of the batch"),
    tag("step/groups", "groups", "groups in the batch"),
    tag("step/samples", "samples", "samples in the batch"),
    tag("step/tokens", "tokens", "tokens that the policy generated in the batch"),
    tag("step/waited_seconds", "seconds", "how long the learner waited for the batch"),
    tag("step/trained_seconds", "seconds", "how long the learner trained"),
    tag("step/paused_seconds", "seconds", "how long generation paused for the publication after the step"),
];

fn step_values(step: &Step) -> [Option<f64>; 9] {
    [
        step.reward_mean,
        step.gap_mean,
        step.gap_max.map(|gap| gap as f64),
        Some(step.groups as f64),
        Some(step.samples as f64),
        Some(step.tokens as f64),
        Some(step.waited.as_secs_f64()),
        Some(step.trained.as_secs_f64()),
        step.published.map(|_| step.paused.as_secs_f64()),
    ]
}

/// An event file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write TensorBoard events to {}: {source}", path.display())]
pub struct TensorBoardError {
    /// The file or directory.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

/// Writes an event file.
///
/// Every record is passed to the operating system at once: if the process is killed, TensorBoard can read the file
/// without the last record. After a restart, create it again on the same directory. This makes a new file next to the
/// old ones, and its steps replace the same steps of the old files. Values are stored as 32-bit floats.
///
/// ```
/// # use anabranch_core::{Dataset, Fields};
/// # use anabranch_sim::{HashChain, Sim};
/// # use anabranch_stream::{InFlight, RolloutExt, Run, Samples};
/// # use anabranch_metrics::TensorBoard;
/// # use futures::TryStreamExt;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (run, engine, dir) = (Run::in_memory(), Sim::fixed(3, std::time::Duration::ZERO), tempfile::tempdir()?);
/// # let rows = (0..6).map(|row| (vec![row], Fields::new())).collect();
/// let mut board = TensorBoard::create(dir.path())?;
/// let mut steps = run
///     .prompts(Dataset::new("d", rows)?)
///     .generate(&engine, InFlight::groups(4), Samples(2))
///     .batch(2)
///     .train(run.restore(HashChain::new(1))?)
///     .publish_every(1, &engine);
/// while let Some(step) = steps.try_next().await? {
///     board.step(&step, &run.metrics())?;
/// }
/// assert!(std::fs::metadata(board.path())?.len() > 1000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TensorBoard {
    file: File,
    path: PathBuf,
    begun: bool,
}

impl TensorBoard {
    /// Begins a new event file in the directory `dir`, and creates the directory if it does not exist. TensorBoard
    /// shows each directory as one run, with all its files.
    ///
    /// # Errors
    /// Returns an error if the directory or the file cannot be created.
    pub fn create(dir: impl AsRef<Path>) -> Result<Self, TensorBoardError> {
        let dir = dir.as_ref();
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| TensorBoardError { path, source }
        };
        fs::create_dir_all(dir).map_err(failed(dir))?;
        // TensorBoard reads the files of a directory in the order of their names.
        let newest = newest(dir).map_err(failed(dir))?;
        let second = newest.map_or(wall_time() as u64, |newest| (wall_time() as u64).max(newest + 1));
        let name = format!("events.out.tfevents.{second:010}.{}.{}.0", host(), std::process::id());
        let path = dir.join(name);
        let file = OpenOptions::new().append(true).create_new(true).open(&path).map_err(failed(&path))?;
        let mut board = Self { file, path, begun: false };
        board.append(&record::file_version(wall_time()))?;
        Ok(board)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a training step, and the metrics of its run right after the step.
    ///
    /// For a step trained again after a restart, only the tags of the step itself are written: the metrics of the run
    /// were written when the step was new.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn step(&mut self, step: &Step, metrics: &Metrics) -> Result<(), TensorBoardError> {
        let values = STEP_TAGS.iter().zip(step_values(step));
        let values = values.filter_map(|(tag, value)| Some((tag.tag.to_owned(), value?)));
        let mut of_step = Metrics::default();
        of_step.gauges.set_learned(step.loss, &step.metrics);
        let mut of_run = metrics.clone();
        of_run.gauges.set_learned(step.loss, &step.metrics);
        let readings = if step.replayed { of_step.learned() } else { of_run.readings() };
        let values: Vec<_> = values.chain(readings.iter().flat_map(scalars)).collect();
        self.write(step.step.0, &values)
    }

    /// Writes scalars of the user's own at a step.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&mut self, step: u64, values: &[(String, f64)]) -> Result<(), TensorBoardError> {
        if !self.begun {
            self.append(&record::session_start(wall_time(), step))?;
            self.begun = true;
        }
        self.append(&record::scalars(wall_time(), step, values))
    }

    /// Makes one call of the operating system per record, so that a kill damages at most the last record.
    fn append(&mut self, record: &[u8]) -> Result<(), TensorBoardError> {
        let written = self.file.write_all(&record::framed(record));
        written.map_err(|source| TensorBoardError { path: self.path.clone(), source })
    }
}

/// The scalars of a value: the mean and the largest value of a histogram, or the value itself.
fn scalars(reading: &Reading<'_>) -> Vec<(String, f64)> {
    let label = reading.label.as_ref().map_or_else(String::new, |label| format!("/{label}"));
    let tag = format!("{}{label}", reading.metric.name);
    match reading.value {
        MetricValue::Counter(count) => vec![(tag, count as f64)],
        MetricValue::Gauge(level) => vec![(tag, level)],
        MetricValue::Histogram { .. } => {
            let parts = reading.value.mean_and_max().map(|(mean, max)| [("mean", mean), ("max", max)]);
            parts.into_iter().flatten().map(|(part, value)| (format!("{tag}/{part}"), value)).collect()
        }
    }
}

/// The second in the name of the newest event file of a directory.
fn newest(dir: &Path) -> io::Result<Option<u64>> {
    let mut newest = None;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let second = name.to_str().and_then(|name| name.strip_prefix("events.out.tfevents."));
        let second = second.and_then(|rest| rest.split('.').next()?.parse::<u64>().ok());
        newest = newest.max(second);
    }
    Ok(newest)
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    let plain = |name: String| name.trim().replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "-");
    name.map(plain).filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".to_owned())
}

/// Seconds since the Unix epoch.
fn wall_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
