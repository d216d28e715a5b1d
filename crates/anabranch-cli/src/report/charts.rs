//! The figures over time and over training steps.

use std::fmt::Write as _;

use anabranch_replay::{RunTimeline, Slice, Spread, StepSlice};

use super::numbers::{count, duration, short};
use super::plot::{Plot, Scale, axis};

/// The number of columns of figures that show levels, and of figures that show bars or react to the pointer.
const LEVELS: usize = 480;
const BARS: usize = 60;

/// The number of columns of a histogram over time: about one per step, so that no column is empty.
pub(super) fn bars(timeline: &RunTimeline) -> usize {
    let steps: u64 = timeline.steps.iter().map(|slice| slice.steps).sum();
    (steps as usize).clamp(12, BARS)
}

/// The columns of a figure over time.
pub(super) struct Time {
    width_ns: u64,
    open_ns: u64,
    pub(super) columns: Vec<Slice>,
}

impl Time {
    pub(super) fn new(timeline: &RunTimeline, columns: usize) -> Self {
        let (width_ns, columns) = timeline.columns(columns);
        Self { width_ns, open_ns: timeline.open_ns.max(1), columns }
    }

    /// Returns the beginning of each column and the end of the last one, as shares of the time.
    pub(super) fn edges(&self) -> Vec<f64> {
        let begin = |index: usize| (index as u64 * self.width_ns).min(self.open_ns) as f64 / self.open_ns as f64;
        (0..=self.columns.len()).map(begin).collect()
    }

    /// Returns the mean level of each column, from the level times nanoseconds.
    fn level(&self, of: impl Fn(&Slice) -> u64) -> Vec<f64> {
        let width = |index: usize| {
            let begin = index as u64 * self.width_ns;
            self.width_ns.min(self.open_ns.saturating_sub(begin)).max(1) as f64
        };
        self.columns.iter().enumerate().map(|(index, slice)| of(slice) as f64 / width(index)).collect()
    }

    /// Describes the time that a column covers.
    pub(super) fn span(&self, index: usize) -> String {
        let begin = index as u64 * self.width_ns;
        let end = (begin + self.width_ns).min(self.open_ns);
        format!("{} to {}", duration(begin), duration(end))
    }

    pub(super) fn axis(&self) -> String {
        axis(|share| duration((self.open_ns as f64 * share) as u64), "time that the run was open")
    }
}

/// An entry of a legend.
pub(super) fn key(class: &str, text: &str) -> String {
    format!("<li><i class=\"{class}\"></i>{text}</li>")
}

/// A figure: title, legend, plot, and anything below the plot.
pub(super) fn figure(title: &str, legend: &str, plot: &str) -> String {
    format!("<figure><figcaption><b>{title}</b><ul class=\"legend\">{legend}</ul></figcaption>{plot}</figure>")
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn sums(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// The figures for engines, buffer, learner and publications, on the same time axis.
pub(super) fn timeline(timeline: &RunTimeline) -> String {
    let time = Time::new(timeline, LEVELS);
    let coarse = Time::new(timeline, BARS);
    let (edges, none) = (time.edges(), vec![0.0; time.columns.len()]);
    let mut figures = String::new();
    let mut add =
        |title: &str, legend: String, mut plot: Plot, size: &str, unit: &str, tell: &dyn Fn(usize) -> String| {
            for session in timeline.sessions_ns.iter().skip(1) {
                plot.mark("session", *session as f64 / time.open_ns as f64);
            }
            let edges = coarse.edges();
            for (index, sides) in edges.windows(2).enumerate() {
                plot.hover(sides[0], sides[1], &format!("{}\n{}", coarse.span(index), tell(index)));
            }
            figures.push_str(&figure(title, &legend, &plot.finish(&format!("{title} over time"), size, unit)));
        };

    // The log does not tell when the samples of a group ended if the group never completed, so the level is capped at the
    // number of slots.
    let most = timeline.slots.map_or(f64::INFINITY, |slots| slots as f64);
    let running =
        |time: &Time| time.level(|slice| slice.generating_ns).into_iter().map(|level| level.min(most)).collect();
    let generating: Vec<f64> = running(&time);
    let mut plot = Plot::new(Scale::from_zero(highest(&generating).max(timeline.slots.unwrap_or_default() as f64)));
    plot.area("generating", &edges, &none, &generating);
    let mut legend = key("generating", "samples in generation");
    if let Some(slots) = timeline.slots {
        plot.level(slots as f64);
        legend += &key("level", &format!("{} slots", count(slots)));
    }
    let generating: Vec<f64> = running(&coarse);
    add("Engines", legend, plot, "low", "", &|index| format!("{} samples in generation", short(generating[index])));

    let (buffered, waiting) = (time.level(|slice| slice.buffered_ns), time.level(|slice| slice.waiting_ns));
    let both = sums(&buffered, &waiting);
    let capacity = timeline.limits.capacity;
    let mut plot = Plot::new(Scale::from_zero(highest(&both).max(capacity.unwrap_or_default() as f64)));
    plot.area("buffered", &edges, &none, &buffered);
    plot.area("waiting", &edges, &buffered, &both);
    let mut legend = key("buffered", "groups in the buffer") + &key("waiting", "complete, not in the buffer");
    if let Some(capacity) = capacity {
        plot.level(capacity as f64);
        legend += &key("level", &format!("capacity {}", count(capacity)));
    }
    let (buffered, waiting) = (coarse.level(|slice| slice.buffered_ns), coarse.level(|slice| slice.waiting_ns));
    add("Buffer", legend, plot, "low", "", &|index| {
        format!(
            "{} groups in the buffer, {} complete and not in the buffer",
            short(buffered[index]),
            short(waiting[index])
        )
    });

    let share = |of: &dyn Fn(&Slice) -> u64| time.level(of).iter().map(|share| 100.0 * share).collect::<Vec<_>>();
    let (training, learner_wait) = (share(&|slice| slice.training_ns), share(&|slice| slice.learner_wait_ns));
    let mut plot = Plot::new(Scale::from_zero(100.0));
    plot.area("training", &edges, &none, &training);
    plot.area("learner-wait", &edges, &training, &sums(&training, &learner_wait));
    let legend = key("training", "training") + &key("learner-wait", "waiting for a batch");
    let (training, waited) = (coarse.level(|slice| slice.training_ns), coarse.level(|slice| slice.learner_wait_ns));
    add("Learner", legend, plot, "low", " %", &|index| {
        format!("training {:.0} %, waiting {:.0} %", 100.0 * training[index], 100.0 * waited[index])
    });

    let paused = share(&|slice| slice.paused_ns);
    let mut plot = Plot::new(Scale::from_zero(highest(&paused)));
    plot.area("paused", &edges, &none, &paused);
    let published = timeline.slices.iter().map(|slice| slice.published).sum::<u64>();
    for (index, slice) in time.columns.iter().enumerate() {
        if slice.published > 0 && published <= LEVELS as u64 {
            plot.mark("published", f64::midpoint(edges[index], edges[index + 1]));
        }
    }
    let mut legend = key("paused", "share of the time that generation was paused");
    if published <= LEVELS as u64 {
        legend += &key("published", "a publication");
    }
    let paused = coarse.level(|slice| slice.paused_ns);
    add("Publications", legend, plot, "low", " %", &|index| {
        let published = coarse.columns[index].published;
        format!("{} published, paused {:.1} % of the time", count(published), 100.0 * paused[index])
    });
    figures + &time.axis()
}

/// The dispositions in the order in which they are stacked: the name in the log, and the name on the page.
const REASONS: [(&str, &str); 6] = [
    ("stale", "stale"),
    ("filtered", "filtered"),
    ("aborted", "aborted"),
    ("unknown_version", "unknown version"),
    ("malformed", "malformed"),
    ("future_version", "future version"),
];

/// Groups consumed and excluded, by reason, over time.
pub(super) fn dispositions(timeline: &RunTimeline) -> String {
    let time = Time::new(timeline, bars(timeline));
    let edges = time.edges();
    let settled = |slice: &Slice| slice.consumed + slice.excluded.values().sum::<u64>();
    let mut plot = Plot::new(Scale::from_zero(time.columns.iter().map(settled).max().unwrap_or_default() as f64));
    let mut below = vec![0.0; time.columns.len()];
    let mut legend = String::new();
    let mut stack = |class: &str, name: &str, of: &dyn Fn(&Slice) -> u64| {
        let values: Vec<f64> = time.columns.iter().map(|slice| of(slice) as f64).collect();
        let total: u64 = time.columns.iter().map(of).sum();
        if total > 0 {
            let above = sums(&below, &values);
            plot.area(class, &edges, &below, &above);
            below = above;
            let _ = write!(legend, "{}", key(class, &format!("{name} {}", count(total))));
        }
    };
    stack("consumed", "consumed", &|slice| slice.consumed);
    for (reason, name) in REASONS {
        stack(reason, name, &|slice| slice.excluded.get(reason).copied().unwrap_or_default());
    }
    for (index, slice) in time.columns.iter().enumerate() {
        let excluded: Vec<String> = REASONS
            .iter()
            .filter_map(|(reason, name)| Some(format!("{name} {}", count(*slice.excluded.get(reason)?))))
            .collect();
        let text = format!("{}\nconsumed {}\n{}", time.span(index), count(slice.consumed), excluded.join("\n"));
        plot.hover(edges[index], edges[index + 1], text.trim_end());
    }
    figure("Groups settled", &legend, &plot.finish("Groups settled over time, by outcome", "tall", "")) + &time.axis()
}

/// A figure over training steps: for each line a class, a name and its value for a slice.
type Line<'a> = (&'a str, &'a str, &'a dyn Fn(&StepSlice) -> Spread);

fn over_steps(timeline: &RunTimeline, title: &str, lines: &[Line<'_>]) -> Option<String> {
    let (per, columns) = timeline.step_columns(LEVELS);
    let spreads = || columns.iter().flat_map(|slice| lines.iter().map(|(.., of)| of(slice)));
    // If a slice covers several steps, the first line gets a band between the extremes.
    let band = per > 1;
    let extreme = |pick: fn(f64, f64) -> f64, of: fn(&Spread) -> Option<f64>| {
        let of = |spread: Spread| if band { of(&spread) } else { spread.mean() };
        spreads().filter_map(of).reduce(pick)
    };
    let lo = extreme(f64::min, |spread| spread.min)?;
    let hi = extreme(f64::max, |spread| spread.max)?;
    let mut plot = Plot::new(Scale::between(lo, hi));
    let edge = |index: usize| index as f64 / columns.len() as f64;
    let edges: Vec<f64> = (0..=columns.len()).map(edge).collect();
    let mut legend = String::new();
    for (index, (class, name, of)) in lines.iter().enumerate() {
        if band && index == 0 {
            let or_mean = |of: fn(&Spread) -> Option<f64>, spread: Spread| of(&spread).unwrap_or(lo);
            let low: Vec<f64> = columns.iter().map(|slice| or_mean(|spread| spread.min, of(slice))).collect();
            let high: Vec<f64> = columns.iter().map(|slice| or_mean(|spread| spread.max, of(slice))).collect();
            plot.area(&format!("band {class}"), &edges, &low, &high);
        }
        let points: Vec<(f64, Option<f64>)> = columns
            .iter()
            .enumerate()
            .map(|(index, slice)| (f64::midpoint(edges[index], edges[index + 1]), of(slice).mean()))
            .collect();
        plot.line(class, &points);
        legend += &key(class, name);
    }
    if band {
        legend += &key("band", &format!("smallest to largest of {per} steps"));
    }
    let not_finite: u64 = spreads().map(|spread| spread.not_finite).sum();
    if not_finite > 0 {
        legend += &key("aborted", &format!("{} values were not finite and are left out", count(not_finite)));
    }
    let (coarse_per, coarse) = timeline.step_columns(BARS);
    for (index, slice) in coarse.iter().enumerate() {
        let values: Vec<String> = lines
            .iter()
            .map(|(_, name, of)| format!("{name} {}", of(slice).mean().map_or_else(|| "–".to_owned(), short)))
            .collect();
        let first = index as u64 * coarse_per + 1;
        let text = format!("steps {first} to {}\n{}", first + coarse_per - 1, values.join("\n"));
        let edge = |index: usize| index as f64 / coarse.len() as f64;
        plot.hover(edge(index), edge(index + 1), &text);
    }
    Some(figure(title, &legend, &plot.finish(&format!("{title} over training steps"), "tall", "")))
}

fn steps_axis(timeline: &RunTimeline) -> String {
    let made: u64 = timeline.steps.iter().map(|slice| slice.steps).sum();
    // The last slice may reach beyond the last step.
    let last = made.max(timeline.slice_steps * (timeline.steps.len() as u64).saturating_sub(1) + 1);
    axis(|share| count(((last as f64 * share).round() as u64).max(1)), "training step")
}

/// Reward and loss over training steps, or a note if no step was made.
pub(super) fn curves(timeline: &RunTimeline) -> String {
    let reward = over_steps(
        timeline,
        "Reward",
        &[
            ("consumed", "groups trained on", &|slice| slice.reward_consumed),
            ("all", "all groups completed in that time", &|slice| slice.reward_completed),
        ],
    );
    let loss = over_steps(timeline, "Loss", &[("consumed", "loss", &|slice| slice.loss)]);
    if reward.is_none() && loss.is_none() {
        return "<p>No training step was made yet.</p>".to_owned();
    }
    reward.unwrap_or_default() + &loss.unwrap_or_default() + &steps_axis(timeline)
}

/// How long the learner waited for the batch of each training step.
pub(super) fn learner_wait(timeline: &RunTimeline) -> String {
    let (per, columns) = timeline.step_columns(BARS * 2);
    let waits: Vec<f64> =
        columns.iter().map(|slice| slice.learner_wait.mean_ns().unwrap_or_default() as f64 / 1e6).collect();
    if waits.is_empty() {
        return "<p>No batch was taken yet.</p>".to_owned();
    }
    let edges: Vec<f64> = (0..=columns.len()).map(|index| index as f64 / columns.len() as f64).collect();
    let mut plot = Plot::new(Scale::from_zero(highest(&waits)));
    plot.area("learner-wait", &edges, &vec![0.0; waits.len()], &waits);
    for (index, slice) in columns.iter().enumerate() {
        let first = index as u64 * per + 1;
        let mean = duration(slice.learner_wait.mean_ns().unwrap_or_default());
        let text = format!("steps {first} to {}\nwaited {mean} for a batch, on average", first + per - 1);
        plot.hover(edges[index], edges[index + 1], &text);
    }
    let legend = key("learner-wait", "milliseconds, mean of a batch");
    figure("Wait for a batch", &legend, &plot.finish("Learner wait over training steps", "tall", ""))
        + &steps_axis(timeline)
}
