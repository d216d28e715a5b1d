//! A timeline as an SVG with its own background, so that pages of any colour can show it.

use std::fmt::Write as _;

use crate::chart::{Bar, Chart, Lane, Mark, Paint, Sign, wrap};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 58.0;
const LANE: f64 = 28.0;
const HEADING: f64 = 30.0;
const BAR: f64 = 20.0;
/// Number of characters in a line of a note.
const NOTE: usize = 104;

/// Fills on which dark text is readable. Neighbours differ in hue and brightness, for colour-blind readers too.
const VERSIONS: [&str; 7] = ["#a9d5f5", "#f5c26b", "#7fd1ae", "#e9a9cc", "#f2e58f", "#c3b4f2", "#f3a48c"];

const STYLE: &str = "text{font-family:sans-serif;font-size:12px;fill:#1f2328}\
.title{font-size:15px;font-weight:bold}.heading{font-weight:bold}.small{font-size:11px}.quiet{fill:#57606a}\
.light{fill:#ffffff}.good{fill:#116329}.bad{fill:#a40e26}";

fn fill(paint: Paint) -> (&'static str, &'static str) {
    match paint {
        Paint::Version(version) => (VERSIONS[version as usize % VERSIONS.len()], ""),
        Paint::Training => ("#424a53", "light"),
        Paint::Waiting => ("#ffffff", ""),
        Paint::Pause => ("#d0d7de", ""),
    }
}

/// The approximate width of a text of 11 px.
fn width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.3
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

struct Page<'a> {
    chart: &'a Chart,
    body: String,
}

impl Page<'_> {
    fn x(&self, at: u64) -> f64 {
        let at = at.clamp(self.chart.from, self.chart.to) - self.chart.from;
        LEFT + (WIDTH - LEFT - RIGHT) * at as f64 / (self.chart.to - self.chart.from) as f64
    }

    fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let text = escape(text);
        let _ =
            writeln!(self.body, r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#);
    }

    fn bar(&mut self, bar: &Bar, top: f64) {
        if bar.to <= self.chart.from || bar.from >= self.chart.to {
            return;
        }
        let (from, to) = (self.x(bar.from), self.x(bar.to));
        let (colour, class) = fill(bar.paint);
        let dashes = if bar.paint == Paint::Waiting { r#" stroke-dasharray="3 2""# } else { "" };
        // A light edge separates dark neighbours.
        let edge = if bar.paint == Paint::Training { "#ffffff" } else { "#57606a" };
        let _ = writeln!(
            self.body,
            r#"<rect x="{from:.1}" y="{top:.1}" width="{:.1}" height="{BAR}" fill="{colour}" stroke="{edge}" stroke-width="0.8"{dashes}/>"#,
            (to - from).max(1.0)
        );
        if width(&bar.label) + 4.0 <= to - from {
            self.text(f64::midpoint(from, to), top + 14.5, &format!("small {class}"), "middle", &bar.label);
        }
    }

    fn mark(&mut self, mark: &Mark, top: f64) {
        if !(self.chart.from..=self.chart.to).contains(&mark.at) {
            return;
        }
        let (x, y) = (self.x(mark.at), top + BAR / 2.0);
        let (path, colour, class) = match mark.sign {
            Sign::Consumed => ("M-4,0 L-1,4 L5,-5", "#116329", "good"),
            Sign::Excluded => ("M-4,-4 L4,4 M-4,4 L4,-4", "#a40e26", "bad"),
            Sign::Note => {
                self.text(x, y + 4.5, "small", "middle", &mark.label);
                return;
            }
        };
        let x = x + 8.0;
        let _ = writeln!(
            self.body,
            r#"<path d="{path}" transform="translate({x:.1} {y:.1})" fill="none" stroke="{colour}" stroke-width="2"/>"#
        );
        self.text(x + 9.0, y + 4.5, &format!("small {class}"), "start", &mark.label);
    }

    fn lane(&mut self, lane: &Lane, top: f64) {
        self.text(LEFT - 10.0, top + 14.5, "", "end", &lane.label);
        lane.bars.iter().for_each(|bar| self.bar(bar, top));
        lane.marks.iter().for_each(|mark| self.mark(mark, top));
    }

    /// Draws lines at the ticks over the lanes, and the axis below them.
    fn axis(&mut self, bottom: f64) {
        for tick in self.chart.ticks().collect::<Vec<_>>() {
            let x = self.x(tick);
            let _ = writeln!(
                self.body,
                r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom:.1}" stroke="#d8dee4" stroke-width="1"/>"##
            );
            self.text(x, bottom + 14.0, "small quiet", "middle", &tick.to_string());
        }
        self.text(LEFT - 10.0, bottom + 14.0, "small quiet", "end", "virtual time (ms)");
    }

    fn legend(&mut self, top: f64) {
        let mut x = LEFT;
        for &(paint, meaning) in &self.chart.legend {
            let colours: &[&str] = if matches!(paint, Paint::Version(_)) { &VERSIONS } else { &[fill(paint).0] };
            let each = 22.0 / colours.len() as f64;
            let dashes = if paint == Paint::Waiting { r#" stroke-dasharray="3 2""# } else { "" };
            for (index, colour) in colours.iter().enumerate() {
                let x = x + each * index as f64;
                let _ = writeln!(
                    self.body,
                    r#"<rect x="{x:.1}" y="{top:.1}" width="{each:.1}" height="12" fill="{colour}"/>"#
                );
            }
            let _ = writeln!(
                self.body,
                r##"<rect x="{x:.1}" y="{top:.1}" width="22" height="12" fill="none" stroke="#57606a" stroke-width="0.8"{dashes}/>"##
            );
            self.text(x + 28.0, top + 10.0, "small", "start", meaning);
            x += 28.0 + width(meaning) + 16.0;
        }
    }
}

/// Whether the legend and the notes fit on the page.
#[cfg(test)]
pub fn fits(chart: &Chart) -> bool {
    let legend: f64 = chart.legend.iter().map(|(_, meaning)| 28.0 + width(meaning) + 16.0).sum();
    // The font of notes is 12 px, not 11.
    let note = NOTE as f64 * width("n") * 12.0 / 11.0;
    LEFT + (legend - 16.0).max(note) <= WIDTH - RIGHT / 3.0
}

/// Writes the figure as a file.
pub fn draw(chart: &Chart) -> String {
    let mut page = Page { chart, body: String::new() };
    let height_of = |lane: &Lane| if lane.heading { HEADING } else { LANE };
    let bottom = TOP + chart.lanes.iter().map(height_of).sum::<f64>();
    page.axis(bottom);
    let mut top = TOP;
    for lane in &chart.lanes {
        if lane.heading {
            page.text(LEFT, top + 20.0, "heading", "start", &lane.label);
        } else {
            page.lane(lane, top + (LANE - BAR) / 2.0);
        }
        top += height_of(lane);
    }
    page.text(LEFT, 26.0, "title", "start", &chart.title);
    page.legend(38.0);
    let mut y = bottom + 38.0;
    for line in chart.notes.iter().flat_map(|note| wrap(note, NOTE)) {
        page.text(LEFT, y, "", "start", &line);
        y += 18.0;
    }
    let (name, title, description) = (chart.name, escape(&chart.title), escape(&chart.description));
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img" aria-labelledby="{name}-title {name}-desc">
<title id="{name}-title">{title}</title>
<desc id="{name}-desc">{description}</desc>
<style>{STYLE}</style>
<rect x="0.5" y="0.5" width="{:.1}" height="{:.1}" rx="6" fill="#ffffff" stroke="#d0d7de"/>
{}</svg>
"##,
        WIDTH - 1.0,
        y - 1.0,
        page.body
    )
}
