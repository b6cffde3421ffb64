//! Any bytes as a written similarity index: read and of use, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_wire::fuzz::fuzz_index(bytes));
