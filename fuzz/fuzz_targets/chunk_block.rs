//! Any bytes as the blocks of an accelerated stream, and as answers to what was asked for: decoded within their limits, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| farside_chunks::fuzz::fuzz_block(bytes));
