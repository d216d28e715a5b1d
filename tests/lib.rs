//! Behaviour of anabranch across its crates: see `tests/`.

/// The chain of the repository's README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
