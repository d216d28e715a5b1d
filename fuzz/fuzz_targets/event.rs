//! The decoder of events.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_log::fuzz::event(data));
