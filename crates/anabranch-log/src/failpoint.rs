//! Places where tests let this library fail, or its process die. Without the feature `failpoints` there is nothing here.

use std::io;

/// Fails where a test says so.
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

/// The same, for the kinds of these events.
#[cfg(feature = "failpoints")]
pub(crate) fn of(doing: &str, events: &[anabranch_core::Event]) -> io::Result<()> {
    events.iter().try_for_each(|event| at(&format!("{doing}-{}", event.kind.name())))
}

#[cfg(not(feature = "failpoints"))]
#[inline(always)]
#[allow(clippy::inline_always, clippy::unnecessary_wraps, reason = "it is to leave nothing behind")]
pub(crate) fn of(_: &str, _: &[anabranch_core::Event]) -> io::Result<()> {
    Ok(())
}
