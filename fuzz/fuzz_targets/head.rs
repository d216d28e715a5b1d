//! The decoders of the small fixed records.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| anabranch_log::fuzz::head(data));
