//! Any bytes as a question for known data, or as an answer to one: within their limits, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_transfer::fuzz::fuzz_known(bytes));
