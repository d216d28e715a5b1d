//! A heat map as SVG that is readable on light and on dark pages.

use std::fmt;

/// A value for each combination of two settings.
pub(crate) struct HeatMap {
    pub(crate) title: String,
    /// The name and the values of the setting down the side.
    pub(crate) rows: (String, Vec<String>),
    /// The name and the values of the setting along the top.
    pub(crate) columns: (String, Vec<String>),
    /// Row by row: the value, and the text that shows it.
    pub(crate) cells: Vec<(Option<f64>, String)>,
}

const CELL: (usize, usize) = (92, 40);
const LEFT: usize = 150;
const TOP: usize = 84;
const MARGIN: usize = 16;

/// Anchors of the viridis colour map, from low to high. Colour-blind readers and grey printers can read viridis.
const RAMP: [(f64, f64, f64); 5] =
    [(68.0, 1.0, 84.0), (59.0, 82.0, 139.0), (33.0, 145.0, 140.0), (94.0, 201.0, 98.0), (253.0, 231.0, 37.0)];

/// The colour of a value between 0 and 1, and whether text on that colour should be dark.
fn color(value: f64) -> (String, bool) {
    let place = value.clamp(0.0, 1.0) * (RAMP.len() - 1) as f64;
    let below = (place as usize).min(RAMP.len() - 2);
    let part = place - below as f64;
    let (from, to) = (RAMP[below], RAMP[below + 1]);
    let mix = |from: f64, to: f64| (from + (to - from) * part).round();
    let (r, g, b) = (mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2));
    (format!("#{:02x}{:02x}{:02x}", r as u8, g as u8, b as u8), 0.299 * r + 0.587 * g + 0.114 * b > 128.0)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl fmt::Display for HeatMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, rows: (row_name, rows), columns: (column_name, columns), cells } = self;
        let title = escaped(title);
        let grid = (LEFT + CELL.0 * columns.len(), TOP + CELL.1 * rows.len());
        // A character of the title is about nine pixels wide.
        let (width, height) = ((grid.0 + MARGIN).max(2 * MARGIN + 9 * title.len()), grid.1 + MARGIN);
        writeln!(
            f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\">\n<title>{title}</title>\n<style>\n\
             text {{ font: 13px system-ui, sans-serif; fill: #24292f; }}\n\
             .page {{ fill: #ffffff; }}\n\
             .title {{ font-size: 16px; font-weight: 600; }}\n\
             .name {{ font-weight: 600; }}\n\
             .light {{ fill: #ffffff; }}\n.dark {{ fill: #111111; }}\n\
             @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3; }} .page {{ fill: #0d1117; }} \
             .light {{ fill: #ffffff; }} .dark {{ fill: #111111; }} }}\n</style>"
        )?;
        writeln!(f, "<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>")?;
        writeln!(f, "<text class=\"title\" x=\"{MARGIN}\" y=\"28\">{title}</text>")?;
        writeln!(f, "<text class=\"name\" x=\"{LEFT}\" y=\"54\">{}</text>", escaped(column_name))?;
        writeln!(f, "<text class=\"name\" x=\"{MARGIN}\" y=\"{}\">{}</text>", TOP - 8, escaped(row_name))?;
        for (label, x) in columns.iter().zip((LEFT + CELL.0 / 2..).step_by(CELL.0)) {
            let y = TOP - 8;
            writeln!(f, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", escaped(label))?;
        }
        for (label, y) in rows.iter().zip((TOP + CELL.1 / 2 + 5..).step_by(CELL.1)) {
            let x = LEFT - 12;
            writeln!(f, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{}</text>", escaped(label))?;
        }
        let known = || cells.iter().filter_map(|(value, _)| *value);
        let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
        for ((value, shown), place) in cells.iter().zip(0..) {
            let (x, y) = (LEFT + place % columns.len() * CELL.0, TOP + place / columns.len() * CELL.1);
            let scaled = value.map(|value| if high > low { (value - low) / (high - low) } else { 0.0 });
            let (fill, dark) = scaled.map_or_else(|| ("#8b949e".to_owned(), true), color);
            let class = if dark { "dark" } else { "light" };
            let (width, height) = (CELL.0 - 2, CELL.1 - 2);
            let (middle, line) = (x + CELL.0 / 2 - 1, y + CELL.1 / 2 + 4);
            writeln!(f, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"3\" fill=\"{fill}\"/>")?;
            writeln!(
                f,
                "<text class=\"{class}\" x=\"{middle}\" y=\"{line}\" text-anchor=\"middle\">{}</text>",
                escaped(shown)
            )?;
        }
        writeln!(f, "</svg>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_is_dark_and_the_highest_bright() {
        assert_eq!(color(0.0), ("#440154".to_owned(), false));
        assert_eq!(color(1.0), ("#fde725".to_owned(), true));
        let map = HeatMap {
            title: "gap <by> a & b".to_owned(),
            rows: ("a".to_owned(), vec!["0".to_owned(), "1".to_owned()]),
            columns: ("b".to_owned(), vec!["x".to_owned()]),
            cells: vec![(Some(1.0), "1.0".to_owned()), (None, "-".to_owned())],
        };
        let svg = map.to_string();
        assert!(svg.contains("gap &lt;by&gt; a &amp; b") && svg.matches("<rect x=").count() == 2, "{svg}");
        assert!(svg.contains("#440154") && svg.contains("#8b949e"), "{svg}");
    }
}
