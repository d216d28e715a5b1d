//! The errors of a pipeline. Each says what failed, where, and what to do.

use std::sync::Arc;

use crate::{GroupId, Version};

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of a pipeline. The stream yields it to its consumer and then ends.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log could not be written or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The learner failed.
    #[error(transparent)]
    Learner(#[from] LearnerError),
    /// The parts of a group contradict each other. The group is in the log.
    #[error(transparent)]
    Malformed(#[from] MalformedGroup),
    /// A token carries a version that the clock has not reached; the group is in the log.
    #[error(
        "group {group}: expected versions up to {installed}, found {version}: two runs publish to one engine, or the \
         engine invents versions"
    )]
    FutureVersion {
        /// The group.
        group: GroupId,
        /// The version of the token.
        version: Version,
        /// The installed version.
        installed: String,
    },
    /// A filter or a reward function of the user panicked or failed. The group is in the log.
    #[error("{operator} failed on group {group}, which stays in the log: {message}")]
    Handler {
        /// The operator, with its name.
        operator: String,
        /// The group.
        group: GroupId,
        /// The message of the panic or error.
        message: String,
    },
    /// An argument is wrong.
    #[error("{argument}: {message}")]
    Argument {
        /// The argument.
        argument: &'static str,
        /// What was found and what was expected.
        message: String,
    },
    /// The pipeline was resumed under other settings.
    #[error(
        "expected {operator}.{field} = {recorded}, as recorded in the run, found {now}: restore the setting, accept \
         the change (`accept_changes`, on the command line --accept-changes), or start another run"
    )]
    Changed {
        /// The operator.
        operator: String,
        /// The name of the setting.
        field: String,
        /// The recorded value.
        recorded: String,
        /// The value of the pipeline.
        now: String,
    },
    /// No checkpoint can be loaded.
    #[error("no checkpoint of the run can be loaded; the last error was: {0}; restore a checkpoint from a backup")]
    NoCheckpoint(String),
    /// A task of the pipeline panicked.
    #[error("a pipeline task ended early: {0}")]
    Task(String),
}

/// The log could not be written or read. After a write error, a journal refuses all further writes.
#[derive(Clone, Debug, thiserror::Error)]
#[error("log: {message}")]
pub struct JournalError {
    /// What failed, where, and what to do.
    pub message: String,
    /// The cause.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl JournalError {
    /// Creates an error. The message says what failed, where, and what to do.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Creates an error with its cause.
    pub fn caused(message: impl Into<String>, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { message: message.into(), source: Some(Arc::new(source)) }
    }
}

/// An engine failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("engine: {message}{}", if *.kind == EngineErrorKind::Transient { " (transient)" } else { "" })]
pub struct EngineError {
    /// Whether another try may work.
    pub kind: EngineErrorKind,
    /// What, where and what to do.
    pub message: String,
    /// The cause.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// Whether an engine may work if it is asked again.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineErrorKind {
    /// It may: the operators try again, with a growing wait.
    Transient,
    /// It will not: the pipeline ends.
    Fatal,
}

impl EngineError {
    /// A fault that another try may overcome.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { kind: EngineErrorKind::Transient, message: message.into(), source: None }
    }

    /// A fault that no other try can overcome.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self { kind: EngineErrorKind::Fatal, message: message.into(), source: None }
    }

    /// The same error, with its cause.
    #[must_use]
    pub fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }
}

/// A learner failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("learner: {message}")]
pub struct LearnerError {
    /// What failed, where, and what to do.
    pub message: String,
    /// The cause.
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl LearnerError {
    /// Creates an error. The message says what failed, where, and what to do.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Creates an error with its cause.
    pub fn caused(message: impl Into<String>, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { message: message.into(), source: Some(Arc::new(source)) }
    }
}

/// The parts of a group contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group {group} is malformed: {fault}; the log has the group with its payload")]
pub struct MalformedGroup {
    /// The group.
    pub group: GroupId,
    /// What is wrong.
    pub fault: String,
}
