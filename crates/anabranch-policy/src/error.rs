//! The errors of the policy, each with its place and a remedy.

use std::path::PathBuf;

/// An error of the policy: configuration, files, device.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A configuration value is outside what this model implements.
    #[error("model configuration: `{field}`: expected {expected}, found {found}")]
    Config {
        /// Name of the field, as in `config.json`.
        field: &'static str,
        /// The value found.
        found: String,
        /// What is accepted instead.
        expected: String,
    },
    /// A file or directory could not be read or written.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was attempted, e.g. `reading`.
        action: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A file was read but does not hold what it should.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file concerned.
        path: PathBuf,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// A tensor is missing, superfluous, or has the wrong shape or type.
    #[error("tensor `{name}`: {problem}")]
    Tensor {
        /// The tensor's Hugging Face name.
        name: String,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// A text holds a character that the vocabulary does not.
    #[error("character {character:?} at position {position} is not in the vocabulary ({known})")]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Its position, in characters from 0.
        position: usize,
        /// The characters known, one after the other.
        known: String,
    },
    /// No usable device, or a forced one is missing.
    #[error("device {device}: {missing}; {remedy}")]
    Device {
        /// The device asked for.
        device: &'static str,
        /// What is missing.
        missing: String,
        /// How to mend it.
        remedy: String,
    },
    /// The device failed while it worked.
    #[error("device failed while {action}: {reason}")]
    Runtime {
        /// What was being computed.
        action: &'static str,
        /// The runtime's message.
        reason: String,
    },
    /// A batch cannot be trained on.
    #[error("batch: {problem}")]
    Batch {
        /// What is wrong, with the group and sample it concerns.
        problem: String,
    },
}

impl PolicyError {
    /// Returns a function that makes a [`PolicyError::Io`], for `map_err`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Creates a [`PolicyError::Malformed`] from its problem.
    pub(crate) fn malformed(path: impl Into<PathBuf>, problem: &impl ToString) -> Self {
        Self::Malformed { path: path.into(), problem: problem.to_string() }
    }
}
