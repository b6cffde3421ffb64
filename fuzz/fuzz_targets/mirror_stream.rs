//! Any bytes as a data stream of a transfer, from either side, held lists included: within their limits, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_transfer::fuzz::fuzz_stream(bytes));
