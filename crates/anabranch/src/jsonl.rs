//! Datasets from JSON Lines files.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use anabranch_core::{Dataset, DatasetError, Fields, Value};

/// A JSON Lines file cannot be used as a dataset.
#[derive(Debug, thiserror::Error)]
pub enum JsonlError {
    /// The file cannot be read.
    #[error("{path}: {source}; expected the path of a readable .jsonl file")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A line is not a prompt.
    #[error("{path}:{line}: {message}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What was expected and what was found.
        message: String,
    },
    /// The file does not give a dataset.
    #[error("{path}: {source}")]
    Dataset {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: DatasetError,
    },
}

/// A JSON Lines file with one prompt per line: an object whose `prompt` is a text, or whose `tokens` is a list of token
/// ids. All other fields are kept for rewards and audits. Empty lines are skipped.
#[derive(Debug)]
pub struct Jsonl {
    path: PathBuf,
    rows: Vec<(usize, Fields)>,
}

impl Jsonl {
    /// Reads `path`.
    ///
    /// # Errors
    /// Returns an error that names the file and the line if the file cannot be read, or if a line is not a JSON object.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, JsonlError> {
        let path = path.as_ref().to_owned();
        let bytes = fs::read(&path).map_err(|source| JsonlError::Read { path: path.clone(), source })?;
        let mut rows = Vec::new();
        for (bytes, line) in bytes.split(|&byte| byte == b'\n').zip(1..) {
            if bytes.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let value = serde_json::from_slice::<serde_json::Value>(bytes).map_err(|error| {
                line_error(&path, line, format!("expected one JSON object per line, found invalid JSON: {error}"))
            })?;
            let Value::Map(fields) = Value::from(value) else {
                return Err(line_error(&path, line, r#"expected an object such as {"prompt": "…"}"#));
            };
            rows.push((line, fields));
        }
        Ok(Self { path, rows })
    }

    /// Makes a dataset; `encode` turns the texts of prompts into token ids. A row with `tokens` needs no encoding. The
    /// name of the dataset is the name of the file without its extension.
    ///
    /// # Errors
    /// Returns an error that names the file and the line if a row has neither `prompt` nor `tokens`, or if `encode`
    /// refuses a text.
    pub fn encode<E: Display>(
        self,
        mut encode: impl FnMut(&str) -> Result<Vec<u32>, E>,
    ) -> Result<Dataset, JsonlError> {
        let name = self.path.file_stem().map_or_else(|| "prompts".into(), |stem| stem.to_string_lossy().into_owned());
        let mut rows = Vec::with_capacity(self.rows.len());
        for (line, fields) in self.rows {
            let refused = |message: String| line_error(&self.path, line, message);
            let tokens = match (fields.get("tokens"), fields.get("prompt").and_then(Value::as_text)) {
                (Some(tokens), _) => token_ids(tokens)
                    .ok_or_else(|| refused("expected a list of token ids as `tokens`, found something else".into()))?,
                (None, Some(prompt)) => {
                    encode(prompt).map_err(|error| refused(format!("prompt {prompt:?}: {error}")))?
                }
                (None, None) => {
                    return Err(refused("expected a text `prompt` or a list `tokens`, found neither".into()));
                }
            };
            if tokens.is_empty() {
                return Err(refused("expected a prompt of at least one token, found an empty prompt".into()));
            }
            rows.push((tokens, fields));
        }
        Dataset::new(name, rows).map_err(|source| JsonlError::Dataset { path: self.path, source })
    }

    /// Makes a dataset from a file whose rows all have `tokens`.
    ///
    /// # Errors
    /// Returns an error that names the file and the line if a row has no `tokens`.
    pub fn dataset(self) -> Result<Dataset, JsonlError> {
        self.encode(|_| Err("expected `tokens`, found only `prompt`: call `encode`, or store `tokens` in every row"))
    }
}

fn line_error(path: &Path, line: usize, message: impl Into<String>) -> JsonlError {
    JsonlError::Line { path: path.to_owned(), line, message: message.into() }
}

fn token_ids(value: &Value) -> Option<Vec<u32>> {
    let Value::List(ids) = value else { return None };
    ids.iter().map(|id| u32::try_from(id.as_int()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numbers.jsonl");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn bytes(text: &str) -> Result<Vec<u32>, String> {
        if text.contains('!') {
            Err("`!` is not in the vocabulary".into())
        } else {
            Ok(text.bytes().map(u32::from).collect())
        }
    }

    #[test]
    fn texts_are_encoded_and_other_fields_kept() {
        let (_dir, path) = file("{\"prompt\":\"ab\",\"answer\":\"ba\"}\n\n{\"tokens\":[7,8]}\n");
        let dataset = Jsonl::open(&path).unwrap().encode(bytes).unwrap();
        assert_eq!((&**dataset.name(), dataset.len()), ("numbers", 2));
        let first = dataset.prompt(0, 0).unwrap();
        assert_eq!((first.tokens, first.fields["answer"].as_text()), (vec![97, 98], Some("ba")));
        assert_eq!(dataset.prompt(0, 1).unwrap().tokens, [7, 8]);
    }

    #[test]
    fn every_damaged_line_is_named() {
        let cases = [
            ("{\"prompt\":\"a\"}\n{\"prompt\":", "numbers.jsonl:2: expected one JSON object per line"),
            ("[1]\n", "numbers.jsonl:1: expected an object"),
            ("{\"answer\":\"a\"}\n", "numbers.jsonl:1: expected a text `prompt`"),
            ("\n{\"prompt\":\"a!\"}\n", "numbers.jsonl:2: prompt \"a!\": `!` is not in the vocabulary"),
            ("{\"tokens\":[1,-2]}\n", "numbers.jsonl:1: expected a list of token ids"),
            ("{\"prompt\":\"\"}\n", "numbers.jsonl:1: expected a prompt of at least one token"),
            ("\n", "expected at least one row"),
            (
                "{\"prompt\":\"\u{fffd}\"}\n{\"prompt\":\"\\ud800\"}\n",
                "numbers.jsonl:2: expected one JSON object per line",
            ),
        ];
        for (text, expected) in cases {
            let (_dir, path) = file(text);
            let error = Jsonl::open(&path).and_then(|jsonl| jsonl.encode(bytes)).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let error = Jsonl::open("no/such.jsonl").unwrap_err().to_string();
        assert!(error.contains("no/such.jsonl"), "{error}");
    }
}
