//! Any bytes as an encoded frame: decoded within its declared limits, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_wire::fuzz::fuzz_frame(bytes));
