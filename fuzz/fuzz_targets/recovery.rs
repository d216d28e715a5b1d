//! The fold of a log, as an opening and an audit make it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    anabranch_log::fuzz::recovery(data, anabranch_replay::fuzz::judge);
});
