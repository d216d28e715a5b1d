//! `docs/metrics.md` has exactly the step tags of the code.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anabranch_metrics::STEP_TAGS;

const HEAD: &str = "| tag | unit | meaning |\n|---|---|---|\n";

fn printed() -> String {
    let mut text = HEAD.to_owned();
    for tag in STEP_TAGS {
        writeln!(text, "| `{}` | {} | {} |", tag.tag, tag.unit, tag.meaning).unwrap();
    }
    text
}

/// If `UPDATE_DOCS` is set, the test writes the table instead of comparing it.
#[test]
fn the_document_names_every_tag_of_a_step() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let document = fs::read_to_string(&path).unwrap();
    let begin = document.find(HEAD).expect("the head of the table");
    let end = document[begin..].find("\n\n").map_or(document.len(), |blank| begin + blank + 1);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{}{}{}", &document[..begin], printed(), &document[end..])).unwrap();
        return;
    }
    assert_eq!(&document[begin..end], printed(), "run this test with UPDATE_DOCS=1 to write {}", path.display());
}
