//! Any bytes as what a peer says of its chunk store: understood within its limits, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_chunks::fuzz::fuzz_holdings(bytes));
