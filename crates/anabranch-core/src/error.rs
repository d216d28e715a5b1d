//! What can go wrong, where, and what to do.

use std::sync::Arc;

use crate::{GroupId, Version};

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a pipeline: it reaches the consumer of the stream, which then ends.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log could not be written or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The engine failed.
    #[error("engine: {0}")]
    Engine(#[from] EngineError),
    /// The learner failed.
    #[error("learner: {0}")]
    Learner(#[from] LearnerError),
    /// A group whose parts disagree; it is in the log.
    #[error(transparent)]
    Malformed(#[from] MalformedGroup),
    /// A token carries a version that the clock has not reached; the group is in the log.
    #[error(
        "group {group} carries {version}, but only {installed} is installed: two runs publish to one engine, or the engine \
         invents versions"
    )]
    FutureVersion {
        /// Which group.
        group: GroupId,
        /// The version it carries.
        version: Version,
        /// What is installed.
        installed: String,
    },
    /// A filter or a reward function of the user's panicked or failed; the group is in the log.
    #[error("{operator} failed on group {group}, which stays in the log: {message}")]
    Handler {
        /// Which operator, with its name.
        operator: String,
        /// On which group.
        group: GroupId,
        /// What it said.
        message: String,
    },
    /// An argument that makes no sense.
    #[error("{argument}: {message}")]
    Argument {
        /// Which argument.
        argument: &'static str,
        /// What is wrong and what is right.
        message: String,
    },
    /// The pipeline was resumed under other settings.
    #[error(
        "the run was recorded with {operator}.{field} = {recorded}, now it is {now}: restore the setting, accept the \
         change (`accept_changes`, on the command line --accept-changes), or start another run"
    )]
    Changed {
        /// Which operator.
        operator: String,
        /// Which of its settings.
        field: String,
        /// What the log says.
        recorded: String,
        /// What the pipeline says.
        now: String,
    },
    /// No checkpoint can be loaded.
    #[error("no checkpoint of the run can be loaded, the last tried said: {0}; restore one from a backup")]
    NoCheckpoint(String),
    /// A task of the pipeline panicked.
    #[error("a pipeline task ended early: {0}")]
    Task(String),
}

/// The log could not be written or read. After a write error a journal is poisoned: it refuses everything.
#[derive(Clone, Debug, thiserror::Error)]
#[error("log: {message}")]
pub struct JournalError {
    /// What, where and what to do.
    pub message: String,
    /// The cause.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl JournalError {
    /// An error that says what, where and what to do.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// The same, with its cause.
    pub fn caused(message: impl Into<String>, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { message: message.into(), source: Some(Arc::new(source)) }
    }
}

/// An engine failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// It may work when tried again.
    #[error("{0} (transient)")]
    Transient(String),
    /// It will not.
    #[error("{0}")]
    Fatal(String),
}

/// A learner failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct LearnerError {
    /// What, where and what to do.
    pub message: String,
    /// The cause.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl LearnerError {
    /// An error that says what, where and what to do.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// The same, with its cause.
    pub fn caused(message: impl Into<String>, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { message: message.into(), source: Some(Arc::new(source)) }
    }
}

/// A group whose parts disagree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group {group} is malformed: {fault}; it is in the log with its payload")]
pub struct MalformedGroup {
    /// Which group.
    pub group: GroupId,
    /// What is wrong.
    pub fault: String,
}
