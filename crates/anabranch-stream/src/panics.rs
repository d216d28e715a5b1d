//! Panics of user functions, turned into errors that name operator and group.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anabranch_core::{Error, GroupId};

/// What `function` returns, or what it said when it panicked.
pub(crate) fn caught<T>(function: impl FnOnce() -> T) -> Result<T, String> {
    // The function's state may be broken after a panic: the stream ends, so nobody looks at it again.
    catch_unwind(AssertUnwindSafe(function)).map_err(|panic| message(panic.as_ref()))
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("(no message)"))
}

pub(crate) fn handler_error(operator: impl Into<String>, group: &GroupId, message: String) -> Error {
    Error::Handler { operator: operator.into(), group: group.clone(), message }
}
