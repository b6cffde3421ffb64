//! Any bytes as a peer's first message: decoded within its limits, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_peer::fuzz_hello(bytes));
