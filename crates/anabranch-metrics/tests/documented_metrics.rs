//! `docs/metrics.md` has exactly the list of metrics of the code.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anabranch_metrics::METRICS;

const HEAD: &str = "| name | kind | unit | label | of | meaning |\n|---|---|---|---|---|---|\n";

fn printed() -> String {
    let mut text = HEAD.to_owned();
    for metric in METRICS {
        let label = metric.label.map_or_else(String::new, |label| format!("`{label}`"));
        let (name, kind, unit, span) = (metric.name, metric.kind.name(), metric.unit, metric.span.name());
        writeln!(text, "| `{name}` | {kind} | {unit} | {label} | {span} | {} |", metric.meaning).unwrap();
    }
    text
}

/// If `UPDATE_DOCS` is set, the test writes the table instead of comparing it.
#[test]
fn the_document_names_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let document = fs::read_to_string(&path).unwrap();
    let begin = document.find(HEAD).expect("the head of the table");
    let end = document[begin..].find("\n\n").map_or(document.len(), |blank| begin + blank + 1);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{}{}{}", &document[..begin], printed(), &document[end..])).unwrap();
        return;
    }
    for (line, expected) in document[begin..end].lines().zip(printed().lines()) {
        assert_eq!(line, expected, "run this test with UPDATE_DOCS=1 to write {}", path.display());
    }
    assert_eq!(&document[begin..end], printed(), "run this test with UPDATE_DOCS=1 to write {}", path.display());
}
