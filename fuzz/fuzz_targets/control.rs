//! Any bytes as a control frame of a paired peer: decoded within its limits, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_peer::fuzz_control(bytes));
