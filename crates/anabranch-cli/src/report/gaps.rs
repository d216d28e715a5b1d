//! Gap histograms over time: one row per gap, one column per period of time.

use std::fmt::Write as _;

use anabranch_replay::{RunTimeline, Series, Slice};

use super::charts::{Time, bars, figure, key};
use super::numbers::{count, escaped, percent};

/// Gaps up to this one have a row each; above it each row covers twice as many gaps as the row before.
const SINGLE: u64 = 8;

/// The rows, each with its smallest and its largest gap.
fn rows(max: u64) -> Vec<(u64, u64)> {
    let mut rows: Vec<(u64, u64)> = (0..=max.min(SINGLE)).map(|gap| (gap, gap)).collect();
    let mut covered = SINGLE;
    while covered < max {
        rows.push((covered + 1, covered.saturating_mul(2)));
        covered = covered.saturating_mul(2);
    }
    rows
}

fn within(series: &Series, (from, to): (u64, u64)) -> u64 {
    series.histogram.range(from..=to).map(|(_, count)| count).sum()
}

fn merged(time: &Time, of: fn(&Slice) -> &Series) -> Series {
    let mut all = Series::default();
    for series in time.columns.iter().map(of) {
        for (gap, count) in &series.histogram {
            *all.histogram.entry(*gap).or_default() += count;
        }
        all.unknown += series.unknown;
    }
    all
}

/// Draws one series. The stronger the colour of a cell, the larger the share of the period's groups with this gap.
fn heat(time: &Time, title: &str, class: &str, verb: &str, of: fn(&Slice) -> &Series) -> String {
    let all = merged(time, of);
    let Some(max) = all.max() else {
        return figure(title, "", &format!("<p>No group with a known version was {verb}.</p>"));
    };
    let rows = rows(max);
    let edges = time.edges();
    let (mut cells, mut labels, mut totals) = (String::new(), String::new(), String::new());
    // The smallest gap is at the bottom, as on every other plot.
    for (place, row) in rows.iter().rev().enumerate() {
        let name = if row.0 == row.1 { row.0.to_string() } else { format!("{}–{}", row.0, row.1) };
        let _ = write!(labels, "<span>{name}</span>");
        let total = within(&all, *row);
        let _ = write!(totals, "<span>{} <small>{}</small></span>", count(total), percent(total, all.count()));
        for (index, slice) in time.columns.iter().enumerate() {
            let (groups, settled) = (within(of(slice), *row), of(slice).count());
            if groups == 0 {
                continue;
            }
            let share = groups as f64 / settled as f64;
            let (left, width) = (1000.0 * edges[index], 1000.0 * (edges[index + 1] - edges[index]));
            let text =
                format!("{}: gap {name}\n{} of {} groups {verb}", time.span(index), count(groups), count(settled));
            let _ = write!(
                cells,
                "<rect x=\"{left:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"9.4\" fill-opacity=\"{:.2}\"><title>{}</title></rect>",
                10 * place,
                0.12 + 0.88 * share,
                escaped(&text)
            );
        }
    }
    let height = 10 * rows.len();
    let mut legend =
        key(class, &format!("{} groups, mean gap {:.2}", count(all.count()), all.mean().unwrap_or_default()));
    if all.unknown > 0 {
        legend += &key("unknown_version", &format!("{} more of unknown version", count(all.unknown)));
    }
    let label = format!("{title} over time; mean {:.2}, largest {max}", all.mean().unwrap_or_default());
    figure(
        title,
        &legend,
        &format!(
            "<div class=\"heat\" style=\"--rows:{}\"><div class=\"gaps\" aria-hidden=\"true\">{labels}</div><svg class=\"{class}\" \
             viewBox=\"0 0 1000 {height}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">{cells}</svg><div \
             class=\"totals\">{totals}</div></div>",
            rows.len(),
            escaped(&label)
        ),
    )
}

/// Draws consumed and excluded groups separately.
pub(super) fn gaps(timeline: &RunTimeline) -> String {
    let time = Time::new(timeline, bars(timeline));
    heat(&time, "Gap of consumed groups", "consumed", "consumed", |slice| &slice.gap_consumed)
        + &heat(&time, "Gap of excluded groups", "stale", "excluded", |slice| &slice.gap_excluded)
        + &time.axis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gap_has_a_row() {
        assert_eq!(rows(0), [(0, 0)]);
        assert_eq!(rows(2), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(rows(20)[8..], [(8, 8), (9, 16), (17, 32)]);
        let far = rows(u64::MAX);
        assert!(far.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0) && far.last().unwrap().1 == u64::MAX);
    }
}
