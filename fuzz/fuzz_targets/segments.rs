//! Any bytes as segments on a lane of a paired peer: decoded within their limits, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_link::fuzz_segments(bytes));
