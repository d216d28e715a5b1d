//! The page around the figures.

use std::fmt;

use anabranch_replay::{Audit, RunTimeline};

use super::numbers::{count, escaped};
use super::{charts, gaps, summary, table};

/// Writes the report as one HTML document, without scripts and without anything that must be fetched.
pub(super) fn page(
    name: &str,
    origin: &str,
    live: bool,
    audit: &Audit,
    timeline: &RunTimeline,
) -> Result<String, fmt::Error> {
    use fmt::Write as _;
    let state = match (live, audit.closed) {
        (true, _) => "live: only the sealed part",
        (false, true) => "finished",
        (false, false) => "not closed: killed, or still running elsewhere",
    };
    let mut page = String::new();
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<link \
         rel=\"icon\" href=\"data:,\">\n<title>{name}: anabranch report</title>\n<style>\n{style}</style>\n</head>\n<body>\n\
         <header><h1>Run report</h1><p class=\"name\">{name}</p><p class=\"state\"><b>{state}</b> · {events} events · \
         anabranch {library}</p></header>\n<main>\n",
        name = escaped(name),
        style = include_str!("report.css"),
        events = count(audit.events),
        library = escaped(&audit.library),
    )?;
    let mut section =
        |title: &str, text: &str, content: &str| writeln!(page, "<section><h2>{title}</h2>{text}{content}</section>");
    section("Summary", "", &summary::summary(audit))?;
    if audit.events > 0 {
        let sessions = if audit.sessions > 1 { "; a dotted line separates two sessions" } else { "" };
        section(
            "Timeline",
            &format!("<p>Engines, buffer and learner over the time that the run was open{sessions}.</p>"),
            &(charts::timeline(timeline) + &table::table(timeline)),
        )?;
        section(
            "Version gaps",
            "<p>How many versions the oldest weights in a group were behind the installed weights when the group was settled. \
             The stronger the colour of a cell, the larger the share of the period's groups. Consumed and excluded groups are never mixed.</p>",
            &gaps::gaps(timeline),
        )?;
        section("Dispositions", "<p>Outcomes of the groups that were settled.</p>", &charts::dispositions(timeline))?;
        section(
            "Reward and loss",
            "<p>If the two reward lines differ, the excluded groups had other rewards than the groups trained on.</p>",
            &charts::curves(timeline),
        )?;
        section(
            "Learner wait",
            "<p>How long the idle learner waited for the batch of each step.</p>",
            &charts::learner_wait(timeline),
        )?;
    }
    write!(page, "</main>\n<footer><p>{}</p></footer>\n</body>\n</html>\n", escaped(origin))?;
    Ok(page)
}
