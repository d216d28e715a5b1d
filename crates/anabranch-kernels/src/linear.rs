//! experiment
pub mod cubek;
pub mod tile;
