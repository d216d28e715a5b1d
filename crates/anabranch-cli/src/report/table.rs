//! The data of the figures as a table of a dozen periods of time.

use std::fmt::Write as _;

use anabranch_replay::RunTimeline;

use super::charts::Time;
use super::numbers::count;

const ROWS: usize = 12;

pub(super) fn table(timeline: &RunTimeline) -> String {
    let time = Time::new(timeline, ROWS);
    let edges = time.edges();
    let mut rows = String::new();
    for (index, slice) in time.columns.iter().enumerate() {
        let width = ((edges[index + 1] - edges[index]) * timeline.open_ns as f64).max(1.0);
        let level = |groups_ns: u64| format!("{:.1}", groups_ns as f64 / width);
        let share = |ns: u64| format!("{:.1} %", 100.0 * ns as f64 / width);
        let mean = |mean: Option<f64>| mean.map_or_else(|| "–".to_owned(), |mean| format!("{mean:.2}"));
        let cells = [
            level(slice.generating_ns),
            level(slice.waiting_ns),
            level(slice.buffered_ns),
            share(slice.training_ns),
            share(slice.learner_wait_ns),
            share(slice.paused_ns),
            count(slice.published),
            count(slice.consumed),
            count(slice.excluded.values().sum()),
            mean(slice.gap_consumed.mean()),
            mean(slice.gap_excluded.mean()),
        ];
        let _ = write!(rows, "<tr><th scope=\"row\">{}</th>", time.span(index));
        for cell in cells {
            let _ = write!(rows, "<td>{cell}</td>");
        }
        rows.push_str("</tr>");
    }
    let heads: Vec<String> = [
        "time open",
        "samples generating",
        "complete, waiting",
        "buffered",
        "training",
        "learner waits",
        "paused",
        "publications",
        "consumed",
        "excluded",
        "gap consumed",
        "gap excluded",
    ]
    .iter()
    .map(|head| format!("<th scope=\"col\">{head}</th>"))
    .collect();
    format!(
        "<details><summary>The same data as a table</summary><div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>\
         {rows}</tbody></table></div></details>",
        heads.concat()
    )
}
