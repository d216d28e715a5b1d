//! The decoder of payloads.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_log::fuzz::group(data));
