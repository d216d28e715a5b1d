//! `docs/schema.md` and the schema are one.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anabranch_parquet::{Column, Kind, SCHEMA, TABLES};

fn rows(into: &mut String, columns: &[Column]) {
    into.push_str("| column | type | absent | meaning |\n|---|---|---|---|\n");
    for column in columns {
        let absent = if column.optional { "can be" } else { "" };
        writeln!(into, "| `{}` | `{}` | {absent} | {} |", column.name, column.kind.name(), column.meaning).unwrap();
    }
    for column in columns {
        if let Kind::Rows(fields) = column.kind {
            writeln!(into, "\nEach item of `{}`:\n", column.name).unwrap();
            rows(into, fields);
        }
    }
}

fn printed() -> String {
    let mut text = String::new();
    for table in TABLES {
        writeln!(text, "## Table `{}`\n\n{}\n", table.name, table.meaning).unwrap();
        rows(&mut text, table.columns);
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

/// With `UPDATE_DOCS` set, the tables of the document are written instead of compared.
#[test]
fn the_document_names_every_column() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema.md");
    let document = fs::read_to_string(&path).unwrap();
    assert!(document.contains(&format!("schema version {SCHEMA}")), "{} is of another version", path.display());
    let (introduction, tables) = document.split_at(document.find("## Table `events`").unwrap());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{introduction}{}", printed())).unwrap();
        return;
    }
    for (line, expected) in tables.lines().zip(printed().lines()) {
        assert_eq!(line, expected, "run this test with UPDATE_DOCS=1 to write {}", path.display());
    }
    assert_eq!(tables, printed(), "run this test with UPDATE_DOCS=1 to write {}", path.display());
}
