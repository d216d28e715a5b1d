//! Datasets from JSON Lines files.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use anabranch_core::{Dataset, DatasetError, Fields, Value};

/// A JSON Lines file that cannot be used as a dataset.
#[derive(Debug, thiserror::Error)]
pub enum JsonlError {
    /// The file cannot be read.
    #[error("{path}: {source}; give the path of a .jsonl file that can be read")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is no prompt.
    #[error("{path}:{line}: {message}")]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong and what is right.
        message: String,
    },
    /// The file makes no dataset.
    #[error("{path}: {source}")]
    Dataset {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: DatasetError,
    },
}

/// A JSON Lines file, one prompt a line: an object whose `prompt` is a text, or whose `tokens` is a list of token ids.
/// All other fields are kept for rewards and audits. Empty lines are skipped.
#[derive(Debug)]
pub struct Jsonl {
    path: PathBuf,
    rows: Vec<(usize, Fields)>,
}

impl Jsonl {
    /// Reads `path`.
    ///
    /// # Errors
    /// Where it cannot be read, or a line is no JSON object; the error names file and line.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, JsonlError> {
        let path = path.as_ref().to_owned();
        let bytes = fs::read(&path).map_err(|source| JsonlError::Read { path: path.clone(), source })?;
        let mut rows = Vec::new();
        for (bytes, line) in bytes.split(|&byte| byte == b'\n').zip(1..) {
            if bytes.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let value = serde_json::from_slice::<serde_json::Value>(bytes)
                .map_err(|error| line_error(&path, line, format!("no JSON ({error}); expected one object a line")))?;
            let Value::Map(fields) = Value::from(value) else {
                return Err(line_error(&path, line, r#"expected an object such as {"prompt": "…"}"#));
            };
            rows.push((line, fields));
        }
        Ok(Self { path, rows })
    }

    /// The dataset, its prompts' texts turned into token ids by `encode`. A row with `tokens` needs no encoding. The
    /// dataset is named after the file, without its extension.
    ///
    /// # Errors
    /// Where a row has neither `prompt` nor `tokens`, or `encode` refuses a text; the error names file and line.
    pub fn encode<E: Display>(
        self,
        mut encode: impl FnMut(&str) -> Result<Vec<u32>, E>,
    ) -> Result<Dataset, JsonlError> {
        let name = self.path.file_stem().map_or_else(|| "prompts".into(), |stem| stem.to_string_lossy().into_owned());
        let mut rows = Vec::with_capacity(self.rows.len());
        for (line, fields) in self.rows {
            let refused = |message: String| line_error(&self.path, line, message);
            let tokens = match (fields.get("tokens"), fields.get("prompt").and_then(Value::as_text)) {
                (Some(tokens), _) => {
                    token_ids(tokens).ok_or_else(|| refused("`tokens` is no list of token ids".into()))?
                }
                (None, Some(prompt)) => {
                    encode(prompt).map_err(|error| refused(format!("prompt {prompt:?}: {error}")))?
                }
                (None, None) => return Err(refused("expected a text `prompt` or a list `tokens`".into())),
            };
            if tokens.is_empty() {
                return Err(refused("an empty prompt cannot be continued: give it at least one token".into()));
            }
            rows.push((tokens, fields));
        }
        Dataset::new(name, rows).map_err(|source| JsonlError::Dataset { path: self.path, source })
    }

    /// The dataset of a file whose rows all hold `tokens`.
    ///
    /// # Errors
    /// Where a row has none; the error names file and line.
    pub fn dataset(self) -> Result<Dataset, JsonlError> {
        self.encode(|_| Err("no encoding was given; use `encode`, or store `tokens` in every row"))
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
            ("{\"prompt\":\"a\"}\n{\"prompt\":", "numbers.jsonl:2: no JSON"),
            ("[1]\n", "numbers.jsonl:1: expected an object"),
            ("{\"answer\":\"a\"}\n", "numbers.jsonl:1: expected a text `prompt`"),
            ("\n{\"prompt\":\"a!\"}\n", "numbers.jsonl:2: prompt \"a!\": `!` is not in the vocabulary"),
            ("{\"tokens\":[1,-2]}\n", "numbers.jsonl:1: `tokens` is no list"),
            ("{\"prompt\":\"\"}\n", "numbers.jsonl:1: an empty prompt"),
            ("\n", "has no rows"),
            ("{\"prompt\":\"\u{fffd}\"}\n{\"prompt\":\"\\ud800\"}\n", "numbers.jsonl:2: no JSON"),
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
