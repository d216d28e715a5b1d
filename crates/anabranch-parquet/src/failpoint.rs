//! Places at which tests let this library fail, or its process die. Without the feature `failpoints` they do nothing.

use std::io;

/// Fails if a test has asked for a failure at this place.
#[cfg(feature = "failpoints")]
pub(crate) fn at(name: &str) -> io::Result<()> {
    fail::fail_point!(name, |_| {
        eprintln!("failpoint {name}");
        Err(io::Error::other(format!("failpoint {name}")))
    });
    Ok(())
}

#[cfg(not(feature = "failpoints"))]
#[inline(always)]
#[allow(clippy::inline_always, clippy::unnecessary_wraps, reason = "it is to leave nothing behind")]
pub(crate) fn at(_: &str) -> io::Result<()> {
    Ok(())
}
