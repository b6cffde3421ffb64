//! Any bytes as what an NBD client sends: answered, or the connection is closed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_nbd::fuzz::fuzz_request(bytes));
