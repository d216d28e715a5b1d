//! Turns panics of user functions into errors that name the operator and the group.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anabranch_core::{Error, GroupId};

/// Calls `function`. Returns its result, or the message of its panic.
pub(crate) fn caught<T>(function: impl FnOnce() -> T) -> Result<T, String> {
    // The function's state may be broken after a panic. The stream ends, so the function is never called again.
    catch_unwind(AssertUnwindSafe(function)).map_err(|panic| message(panic.as_ref()))
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("(no message)"))
}

pub(crate) fn handler_error(operator: impl Into<String>, group: &GroupId, message: String) -> Error {
    Error::Handler { operator: operator.into(), group: group.clone(), message }
}
