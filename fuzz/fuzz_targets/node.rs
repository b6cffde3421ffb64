//! Any bytes as a tree node: decoded, or refused with an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_format::fuzz::fuzz_node(bytes));
