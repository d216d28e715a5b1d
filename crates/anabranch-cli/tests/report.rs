//! The report of finished, killed and live runs, and of a Parquet folder: its contents, and that reading changes nothing.

mod runs;

use std::fs;
use std::path::Path;

use anabranch_parquet::Segments;
use runs::{anabranch, events, files, read, record};
use serde_json::Value;

/// The page, and the command's answer in JSON.
fn report(run: &Path) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let output = anabranch(&[&"report", &run, &"-o", &file, &"--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (fs::read_to_string(file).unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

/// The value of the tile called `name`.
fn tile<'a>(page: &'a str, name: &str) -> &'a str {
    let (_, after) = page.split_once(&format!("<dt>{name}</dt><dd>")).unwrap_or_else(|| panic!("no tile {name}"));
    after.split_once("<small>").unwrap().0
}

#[test]
fn a_killed_run_is_drawn_without_changing_a_byte() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 40, |_, _| {});
    let before = files(run.path());
    let (page, said) = report(run.path());
    assert!(files(run.path()) == before, "a reader changed the run");
    let events = events(run.path());
    let audit = anabranch_replay::audit(&events);
    assert_eq!(said["audit"], serde_json::to_value(&audit).unwrap());
    assert_eq!(said["bytes"], page.len());
    assert_eq!(tile(&page, "Groups consumed"), audit.groups.consumed.to_string());
    assert_eq!(tile(&page, "Groups excluded"), audit.groups.all_excluded().to_string());
    assert_eq!(tile(&page, "Gap, consumed"), format!("{:.2}", audit.gap.consumed.mean().unwrap()));
    assert_eq!(tile(&page, "Gap, excluded"), format!("{:.2}", audit.gap.excluded.mean().unwrap()));
    assert!(page.contains("not closed: killed"));
    for heading in ["Summary", "Timeline", "Version gaps", "Dispositions", "Reward and loss", "Learner wait"] {
        assert!(page.contains(&format!("<h2>{heading}</h2>")), "no heading {heading}");
    }
    for reason in ["stale", "filtered", "aborted"] {
        let shown = format!("<i class=\"{reason}\"></i>{reason} {}</li>", audit.groups.excluded[reason]);
        assert!(page.contains(&shown), "no `{shown}`");
    }
    // Every consumed group is in exactly one cell of the heat map of consumed groups, and in no other heat map.
    let cells = |title: &str| {
        let (_, after) = page.split_once(&format!("<b>{title}</b>")).unwrap();
        let svg = after.split_once("</svg>").unwrap().0;
        let of = svg.split("<title>").skip(1).map(|text| {
            let groups = text.split_once('\n').unwrap().1.split_once(" of ").unwrap().0;
            groups.replace(',', "").parse::<u64>().unwrap()
        });
        of.sum::<u64>()
    };
    assert_eq!(cells("Gap of consumed groups"), audit.gap.consumed.count());
    assert_eq!(cells("Gap of excluded groups"), audit.gap.excluded.count());
}

#[test]
fn the_page_needs_nothing_else() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 12, |_, _| {});
    let (page, _) = report(run.path());
    for outside in ["http:", "https:", "//", "<script", "@import", "url(", "src="] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
}

#[test]
fn finished_runs_and_parquet_alone_draw_the_same() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 20, |script, _| {
        drop(script.run.finish());
    });
    let (page, said) = report(run.path());
    assert!(page.contains("<b>finished</b>"));
    let copy = tempfile::tempdir().unwrap();
    let folder = copy.path().join("parquet");
    assert!(anabranch(&[&"export", &run.path(), &"--to", &folder]).status.success());
    let (of_copy, said_of_copy) = report(&folder);
    let figures = |page: &str| page.split_once("<main>").unwrap().1.split_once("</main>").unwrap().0.to_owned();
    assert_eq!(figures(&page), figures(&of_copy));
    assert_eq!((&said["timeline"], &said["audit"]), (&said_of_copy["timeline"], &said_of_copy["audit"]));
    assert!(of_copy.contains("sealed segments in "));
}

#[test]
fn a_live_run_says_how_far_it_is_sealed() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 12, |_, log| {
        let twin = tempfile::tempdir().unwrap();
        record(twin.path(), 12, |_, _| {});
        let events: Vec<_> = read(twin.path()).events().map(Result::unwrap).take(60).collect();
        let journal = log.journal();
        let mut segments = Segments::open(run.path().join("parquet")).unwrap();
        segments.seal(&events, |id| Ok(journal.payload(id)?)).unwrap();
        let (page, _) = report(run.path());
        assert!(page.contains("live: only the sealed part") && page.contains("sealed segments of a live run"));
        assert!(page.contains("through #59 at "), "{page}");
    });
}

#[test]
fn the_report_never_lies_in_the_run() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 6, |_, _| {});
    let before = files(run.path());
    let output = anabranch(&[&"report", &run.path(), &"-o", &run.path().join("log/report.html")]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("is inside the run") && error.contains("-o"), "{error}");
    assert!(files(run.path()) == before);
    let output = anabranch(&[&"report", &run.path(), &"-o", &"/nowhere/at/all.html"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("cannot write /nowhere/at/all.html"), "{error}");
}

#[test]
fn a_long_run_stays_small() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 120, |_, _| {});
    let (page, said) = report(run.path());
    assert!(page.len() < 500_000, "{} bytes", page.len());
    let slices = said["timeline"]["slices"].as_array().unwrap().len();
    assert!((240..=480).contains(&slices), "{slices}");
}

#[test]
fn a_resumed_run_shows_where_its_sessions_begin() {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), 12, |_, _| {});
    assert!(!report(run.path()).0.contains("class=\"session\""));
    record(run.path(), 12, |_, _| {});
    let (page, said) = report(run.path());
    assert_eq!(said["timeline"]["sessions_ns"].as_array().unwrap().len(), 2);
    assert!(page.contains("<small>2 sessions</small>"));
    assert_eq!(page.matches("class=\"session\"").count(), 4, "one on each plot of the timeline");
}
