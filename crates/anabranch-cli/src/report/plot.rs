//! Plots. The SVG stretches to the available width; the labels are text beside it and do not stretch.

use std::fmt::Write as _;

use super::numbers::{escaped, short};

/// The size of the plot area in its own units; the page stretches them.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;

/// A vertical scale: its two ends, and the values that get a line and a label.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    lo: f64,
    hi: f64,
    ticks: Vec<f64>,
}

impl Scale {
    /// Creates a scale from 0 to at least `max`.
    pub(super) fn from_zero(max: f64) -> Self {
        Self::between(0.0, if max > 0.0 { max } else { 1.0 })
    }

    /// Creates a scale that covers `lo` to `hi` and has round numbers at both ends.
    pub(super) fn between(lo: f64, hi: f64) -> Self {
        let (lo, hi) = if hi > lo { (lo, hi) } else { (lo - 0.5, hi + 0.5) };
        let rough = (hi - lo) / 3.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|of| of * decade).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * decade);
        let (first, last) = ((lo / step).floor(), (hi / step - 1e-9).ceil());
        let ticks = (0..=(last - first) as u32).map(|tick| (first + f64::from(tick)) * step).collect();
        Self { lo: first * step, hi: last * step, ticks }
    }

    /// Returns the distance of a value from the top of the plot.
    fn at(&self, value: f64) -> f64 {
        HEIGHT * (self.hi - value) / (self.hi - self.lo)
    }
}

/// A plot that is being built.
#[derive(Debug)]
pub(super) struct Plot {
    scale: Scale,
    body: String,
    hover: String,
}

fn x(position: f64) -> String {
    let text = format!("{:.1}", WIDTH * position);
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

fn y(scale: &Scale, value: f64) -> String {
    let text = format!("{:.1}", scale.at(value.clamp(scale.lo, scale.hi)));
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

impl Plot {
    pub(super) fn new(scale: Scale) -> Self {
        let mut body = String::new();
        for tick in &scale.ticks {
            let at = y(&scale, *tick);
            let _ = write!(body, "<path class=\"grid\" d=\"M0 {at}H1000\"/>");
        }
        Self { scale, body, hover: String::new() }
    }

    /// Draws areas between `from` and `to`, one per column; each column is as wide as its share of the plot.
    pub(super) fn area(&mut self, class: &str, edges: &[f64], from: &[f64], to: &[f64]) {
        if to.iter().zip(from).all(|(to, from)| to <= from) {
            return;
        }
        let mut path = String::new();
        for (index, value) in to.iter().enumerate() {
            let begin = if index == 0 { "M" } else { "L" };
            let (left, right, up) = (x(edges[index]), x(edges[index + 1]), y(&self.scale, *value));
            let _ = if index == 0 { write!(path, "{begin}{left} {up}H{right}") } else { write!(path, "V{up}H{right}") };
        }
        for (index, value) in from.iter().enumerate().rev() {
            let _ = write!(path, "V{}H{}", y(&self.scale, *value), x(edges[index]));
        }
        let _ = write!(self.body, "<path class=\"{class}\" d=\"{path}Z\"/>");
    }

    /// Draws a line through the values, interrupted at missing values. A single value is a dot.
    pub(super) fn line(&mut self, class: &str, points: &[(f64, Option<f64>)]) {
        let (mut path, mut dots) = (String::new(), String::new());
        let mut open = false;
        for (index, (position, value)) in points.iter().enumerate() {
            let Some(value) = value else {
                open = false;
                continue;
            };
            let (at, up) = (x(*position), y(&self.scale, *value));
            if !open && points.get(index + 1).is_none_or(|(_, next)| next.is_none()) {
                let _ = write!(dots, "M{at} {up}h0.01");
                continue;
            }
            let _ = write!(path, "{}{at} {up}", if open { "L" } else { "M" });
            open = true;
        }
        for (kind, path) in [("line", path), ("line dot", dots)] {
            if !path.is_empty() {
                let _ = write!(self.body, "<path class=\"{kind} {class}\" d=\"{path}\"/>");
            }
        }
    }

    /// Draws a constant level.
    pub(super) fn level(&mut self, value: f64) {
        let _ = write!(self.body, "<path class=\"level\" d=\"M0 {}H1000\"/>", y(&self.scale, value));
    }

    /// Draws a line from top to bottom.
    pub(super) fn mark(&mut self, class: &str, position: f64) {
        let _ = write!(self.body, "<path class=\"{class}\" d=\"M{} 0V100\"/>", x(position));
    }

    /// Adds a text that appears if the pointer is between `left` and `right`.
    pub(super) fn hover(&mut self, left: f64, right: f64, text: &str) {
        let (at, width) = (x(left), x(right - left));
        let text = escaped(text);
        let _ = write!(
            self.hover,
            "<rect class=\"hover\" x=\"{at}\" width=\"{width}\" height=\"100\"><title>{text}</title></rect>"
        );
    }

    /// Finishes the plot. Screen readers read `label`.
    pub(super) fn finish(self, label: &str, size: &str, unit: &str) -> String {
        let mut labels = String::new();
        for tick in &self.scale.ticks {
            let bottom = 100.0 - self.scale.at(*tick);
            let _ = write!(labels, "<span style=\"bottom:{bottom:.1}%\">{}{unit}</span>", short(*tick));
        }
        format!(
            "<div class=\"plot {size}\"><div class=\"y\" aria-hidden=\"true\">{labels}</div><svg viewBox=\"0 0 1000 100\" \
             preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">{}{}</svg></div>",
            escaped(label),
            self.body,
            self.hover
        )
    }
}

/// The labels under a plot: at the start, the quarters and the end.
pub(super) fn axis(label: impl Fn(f64) -> String, name: &str) -> String {
    let mut labels: Vec<String> = Vec::new();
    for text in [0.0, 0.25, 0.5, 0.75, 1.0].map(label) {
        // If the axis has only a few whole numbers, each gets one label.
        let text = format!("<span>{text}</span>");
        labels.push(if labels.contains(&text) { "<span></span>".to_owned() } else { text });
    }
    format!(
        "<div class=\"x\" aria-hidden=\"true\">{}</div><div class=\"axis\">{}</div>",
        labels.concat(),
        escaped(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_numbers() {
        let ticks = |scale: Scale| scale.ticks.iter().map(|tick| short(*tick)).collect::<Vec<_>>().join(" ");
        assert_eq!(ticks(Scale::from_zero(32.0)), "0 20 40");
        assert_eq!(ticks(Scale::from_zero(8.0)), "0 5 10");
        assert_eq!(ticks(Scale::from_zero(0.0)), "0 0.5 1");
        assert_eq!(ticks(Scale::between(-0.13, 0.27)), "-0.2 0 0.2 0.4");
        assert_eq!(ticks(Scale::between(0.5, 0.5)), "0 0.5 1");
    }

    #[test]
    fn lines_break_where_nothing_is_known() {
        let mut plot = Plot::new(Scale::from_zero(1.0));
        plot.line("a", &[(0.0, Some(0.0)), (0.5, Some(1.0)), (0.6, None), (0.8, Some(0.5))]);
        let svg = plot.finish("A <line>", "tall", "");
        assert!(
            svg.contains("<path class=\"line a\" d=\"M0 100L500 0\"/><path class=\"line dot a\" d=\"M800 50h0.01\"/>"),
            "{svg}"
        );
        assert!(svg.contains("aria-label=\"A &lt;line&gt;\""), "{svg}");
    }

    #[test]
    fn areas_are_steps() {
        let mut plot = Plot::new(Scale::from_zero(1.0));
        plot.area("a", &[0.0, 0.5, 1.0], &[0.0, 0.0], &[1.0, 0.5]);
        plot.area("nothing", &[0.0, 0.5, 1.0], &[0.0, 0.0], &[0.0, 0.0]);
        let svg = plot.finish("", "", "");
        assert!(svg.contains("<path class=\"a\" d=\"M0 0H500V50H1000V100H500V100H0Z\"/>"), "{svg}");
        assert!(!svg.contains("nothing"));
    }
}
