//! The page around the figures.

use std::fmt;

use anabranch_replay::{Audit, RunTimeline};

use super::numbers::{count, escaped};
use super::{charts, gaps, summary, table};

/// The report as one HTML document: no script, and nothing that is fetched.
pub(super) fn page(
    name: &str,
    origin: &str,
    live: bool,
    audit: &Audit,
    timeline: &RunTimeline,
) -> Result<String, fmt::Error> {
    use fmt::Write as _;
    let state = match (live, audit.closed) {
        (true, _) => "live: as far as it is sealed",
        (false, true) => "finished",
        (false, false) => "not closed: killed, or still open elsewhere",
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
        let sessions = if audit.sessions > 1 { "; a dotted line parts two sessions" } else { "" };
        section(
            "Timeline",
            &format!("<p>What engines, buffer and learner did. Times count while the run was open{sessions}.</p>"),
            &(charts::timeline(timeline) + &table::table(timeline)),
        )?;
        section(
            "Version gaps",
            "<p>Versions between the oldest weights in a group and those installed when it was settled. The stronger the colour \
             of a cell, the larger the share of that stretch's groups. Consumed and excluded groups are never mixed.</p>",
            &gaps::gaps(timeline),
        )?;
        section(
            "Dispositions",
            "<p>What became of the groups that were settled.</p>",
            &charts::dispositions(timeline),
        )?;
        section(
            "Reward and loss",
            "<p>Where the two rewards part, what was excluded differed from what was trained on.</p>",
            &charts::curves(timeline),
        )?;
        section(
            "Learner wait",
            "<p>How long the learner, free, waited for the batch of each step.</p>",
            &charts::learner_wait(timeline),
        )?;
    }
    write!(page, "</main>\n<footer><p>{}</p></footer>\n</body>\n</html>\n", escaped(origin))?;
    Ok(page)
}
