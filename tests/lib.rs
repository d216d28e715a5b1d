//! Behaviour of anabranch across its crates: see `tests/`.
