//! Any bytes as the options an NBD client haggles with: answered, or the connection is closed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_nbd::fuzz::fuzz_option(bytes));
