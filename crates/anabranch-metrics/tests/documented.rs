//! `docs/metrics.md` prints the lists of metrics and of step tags as the code has them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anabranch_metrics::METRICS;
#[cfg(feature = "tensorboard")]
use anabranch_metrics::STEP_TAGS;

/// Compares the table below `head` in the document with `rows`. With `UPDATE_DOCS` set, it writes the table instead.
fn compare(head: &str, rows: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let document = fs::read_to_string(&path).unwrap();
    let printed = format!("{head}{rows}");
    let begin = document.find(head).expect("the head of the table");
    let end = document[begin..].find("\n\n").map_or(document.len(), |blank| begin + blank + 1);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{}{printed}{}", &document[..begin], &document[end..])).unwrap();
        return;
    }
    for (line, expected) in document[begin..end].lines().zip(printed.lines()) {
        assert_eq!(line, expected, "run this test with UPDATE_DOCS=1 to write {}", path.display());
    }
    assert_eq!(&document[begin..end], printed, "run this test with UPDATE_DOCS=1 to write {}", path.display());
}

#[test]
fn the_document_names_every_metric() {
    let mut rows = String::new();
    for metric in METRICS {
        let label = metric.label.map_or_else(String::new, |label| format!("`{label}`"));
        let (name, kind, unit, span) = (metric.name, metric.kind.name(), metric.unit, metric.span.name());
        writeln!(rows, "| `{name}` | {kind} | {unit} | {label} | {span} | {} |", metric.meaning).unwrap();
    }
    compare("| name | kind | unit | label | of | meaning |\n|---|---|---|---|---|---|\n", &rows);
}

#[cfg(feature = "tensorboard")]
#[test]
fn the_document_names_every_tag_of_a_step() {
    let mut rows = String::new();
    for tag in STEP_TAGS {
        writeln!(rows, "| `{}` | {} | {} |", tag.tag, tag.unit, tag.meaning).unwrap();
    }
    compare("| tag | unit | meaning |\n|---|---|---|\n", &rows);
}
